"""What we ask of Slurm: a small Protocol. `cli.py` implements it with Slurm's own commands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from hpctools.slurm.types import Job, Partition


class SlurmClient(Protocol):
    """The controller, seen by a user.

    Every method raises UnreachableError when the controller does not answer, and CommandError when
    it refuses.
    """

    def submit(self, options: Sequence[str], script: Path, arguments: Sequence[str] = ()) -> int:
        """Submit a batch script with sbatch's own `options`; return the job id."""
        ...

    def cancel(self, job_ids: Sequence[int]) -> None:
        """Cancel jobs; ids that have already ended are not an error."""
        ...

    def jobs(
        self, *, ids: Sequence[int] = (), user: str | None = None, nodes: Sequence[str] = ()
    ) -> list[Job]:
        """Jobs in the queue (and those that ended within MinJobAge), by id, by user or by node."""
        ...

    def partitions(self) -> list[Partition]:
        """All partitions."""
        ...
