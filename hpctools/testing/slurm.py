"""A Slurm for tests: a controller in memory that implements SlurmClient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hpctools.errors import HpctoolsError
from hpctools.slurm.sbatch_options import read_command_line
from hpctools.slurm.types import Job, Partition


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
        queue: jobs by id; tests change it to let jobs start and end.
        submitted: every accepted script, in order.
        cancelled: every id that was ever cancelled, in order.
        failure: raised by every method when set: the controller is down, or refuses.
        on_submit: called with each job after it was accepted, for example to interrupt there.
    """

    user: str = "nlp1"
    known: tuple[Partition, ...] = (Partition("gpu", total_nodes=6, is_default=True),)
    queue: dict[int, Job] = field(default_factory=dict)
    submitted: list[Submitted] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)
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
