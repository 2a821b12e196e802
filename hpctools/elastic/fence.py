"""Whether we are still the run's coordinator: asked before everything that others can see."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hpctools.elastic.folder import RunFolder
from hpctools.errors import ElasticError
from hpctools.slurm.client import RunClient
from hpctools.slurm.types import Job, Partition

FRESH_SECONDS = 0.2


class Fence:
    """Holds as long as nobody has claimed a later term.

    A process that was stopped and goes on finds the answer it had too old, and asks again first.

    Args:
        term: ours.

    Attributes:
        lost: whether it was found not to hold; once it is lost it stays so.
    """

    def __init__(self, folder: RunFolder, term: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self.term = term
        self._clock = clock
        self._asked = -FRESH_SECONDS
        self.lost = False

    def holds(self, *, unseen: bool = True) -> bool:
        """Whether we are in office.

        May read the folder, which takes as long as its storage does; from any thread.

        Args:
            unseen: what to take for true of a folder that cannot be read, or in which our own claim is not:
                an empty folder in the place of what was mounted proves neither. What is written there
                reaches nobody then; Slurm, which is reached without it, may obey another one by now.
        """
        now = self._clock()
        if not self.lost and now - self._asked >= FRESH_SECONDS:
            try:
                current = self._folder.current_term()
            except ElasticError:
                return unseen
            if current < self.term:
                return unseen
            if current > self.term:
                self.lost = True  # and nothing else is ever set, so that threads may look at once
            self._asked = now
        return not self.lost


class FencedClient:
    """Slurm for a coordinator in office: one that is not any more submits and cancels nothing.

    Its methods raise as RunClient's do, and ElasticError when the fence does not hold.
    """

    def __init__(self, client: RunClient, fence: Fence) -> None:
        self._client = client
        self._fence = fence

    def submit(self, options: Sequence[str], script: Path, arguments: Sequence[str] = ()) -> int:
        """As RunClient.submit."""
        self._check()
        return self._client.submit(options, script, arguments)

    def cancel(self, job_ids: Sequence[int]) -> None:
        """As RunClient.cancel."""
        self._check()
        self._client.cancel(job_ids)

    def shorten(self, job_id: int, minutes: int) -> None:
        """As RunClient.shorten."""
        self._check()
        self._client.shorten(job_id, minutes)

    def exclude(self, job_id: int, nodes: Sequence[str]) -> None:
        """As RunClient.exclude."""
        self._check()
        self._client.exclude(job_id, nodes)

    def depend(self, job_id: int, dependency: str) -> None:
        """As RunClient.depend."""
        self._check()
        self._client.depend(job_id, dependency)

    def dependencies(self, user: str) -> Mapping[int, str]:
        """As RunClient.dependencies."""
        return self._client.dependencies(user)

    def ended_as(self, job_id: int) -> str:
        """As RunClient.ended_as."""
        return self._client.ended_as(job_id)

    def jobs(
        self, *, ids: Sequence[int] = (), user: str | None = None, nodes: Sequence[str] = ()
    ) -> list[Job]:
        """As RunClient.jobs."""
        return self._client.jobs(ids=ids, user=user, nodes=nodes)

    def partitions(self) -> list[Partition]:
        """As RunClient.partitions."""
        return self._client.partitions()

    def _check(self) -> None:
        if not self._fence.holds(unseen=False) and not self._fence.lost:
            raise ElasticError(
                "the run's folder cannot be read, and another coordinator may be in office",
                "Slurm is told nothing until it can; see what became of the file system on this node",
            )
        if self._fence.lost:
            raise ElasticError("another coordinator has taken this run over", "it goes on by itself")
