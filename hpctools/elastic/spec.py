"""What an elastic run is, as hp-submit writes it once and everybody else reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from hpctools.elastic.policy import ElasticPolicy, replica_nodes
from hpctools.errors import ElasticError

MODES = ("live", "restart")
GRACE_RESERVE = 2.0  # of the seconds until a node is gone: ending takes some, too
CLOSING_RESERVE = 5.5  # of the seconds until a job is killed: Slurm is asked why, and ending takes some, too


@dataclass(frozen=True)
class RunSpec:
    """One elastic run: a baseline job of `min_nodes` and replica jobs up to `max_nodes`.

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
        sizes: allowed totals of nodes, ascending, from `min_nodes` to `max_nodes`; empty: each in between.
        mode: `live`, the training loop resizes in living processes, or `restart`, unmodified scripts that
            save their own checkpoints are started anew at each size.
        policy: `ElasticPolicy.to_json`; empty: sizes as above and defaults for the rest.
        recovery: sections of the policy file for `hpctools.elastic.recovery`, as written there.
        checkpoint: settings of the policy file for `hpctools.elastic.checkpoint`, as written there.
        baseline_options: sbatch options with which the baseline job was submitted, script not included;
            with them another one can be.
        baseline_script: absolute path of the batch script of the baseline job.
        time_limit_s: of the baseline job, in seconds; None: what Slurm gives by itself, or no limit.
        resumed_from: absolute path of the run folder whose newest checkpoint this run begins with; empty
            when it begins anew.
        kill_wait_s: what Slurm leaves a job that is cancelled, out of time or loses a node between SIGTERM
            and SIGKILL (KillWait).
        role: of the ranks in restart mode, as torchrun's `--role`; empty: torchrun's default.
        takers: QoS whose jobs may take those of the replicas; None: not known, or partitions say it.
        preload: modules that a process of each node imports once and forks its workers from, besides torch
            and the library; None: workers are started one by one.
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
    sizes: tuple[int, ...] = ()
    mode: str = "live"
    policy: dict[str, Any] = field(default_factory=dict)
    recovery: dict[str, Any] = field(default_factory=dict)
    checkpoint: dict[str, Any] = field(default_factory=dict)
    baseline_options: tuple[str, ...] = ()
    baseline_script: str = ""
    time_limit_s: float | None = None
    resumed_from: str = ""
    kill_wait_s: float = 30.0
    preload: tuple[str, ...] | None = None
    takers: tuple[str, ...] | None = None
    role: str = ""

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
        if self.mode not in MODES:
            raise ElasticError(
                f"run {self.id}: there is no mode {self.mode!r}", f"give one of: {', '.join(MODES)}"
            )
        if self.sizes and (self.sizes[0], self.sizes[-1]) != (self.min_nodes, self.max_nodes):
            raise ElasticError(
                f"run {self.id}: sizes {list(self.sizes)} for {self.min_nodes} to {self.max_nodes} nodes",
                "submit it again with hp-submit",
            )

    @property
    def allowed_sizes(self) -> tuple[int, ...]:
        """Totals of nodes that the run may have, ascending."""
        return self.sizes or tuple(range(self.min_nodes, self.max_nodes + 1))

    @property
    def elastic_policy(self) -> ElasticPolicy:
        """How the run may grow and shrink."""
        return ElasticPolicy.from_json({**self.policy, "sizes": self.allowed_sizes})

    def config_of(self, workers: int) -> Mapping[str, Any]:
        """What the policy's `scale_config` says for so many workers; 0: for the least number of nodes."""
        return self.elastic_policy.config(workers // self.workers_per_node or self.allowed_sizes[0])

    @property
    def graceful_seconds(self) -> float:
        """What those that leave have in all: GraceTime, or less if the policy says so.

        A run of one size has no replicas that could be preempted: it has KillWait.
        """
        given, wanted = self.grace_seconds if self.max_replicas else self.kill_wait_s, self._graceful
        return given if wanted is None else min(wanted, given)

    @property
    def closing_seconds(self) -> float:
        """What there is to save when the run is ended: KillWait, less if the policy says so, less the way.

        By then some of it may have gone by, in which Slurm was asked why it ends the job.
        """
        given, wanted = self.kill_wait_s, self._graceful
        usable = max(1.0, given - min(CLOSING_RESERVE, given / 4))
        return usable if wanted is None else min(max(1.0, wanted), usable)

    def notice_seconds(self, *, baseline: bool, preempted: bool) -> float:
        """Until a node is gone of which nobody says when.

        A preempted replica has GraceTime, a baseline job that is ended KillWait; nobody hurries who drains.
        """
        if preempted:
            return self.grace_seconds
        return self.kill_wait_s if baseline else max(self.grace_seconds, self.kill_wait_s)

    def losing_seconds(self, passed: float) -> float:
        """For how long the workers of a baseline job that is ended go on, which Slurm does not explain.

        KillWait takes their agents and the coordinator beside them with the whole job, so there is more of a
        reserve than on a replica.

        Args:
            passed: since its SIGTERM, most of it to ask Slurm.
        """
        given, wanted = self.kill_wait_s, self._graceful
        usable = max(0.0, given - min(CLOSING_RESERVE, given / 4) - passed)
        return usable if wanted is None else min(wanted, usable)

    @property
    def _graceful(self) -> float | None:
        return self.elastic_policy.graceful_shutdown_s

    def departure_seconds(self, left: float) -> float:
        """For how long workers whose node is gone in `left` seconds may go on with their step and save.

        What the policy says (gracefulShutdownTimeoutInSeconds), but never so long that ending comes too late.
        """
        usable, wanted = max(0.0, left - GRACE_RESERVE), self._graceful
        return usable if wanted is None else min(wanted, usable)

    @property
    def replica_nodes(self) -> tuple[int, ...]:
        """Nodes of each replica job, in the order in which they make the run larger."""
        return replica_nodes(self.allowed_sizes)

    @property
    def max_replicas(self) -> int:
        """How many replica jobs the run may have beside its baseline."""
        return len(self.allowed_sizes) - 1

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
        for name in ("command", "replica_options", "sizes", "baseline_options", "preload", "takers"):
            if isinstance(known.get(name), list):
                known[name] = tuple(known[name])
        try:
            return cls(**known)
        except TypeError as error:
            raise ElasticError(f"the run's description is incomplete: {error}") from None
