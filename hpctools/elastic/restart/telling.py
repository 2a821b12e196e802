"""How the ranks of the generation that is on are told of an event: all at one call, and until when."""

from __future__ import annotations

from hpctools.elastic.growth_history import GrowthHistory
from hpctools.elastic.restart.agreement import Agreement
from hpctools.elastic.restart.limits import Limits
from hpctools.elastic.restart.present import Present
from hpctools.elastic.restart.record import Record


class Telling(Present):
    """The part of `Generations` that tells ranks that they shall save and end."""

    def __init__(self, limits: Limits, history: GrowthHistory | None) -> None:
        super().__init__(limits, history)
        self._agreement: Agreement | None = None
        self._limit: float | None = None  # when patience with a planned end is over

    def _announce(self, now: float) -> None:
        """Tell all ranks at one call that they shall save and end."""
        record = self._record
        if record is None:
            return
        self.phase, self._limit = "telling", None
        self._agreement = Agreement(each for each in record.members if not record.over(each))
        self._propose(record, self._agreement, record.calls)

    def _propose(self, record: Record, agreement: Agreement, calls: int) -> None:
        call = agreement.propose(calls, record.rate)
        for member in record.members:
            self._tell(member, "propose", call=call)

    def _commit(self, record: Record, call: int, now: float) -> None:
        """All see the event at this call; how long that takes is a matter of the steps until then."""
        for member in record.members:
            self._tell(member, "commit", call=call)
        record.times.setdefault("told", now)
        steps = call - record.fewest
        self._end_by(now + self._limits.graceful + (steps / record.rate if record.rate else 0.0))

    def _end_by(self, limit: float) -> None:
        """Patience with a planned end is over then, unless it is before."""
        self._limit = limit if self._limit is None else min(self._limit, limit)
