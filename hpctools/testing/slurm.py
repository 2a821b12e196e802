"""A Slurm for tests: a cluster in memory that implements SlurmAdministration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timezone
from pathlib import Path

from hpctools.errors import CommandError, HpctoolsError
from hpctools.slurm.client import check_node_change
from hpctools.slurm.sbatch_options import read_command_line
from hpctools.slurm.types import Job, Node, Partition, PastJob


@dataclass(frozen=True)
class Submitted:
    """A batch script that was given to the fake.

    Attributes:
        options: sbatch's.
        text: the script as it was at that moment.
    """

    job_id: int
    options: tuple[str, ...]
    script: Path
    arguments: tuple[str, ...]
    text: str


@dataclass
class FakeSlurm:
    """A controller in memory.

    Attributes:
        user: who submits.
        known: what `partitions` returns.
        machines: what `nodes` returns, by name; `update_nodes` changes it.
        settings: what `config` returns.
        past: what slurmdbd remembers.
        queue: jobs by id; tests change it to let jobs start and end.
        submitted: every accepted script, in order.
        cancelled: every id that was ever cancelled, in order.
        excluded: what waiting jobs were told not to get, by id.
        awaited: dependencies, by id.
        accounted: what slurmdbd says of jobs, by id.
        failure: raised by every method when set: the controller is down, or refuses.
        on_submit: called with each job after it was accepted, for example to interrupt there.
    """

    user: str = "nlp1"
    known: tuple[Partition, ...] = (Partition("gpu", total_nodes=6, is_default=True),)
    machines: dict[str, Node] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    past: tuple[PastJob, ...] = ()
    queue: dict[int, Job] = field(default_factory=dict)
    submitted: list[Submitted] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)
    excluded: dict[int, tuple[str, ...]] = field(default_factory=dict)
    awaited: dict[int, str] = field(default_factory=dict)
    accounted: dict[int, str] = field(default_factory=dict)
    failure: HpctoolsError | None = None
    on_submit: Callable[[Job], None] | None = None

    def submit(self, options: Sequence[str], script: Path, arguments: Sequence[str] = ()) -> int:
        """Put a pending job into the queue."""
        self._answer()
        job = self._job(options)
        self.queue[job.id] = job
        text = script.read_text(encoding="utf-8", errors="surrogateescape")
        self.submitted.append(Submitted(job.id, tuple(options), script, tuple(arguments), text))
        if self.on_submit:
            self.on_submit(job)
        return job.id

    def cancel(self, job_ids: Sequence[int]) -> None:
        """End the jobs."""
        self._answer()
        for job_id in job_ids:
            self.cancelled.append(job_id)
            if job_id in self.queue:
                self.change(job_id, state="CANCELLED", nodes=())

    def shorten(self, job_id: int, minutes: int) -> None:
        """Lower a job's time limit."""
        self._answer()
        if job_id in self.queue:
            self.queue[job_id] = replace(self.queue[job_id], time_limit=minutes)

    def exclude(self, job_id: int, nodes: Sequence[str]) -> None:
        """Note what a job that waits must not get."""
        self._answer()
        self.excluded[job_id] = tuple(nodes)

    def dependencies(self, user: str) -> Mapping[int, str]:
        """Those of jobs that wait."""
        self._answer()
        mine = {job.id for job in self.queue.values() if job.user == user and job.state == "PENDING"}
        return {job_id: told for job_id, told in self.awaited.items() if job_id in mine and told}

    def depend(self, job_id: int, dependency: str) -> None:
        """Note what a job that waits waits for."""
        self._answer()
        self.awaited[job_id] = dependency

    def ended_as(self, job_id: int) -> str:
        """What slurmdbd would say."""
        self._answer()
        return self.accounted.get(job_id, "")

    def jobs(
        self, *, ids: Sequence[int] = (), user: str | None = None, nodes: Sequence[str] = ()
    ) -> list[Job]:
        """Jobs that satisfy every condition that is given."""
        self._answer()
        return [
            job
            for job in self.queue.values()
            if (not ids or job.id in ids)
            and (user is None or job.user == user)
            and (not nodes or set(nodes) & set(job.nodes))
        ]

    def partitions(self) -> list[Partition]:
        """The known ones."""
        self._answer()
        return list(self.known)

    def nodes(self, names: Sequence[str] = ()) -> list[Node]:
        """The machines, or some of them."""
        self._answer()
        return [each for each in self.machines.values() if not names or each.name in names]

    def update_nodes(self, nodes: Sequence[str], state: str, reason: str = "") -> None:
        """Change the state of machines as slurmctld shows it soon after."""
        check_node_change(state, reason)
        self._answer()
        strangers = set(nodes) - set(self.machines)
        if strangers:
            words = "slurm_update error: Invalid node name specified"
            raise CommandError(words, argv=["scontrol", "update"], code=1, stderr=words)
        for name in nodes:
            self.machines[name] = _changed(self.machines[name], state, reason)

    def config(self) -> Mapping[str, str]:
        """The settings."""
        self._answer()
        return dict(self.settings)

    def past_jobs(self, first: date, end: date, *, users: Sequence[str] = ()) -> list[PastJob]:
        """Remembered jobs that had not ended before the span, and were known before its end."""
        self._answer()
        begin, after = (int(datetime.combine(day, time(), timezone.utc).timestamp()) for day in (first, end))
        found = [
            job
            for job in self.past
            if job.submitted < after
            and (job.end is None or job.end >= begin)
            and (not users or job.user in users)
        ]
        return sorted(found, key=lambda job: (job.cluster, job.dbindex))

    def change(
        self, job_id: int, *, state: str, reason: str = "None", nodes: tuple[str, ...] | None = None
    ) -> None:
        """Let a job start, wait or end."""
        job = self.queue[job_id]
        self.queue[job_id] = replace(
            job, state=state, reason=reason, nodes=job.nodes if nodes is None else nodes
        )

    def _answer(self) -> None:
        if self.failure:
            raise self.failure

    def _job(self, options: Sequence[str]) -> Job:
        given = {option.name: option.value or "" for option in read_command_line(options).options}
        return Job(
            id=max(self.queue, default=100) + 1,
            name=given.get("job-name", "sbatch"),
            user=self.user,
            account=given.get("account", "nlp"),
            partition=given.get("partition", "gpu"),
            qos=given.get("qos", "normal"),
            state="PENDING",
            reason="Priority",
            comment=given.get("comment", ""),
        )


def _changed(node: Node, state: str, reason: str) -> Node:
    """A node after `scontrol update` of its state (scontrol(1), State=)."""
    flags = set(node.flags)
    if state in ("drain", "fail"):
        return replace(node, flags=tuple(sorted(flags | {state.upper()})), reason=reason)
    if state == "down":
        return replace(node, state="DOWN", reason=reason)
    if state == "power_down":
        return replace(node, flags=tuple(sorted(flags | {"POWERING_DOWN"})), reason=reason or node.reason)
    if state == "power_up":
        return replace(node, flags=tuple(sorted(flags | {"POWERING_UP"})))
    kept = tuple(sorted(flags - {"DRAIN", "FAIL"}))
    base = "IDLE" if state == "resume" and node.state == "DOWN" else node.state
    return replace(node, state=base, flags=kept, reason="")
