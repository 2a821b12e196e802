"""What is saved before a run ends with which another one could go on: it is cancelled, or its time is up."""

from __future__ import annotations

import asyncio
import time

from hpctools.elastic.context import RunContext
from hpctools.elastic.peers import Outcome

LAST_SECONDS = 60.0
SHARE_OF_TIME = 4  # a run with a limit of two minutes trains for more than the first
SAVES_IN_A_ROW = 2  # one that has begun just before goes first
LIVE_RESERVE = 5.0  # seconds, until the limit is heeded and the step is done
AGAIN_SECONDS = 2.0  # one scancel may come as two signals
NEARLY_UP = "the run's time is nearly up"


class LastSave:
    """Has the state saved, and waits for that within the time that Slurm leaves.

    In live mode the library saves, and the training goes on until Slurm ends it. That begins a minute before
    the limit, or earlier where the last save took long: another one may just have begun. In restart mode only
    the script can save, and does so to end: those that ask are told of an event so long before the limit as
    the run's policy gives them, a minute at least, and the run ends then: at the limit, Slurm's SIGTERM would
    reach their processes in the middle of it. A script that does not ask goes on to the limit.
    """

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._saved_within: float | None = None  # how long before the limit; None: not yet
        self._cancelled: float | None = None  # when somebody wanted so first
        self._enough = asyncio.Event()

    def cancelled(self, at: float) -> None:
        """Somebody has cancelled the run; who did so again does not want to wait any longer.

        Args:
            at: when the signal came, and not when Slurm said why: that takes now longer, now less.
        """
        if self._cancelled is None:
            self._cancelled = at
        elif abs(at - self._cancelled) > AGAIN_SECONDS:  # what was asked later may be answered first
            self.hurry()

    def hurry(self) -> None:
        """Do not wait any longer."""
        self._enough.set()

    def heed_limit(self) -> None:
        """What is saved before Slurm ends the baseline job, another run can resume from."""
        end = self._run.replicas.end
        # A save that is quicker than the one before makes the lead shorter, and is not done again.
        lead = max(self._lead, self._saved_within or 0.0)
        if end is None or end - time.time() >= lead:
            self._saved_within = None  # the limit was raised, or another baseline job has one of its own
        elif self._run.restart is not None:
            if self._run.restart.asks:
                self._run.end(Outcome("cancelled", NEARLY_UP))
        elif self._saved_within is None:
            self._saved_within = lead
            self._run.order_save(NEARLY_UP, urgent=False, seconds=max(0.0, end - time.time()))

    async def keep(self, outcome: Outcome) -> None:
        """The run ends: who cancels it, or lets its time run out, may want to go on with it later."""
        run = self._run
        if outcome.state != "cancelled" or run.completed:
            return
        seconds = self._seconds(outcome)
        if run.restart is not None:
            saving = asyncio.ensure_future(run.restart.finish(outcome.message, seconds))
        else:
            run.membership.give_up_growth()  # it may have begun before we heard of the wish
            run.order_save(outcome.message, urgent=True, seconds=seconds, ends=True)
            saving = asyncio.ensure_future(_set(run.saves.answered))
        enough = asyncio.ensure_future(_set(self._enough))
        await asyncio.wait([saving, enough], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for each in (saving, enough):
            each.cancel()

    @property
    def _lead(self) -> float:
        """How long before its time is up."""
        restart = self._run.restart
        if restart is None:
            needed = SAVES_IN_A_ROW * self._run.save_seconds + LIVE_RESERVE
            return max(LAST_SECONDS, min(needed, self._longest))
        return min(max(LAST_SECONDS, restart.save_seconds), self._longest)

    @property
    def _longest(self) -> float:
        """A run shall train for most of the time that it was given, where that is known."""
        given, minutes = self._run.spec.time_limit_s, self._run.replicas.minutes
        if given is None and minutes is not None:
            given = 60.0 * minutes  # as the partition or the script says
        return float("inf") if given is None else given / SHARE_OF_TIME

    def _seconds(self, outcome: Outcome) -> float:
        """What there is: nobody has been sent a signal before the limit."""
        end, closing = self._run.replicas.end, self._run.spec.closing_seconds
        if outcome.message != NEARLY_UP or end is None:
            return closing
        return max(closing, end - time.time())


async def _set(event: asyncio.Event) -> None:
    await event.wait()
