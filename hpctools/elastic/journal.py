"""What the coordinator writes into the run folder; a full or slow disk there must not hold up a training."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from hpctools.elastic.effects import Decided, Formed
from hpctools.elastic.folder import Event, RunFolder, RunStatus, utc_now
from hpctools.elastic.history import History, Moment
from hpctools.elastic.owed_events import OwedEvents
from hpctools.elastic.owed_jobs import OwedJobs, OwedTimeLimit
from hpctools.elastic.rate import Rate
from hpctools.elastic.scribe import Scribe
from hpctools.elastic.spec import RunSpec
from hpctools.elastic.time_limit import TimeLimit
from hpctools.errors import ElasticError

STATUS_SECONDS = 0.5
RATE_SECONDS = 5.0
UNMEASURED = 16  # resizes whose pause nobody has told yet, at most
NOWHERE = (0, -1)


class Office(Protocol):
    """Who knows whether we are still in office."""

    def holds(self) -> bool:
        """Whether we are."""
        ...


class Owed(Protocol):
    """What could not be written when it was told, of one kind."""

    @property
    def any(self) -> bool:
        """Whether something of it is still to be written."""
        ...

    def write(self) -> None:
        """Write it; raises ElasticError when that cannot be done yet."""
        ...


class FolderJournal:
    """Events, jobs and the status of a run; what cannot be written is said once on standard error.

    All of it is written when that can be done again.

    Args:
        fence: tells whether we may still write, asked just before each line; None: nobody else could.
        scribe: writes when it comes to it; None: everything is written at once.

    Attributes:
        status: how the run stands, as the next `flush` will write it.
    """

    def __init__(
        self, folder: RunFolder, spec: RunSpec, fence: Office | None = None, scribe: Scribe | None = None
    ) -> None:
        self._folder = folder
        self._fence = fence
        self._scribe = scribe
        self._history = History(folder)
        self._events, self._jobs, self._limit = OwedEvents(folder), OwedJobs(folder), OwedTimeLimit(folder)
        self._owed: tuple[Owed, ...] = (self._jobs, self._limit, self._events)
        self._complained = False
        self._written: RunStatus | None = None
        self._next_flush = self._next_try = 0.0
        self._resizes: dict[int, dict[str, Any]] = {}
        self._samples, self._steps = Rate(RATE_SECONDS), Rate(RATE_SECONDS)
        self._since = 0  # what is heard of an earlier generation is of a time before the run went back
        self._reached = NOWHERE
        self.status = RunStatus("starting", min_nodes=spec.min_nodes, max_nodes=spec.max_nodes)

    def event(self, event: str, **detail: Any) -> None:
        """Something happened."""
        self._write(partial(self._events.add, Event(utc_now(), event, detail)))

    def job(self, role: str, job_id: int) -> None:
        """A job was submitted, by us or by a coordinator before us, who may not have come to noting it."""
        self._write(partial(self._jobs.add, role, job_id))

    def time_limit(self, limit: TimeLimit) -> None:
        """How long the baseline job may go on has changed."""
        self._write(partial(self._limit.add, limit))

    def change(self, **values: Any) -> None:
        """Change the status; it is written by and by."""
        self.status = replace(self.status, **values)

    def formed(self, formed: Formed, nodes: Sequence[str]) -> None:
        """A generation is in force.

        Args:
            nodes: of its members, in rank order.
        """
        size = len(formed.members)
        distinct = tuple(dict.fromkeys(nodes))
        self.change(
            state="running", generation=formed.generation, world_size=size, nodes=distinct, message=""
        )
        for worker, node in zip(formed.members, nodes, strict=True):
            if worker not in formed.before:
                self.event("joined", worker=worker, node=node, generation=formed.generation)
        self._next_flush = 0.0  # whoever takes over may not give its number to another one
        self.stepped(formed.generation, formed.step)
        if formed.world_before:
            while len(self._resizes) >= UNMEASURED:
                self._tell_unmeasured(next(iter(self._resizes)))
            self._resizes[formed.generation] = {
                "from": formed.world_before,
                "to": size,
                "generation": formed.generation,
                "step": formed.step,
                "recovered": formed.recovered,
            }

    def counts(self, generation: int) -> bool:
        """Whether what a member of this generation tells is of the present, and not of what was given up."""
        return generation >= self._since

    def stepped(self, generation: int, step: int, **values: Any) -> bool:
        """A generation has done so many steps; within one they only grow, the next may begin further back.

        Args:
            values: further values of the status.

        Returns:
            False: more is known already.
        """
        if (generation, step) < max(self._reached, (self._since, -1)):
            return False
        self._reached = (generation, step)
        self.change(step=step, **values)
        return True

    def went_back(self, generation: int, step: int | None = None) -> None:
        """The training goes on from an earlier step.

        Args:
            generation: the first one that does.
            step: from which one; None: that is not known yet.
        """
        self._since, self._reached = generation, NOWHERE
        if step is not None:
            self.change(step=step)

    def restored(self, step: int) -> None:
        """A worker goes on from what was saved after a step; once a generation trains, that knows better."""
        if self._reached == NOWHERE:
            self.change(step=step)

    def resume(self) -> None:
        """Go on from what an earlier coordinator wrote."""
        try:
            self.status = self._folder.status() or self.status
        except (ElasticError, OSError) as error:
            self._complain(error)

    def waits(self, have: int, need: int) -> None:
        """The training waits for more workers."""
        self.event("waiting", have=have, need=need)
        self.stands(message=f"waits for workers: {need} are needed, {have} are there")

    def stands(self, **values: Any) -> None:
        """Nobody trains.

        Args:
            values: further values of the status.
        """
        rates = ("samples_per_second", "steps_per_second")
        known = [each for each in rates if getattr(self.status, each) is not None]
        self.change(world_size=0, nodes=(), **dict.fromkeys(known, 0.0), **values)

    def decided(self, decided: Decided) -> None:
        """A new verdict on growing."""
        verdict = decided.verdict
        self.event(
            "decision",
            grow=verdict.grow,
            world=decided.world,
            possible=decided.possible,
            to=verdict.to,
            why=verdict.why,
            numbers=dict(verdict.numbers),
        )

    def resized(self, measured: Mapping[str, Any]) -> None:
        """A worker has measured the pause of a resize.

        What came before it and was undone before it had enough steps, nobody measures any more.
        """
        for undone in [each for each in self._resizes if each < measured["generation"]]:
            self._tell_unmeasured(undone)
        resize = self._resizes.pop(measured["generation"], None)
        if resize is not None:
            keys = ("step", "pause_s", "normal_step_s", "phases", "moved", "late")
            resize |= {key: measured[key] for key in keys if key in measured}
            self.event("resize", **resize)
            self.change(last_resize={**resize, "time": utc_now()})

    def _tell_unmeasured(self, generation: int) -> None:
        """A resize whose pause is not known."""
        self.event("resize", **self._resizes.pop(generation))

    def progressed(self, now: float, samples: int) -> None:
        """The training has fed so many samples since it began; keeps the rate of the last seconds."""
        rate = self._samples.per_second(now, samples)
        if rate is not None and self.status.world_size:  # who waits parked tells how far it came, too
            self.change(samples_per_second=round(rate, 1))

    def asked(self, now: float, step: int) -> None:
        """Restart mode: the script has asked for events at so many steps; more of it is not known."""
        self.change(step=step)
        rate = self._steps.per_second(now, step)
        if rate is not None and self.status.world_size:
            self.change(steps_per_second=round(rate, 3))

    def flush(self, now: float, *, at_once: bool = False) -> None:
        """Write the status when it has changed, not more often than twice a second unless `at_once`.

        So is what could not be written when it was told: jobs, the time limit and events.
        """
        self._note(now, at_once)
        owed = [each for each in self._owed if each.any]
        if owed and (now >= self._next_try or at_once):
            self._next_try = now + STATUS_SECONDS
            for each in owed:
                self._write(each.write)
        if self.status == self._written or (now < self._next_flush and not at_once):
            return
        self._next_flush = now + STATUS_SECONDS
        self._write(partial(self._write_status, self.status))

    @property
    def owes(self) -> bool:
        """Whether an event, a job, the time limit or the run's state is still to be written; see `flush`."""
        told = self._written is not None and self._written.state == self.status.state
        return not told or any(each.any for each in self._owed)

    def _write_status(self, status: RunStatus) -> None:
        self._folder.write_status(replace(status, updated=utc_now()))
        self._written = status  # only now: what could not be written is written again

    def _note(self, now: float, at_once: bool) -> None:
        """Keep the run's history, once its training has begun."""
        status = self.status
        if status.generation == 0:
            return
        size, nodes = status.world_size, len(status.nodes)
        rates = status.samples_per_second, status.steps_per_second
        moment = Moment(utc_now(), status.step, size, nodes, status.loss, *rates)
        self._write(partial(self._history.note, now, moment, at_once=at_once))

    def _write(self, work: Callable[[], None]) -> None:
        if self._scribe is None:
            self._attempt(work)
        else:
            self._scribe.put(partial(self._attempt, work))

    def _attempt(self, work: Callable[[], None]) -> None:
        if self._fence is not None and not self._fence.holds():
            return
        try:
            work()
        except ElasticError as error:
            self._complain(error)

    def _complain(self, error: Exception) -> None:
        if not self._complained:
            self._complained = True
            print(f"elastic: {error}; the training goes on", file=sys.stderr, flush=True)
