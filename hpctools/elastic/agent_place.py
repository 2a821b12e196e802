"""Where an agent runs: its node, its job, and its name in the run."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace

from hpctools.elastic.folder import RunFolder
from hpctools.errors import ElasticError


@dataclass(frozen=True)
class Place:
    """Where an agent runs.

    Attributes:
        index: of the node within its job, from 0.
        later: whether it belongs to a baseline job that took the place of a lost one.
    """

    role: str
    job_id: int
    index: int
    node: str
    later: bool = False

    @classmethod
    def from_environ(cls, role: str, environ: Mapping[str, str]) -> Place:
        """As Slurm's variables tell (srun(1), OUTPUT ENVIRONMENT VARIABLES).

        Raises:
            ElasticError: this is not a job step.
        """
        try:
            job_id, index = int(environ["SLURM_JOB_ID"]), int(environ["SLURM_NODEID"])
        except (KeyError, ValueError):
            raise ElasticError(
                "the agent runs outside a Slurm job step",
                "start it with srun; hp-submit --nodes MIN:MAX does",
            ) from None
        return cls(role, job_id, index, own_node(environ))

    @property
    def is_baseline(self) -> bool:
        """Whether the node belongs to a baseline job."""
        return self.role == "baseline"

    @property
    def is_first_baseline(self) -> bool:
        """Whether the node belongs to the baseline job with which the run began."""
        return self.is_baseline and not self.later

    @property
    def coordinates(self) -> bool:
        """Whether the run's first coordinator lives here."""
        return self.is_first_baseline and self.index == 0

    @property
    def name(self) -> str:
        """The agent's name in the run: b0, b1, ... of the first baseline, else of the job: r12, r12.1, ..."""
        if self.is_first_baseline:
            return f"b{self.index}"
        job = f"{'b' if self.is_baseline else 'r'}{self.job_id}"
        return f"{job}.{self.index}" if self.index else job


def placed(place: Place, folder: RunFolder) -> Place:
    """The place, with what the run's folder knows: whether its baseline job is a later one."""
    first = next((job.job_id for job in folder.jobs() if job.role == "baseline"), place.job_id)
    return replace(place, later=place.is_baseline and first != place.job_id)


def own_node(environ: Mapping[str, str]) -> str:
    """The name of this node: Slurm's, else the machine's own."""
    return environ.get("SLURMD_NODENAME") or socket.gethostname()
