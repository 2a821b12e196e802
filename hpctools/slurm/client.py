"""What we ask of Slurm: three small Protocols.

`cli.py` implements them with Slurm's own commands, `native.py` with pyslurm; `choose.py` takes one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Protocol

from hpctools.errors import UsageError
from hpctools.slurm.types import Job, Node, Partition, PastJob


class SlurmClient(Protocol):
    """The controller, seen by a user.

    Every method raises UnreachableError when the controller does not answer, CommandError when it refuses,
    and ReleaseError when what was printed cannot be read.
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
        """Jobs in the queue (and those that ended within MinJobAge), by id, by user or by node.

        In the order of their ids; an array's pending tasks are one job.
        """
        ...

    def partitions(self) -> list[Partition]:
        """All partitions, hidden ones too."""
        ...


class RunClient(SlurmClient, Protocol):
    """The controller, as the coordinator of an elastic run needs it; raises as SlurmClient does."""

    def shorten(self, job_id: int, minutes: int) -> None:
        """Lower a job's time limit; users may not raise it. A job that has ended is not an error."""
        ...

    def exclude(self, job_id: int, nodes: Sequence[str]) -> None:
        """Have a job that waits not get some nodes; they take the place of those that it was not to get.

        A job that has begun or ended is not an error: it has its nodes.

        Args:
            nodes: names or host lists.
        """
        ...

    def dependencies(self, user: str) -> Mapping[int, str]:
        """What the user's waiting jobs wait for, as `--dependency` says it, by job id; an array is one job.

        Those that wait for no other job are left out, and so is what a job need not wait for any more.
        """
        ...

    def depend(self, job_id: int, dependency: str) -> None:
        """Have a job that waits wait for something else; "": for no other job.

        A job that has begun or ended is not an error.
        """
        ...

    def ended_as(self, job_id: int) -> str:
        """The state of a job as slurmdbd knows it, which it does while slurmctld still says COMPLETING.

        "" when it does not know the job. Slurmdbd's silence is an UnreachableError.
        """
        ...


class SlurmAdministration(SlurmClient, Protocol):
    """The cluster, seen by who runs it: controller and slurmdbd.

    Raises as SlurmClient does; slurmdbd's silence is an UnreachableError that names it.
    """

    def nodes(self, names: Sequence[str] = ()) -> list[Node]:
        """All nodes, powered down and hidden ones too, in the controller's order.

        Args:
            names: only these, in whatever order; one that the controller does not know is left out.
        """
        ...

    def update_nodes(self, nodes: Sequence[str], state: str, reason: str = "") -> None:
        """Change the state of nodes.

        Args:
            nodes: their names; nothing happens when there are none.
            state: one of `NODE_CHANGES`.
            reason: why, one line; `down`, `drain` and `fail` need one.

        Raises:
            UsageError: the state is none of those, or the reason is missing or more than one line.
            NotAllowedError: Slurm lets only its operators do this.
        """
        ...

    def config(self) -> Mapping[str, str]:
        """What slurmctld runs with: `scontrol show config`, keys and values as it spells them."""
        ...

    def past_jobs(self, first: date, end: date, *, users: Sequence[str] = ()) -> list[PastJob]:
        """What slurmdbd remembers of the jobs that were known in some UTC days; `end` is exclusive.

        In the order of (cluster, dbindex). Of a requeued job at least the last run.

        Args:
            users: only theirs; everybody's when empty.
        """
        ...


NODE_CHANGES = ("drain", "resume", "undrain", "down", "fail", "power_down", "power_up")
"""States that `update_nodes` takes: scontrol(1), "SPECIFICATIONS FOR UPDATE COMMAND, NODES"."""
NEED_A_REASON = ("drain", "down", "fail")


def check_node_change(state: str, reason: str) -> None:
    """Refuse what `update_nodes` does not take, before Slurm is asked.

    Raises:
        UsageError: the state is unknown, or the reason is missing or more than one line.
    """
    if state not in NODE_CHANGES:
        raise UsageError(f"nodes cannot be set to {state!r}", f"use one of: {', '.join(NODE_CHANGES)}")
    if not reason and state in NEED_A_REASON:
        raise UsageError(f"{state} needs a reason", "say why, in one line")
    if not reason.isprintable():
        raise UsageError(
            f"the reason {reason!r} is not one line of text", "leave out line breaks and control characters"
        )
