"""What an elastic run is, as hp-submit writes it once and everybody else reads it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from hpctools.errors import ElasticError


@dataclass(frozen=True)
class RunSpec:
    """One elastic run: a baseline job of `min_nodes` and one-node replica jobs up to `max_nodes`.

    Attributes:
        id: name of the run's folder, unique for the user.
        cluster: Slurm's ClusterName; empty when unknown.
        workers_per_node: processes of `command` that the agent starts on each node.
        command: the user's program and its arguments.
        workdir: absolute folder in which `command` starts.
        replica_options: sbatch options with which a replica job is submitted, job script not included.
        replica_script: absolute path of the batch script of a replica job.
        created: ISO 8601, UTC.
        grace_seconds: what Slurm leaves a preempted replica between SIGTERM and SIGKILL (GraceTime).
    """

    id: str
    name: str
    user: str
    cluster: str
    min_nodes: int
    max_nodes: int
    workers_per_node: int
    command: tuple[str, ...]
    workdir: str
    replica_options: tuple[str, ...]
    replica_script: str
    created: str
    grace_seconds: float = 8.0

    def __post_init__(self) -> None:
        if not 1 <= self.min_nodes <= self.max_nodes:
            raise ElasticError(
                f"run {self.id}: {self.min_nodes}:{self.max_nodes} is not a range of nodes",
                "give min:max with 1 <= min <= max",
            )
        if self.workers_per_node < 1:
            raise ElasticError(
                f"run {self.id}: {self.workers_per_node} workers on a node", "give 1 or more workers per node"
            )
        if not self.command:
            raise ElasticError(f"run {self.id} has no command", "give the training's command after --")

    @property
    def max_replicas(self) -> int:
        """How many one-node replica jobs the run may have beside its baseline."""
        return self.max_nodes - self.min_nodes

    def to_json(self) -> dict[str, Any]:
        """The spec as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> RunSpec:
        """The inverse of `to_json`; keys that a later version added are ignored.

        Raises:
            ElasticError: a field is missing, or its value makes no run.
        """
        known = {field.name: values[field.name] for field in fields(cls) if field.name in values}
        for name in ("command", "replica_options"):
            if isinstance(known.get(name), list):
                known[name] = tuple(known[name])
        try:
            return cls(**known)
        except TypeError as error:
            raise ElasticError(f"the run's description is incomplete: {error}") from None
