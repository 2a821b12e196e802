"""How the generation that is on ends: all its ranks together, and what that is put down to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hpctools.elastic.growth import NEVER
from hpctools.elastic.growth_history import GrowthHistory
from hpctools.elastic.restart.agreement import Agreement
from hpctools.elastic.restart.blame import BadEnd
from hpctools.elastic.restart.budget import Budget, Charge, backoff, exhausted
from hpctools.elastic.restart.effects import Charged, Crashed, Finished
from hpctools.elastic.restart.limits import Limits
from hpctools.elastic.restart.record import Record
from hpctools.elastic.restart.telling import Telling


class Ending(Telling):
    """The part of `Generations` that ends ranks, and counts crashes.

    Attributes:
        restarts: after crashes.
    """

    def __init__(self, limits: Limits, history: GrowthHistory | None, charges: Iterable[Charge]) -> None:
        super().__init__(limits, history)
        self._budget = Budget(limits.period, charges)
        self.restarts = self._budget.ever
        self._not_before = NEVER  # when the next generation may begin
        self._closes_at: float | None = None  # when all ranks must have ended, because the run ends

    def _heed_agreement(self, record: Record, agreement: Agreement, now: float) -> None:
        if agreement.committed and not record.calls:
            self._end(now, self._limits.graceful)  # nobody has asked for events: they can be told only so
        elif agreement.committed:
            self._commit(record, agreement.call, now)

    def _note_bad_end(self, record: Record, agent: str, local: int, said: Sequence[str], at: float) -> None:
        """Among those that are told until all have ended is what the generation's end is put down to.

        What ends badly while the ranks are ended for another reason is not why.
        """
        if self.phase in ("running", "telling", "adopting") or record.bad:
            code, number = record.ranks[agent, local].code or 0, record.number_of(agent, local)
            record.bad.append(BadEnd(Crashed(agent, local, number, code, tuple(said)), at))

    def _end(self, now: float, seconds: float) -> None:
        """SIGTERM to all ranks that still run; SIGKILL after so many seconds or when a node has to go."""
        record = self._record
        if record is None or self.phase in ("ending", "over"):
            return
        self.phase, self._limit = "ending", None
        record.times.setdefault("told", now)
        left = seconds if self._closes_at is None else max(0.0, self._closes_at - now)
        for member in record.members:
            self._tell(member, "end", seconds=min(seconds, left))
        self._close_if_over(now)

    def _close_if_over(self, now: float) -> None:
        record = self._record
        if record is None or self.phase not in ("running", "telling", "ending") or not record.over():
            return
        asked = self.phase == "ending" or record.told
        record.times.setdefault("told", now)
        record.times.setdefault("ended", now)
        self._steps += record.calls
        self._last, self._record, self._agreement = record, None, None
        self._stopped = self._stopped or record  # one that ended before its first step prolongs the pause
        self._stopped.recovered |= record.recovered
        self.phase = "waiting"
        if self._closes_at is not None:
            self.phase = "over"
        elif record.well() and not asked:
            self.phase = "over"
            self._do(Finished())
        elif all(self._roster.stays(member) for member in record.members):
            self._charge(record, now)  # else it may be what follows from a node's going
        if len(self._roster.wanted()) < len(record.members):
            self._growing.shrank(now)

    def _charge(self, record: Record, now: float) -> None:
        """A generation is over; if that counts as a crash, say of whom or why."""
        crash, reason = record.blamed()
        self.effects += [crash] if crash is not None else []
        if not reason:
            return
        self.restarts += 1
        self._do(Charged(record.number, reason))
        used = self._budget.charge(now, record.number)
        self._not_before = max(self._not_before, now + backoff(used))
        broken = exhausted(self._limits, reason, used, self.restarts)
        if broken is not None:
            self.phase = "over"
            self._do(broken)
