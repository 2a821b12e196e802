"""The generation that is on: what others see of it and are told, what changes cost, the way to its agents."""

from __future__ import annotations

from typing import Any

from hpctools.elastic.effects import Waiting
from hpctools.elastic.growth_history import GrowthHistory
from hpctools.elastic.restart.effects import Effect, Tell
from hpctools.elastic.restart.growing import Growing
from hpctools.elastic.restart.limits import Limits
from hpctools.elastic.restart.record import Record
from hpctools.elastic.restart.roster import Roster


class Present:
    """What `Generations` knows, and what can be asked of it.

    Attributes:
        effects: what has to be done, oldest first; the caller takes them out.
        phase: `waiting` (for nodes), `adopting` (a new coordinator learns who runs), `offering` (the first
            node chooses a port), `running`, `telling` (an event is on its way to the ranks), `ending` or
            `over`.
        generation: number of the last generation; 0 before the first.
    """

    def __init__(self, limits: Limits, history: GrowthHistory | None) -> None:
        self.effects: list[Effect] = []
        self.phase = "waiting"
        self.generation = 0
        self._limits = limits
        self._roster = Roster(limits)
        self._growing = Growing(limits, history)
        self._record: Record | None = None  # the generation that is on
        self._last: Record | None = None  # the one before it
        self._stopped: Record | None = None  # the last whose pause, from its end to the next step, is open
        self._steps = 0  # calls in generations before this one
        self._waits: Waiting | None = None

    @property
    def members(self) -> tuple[str, ...]:
        """Agents of the generation that is on, in rank order."""
        return self._record.members if self._record is not None else ()

    @property
    def step(self) -> int:
        """Calls of `elastic_event_detected` so far; what was repeated after a crash counts twice."""
        return self._steps + (self._record.calls if self._record is not None else 0)

    @property
    def calls(self) -> dict[tuple[str, int], int]:
        """Calls of each rank that runs in this generation, by agent and place on its node."""
        record = self._record
        ranks = record.ranks if record is not None else {}
        return {place: rank.calls for place, rank in ranks.items() if rank.code is None}

    def _say_that_we_wait(self) -> None:
        per_node = self._limits.per_node
        waits = Waiting(self._roster.staying * per_node, self._limits.sizes[0] * per_node)
        if self._last is not None and waits != self._waits:
            self._waits = waits
            self._do(waits)

    def _measure(self, now: float) -> None:
        """When the first step after a change is done, or cannot be seen, the pause is known."""
        record, last = self._record, self._stopped
        if record is None or last is None or "began" not in record.times:
            return
        if last.calls and "first" not in record.times:
            return
        self._stopped = None
        if not last.is_dated:
            return
        resized = record.resized(last, self._steps)
        self._growing.paused(resized.cost)
        self._do(resized)

    def _on(self, agent: str, generation: int) -> Record | None:
        """The generation that is on, if it is that one and the agent belongs to it."""
        record = self._record
        fits = record is not None and record.number == generation and agent in record.members
        return record if fits else None

    def _tell(self, agent: str, what: str, **fields: Any) -> None:
        if agent in self._roster:
            # Of a later one we may know by now, from an agent that came late.
            number = self.generation if self._record is None else self._record.number
            message = {"kind": "ranks", "do": what, "generation": number, **fields}
            self._do(Tell(agent, message))

    def _do(self, effect: Effect) -> None:
        self.effects.append(effect)
