"""Whether a run of restarts shall grow: the rule of `hpctools.elastic.growth` with what is known here."""

from __future__ import annotations

from dataclasses import replace

from hpctools.elastic.deciding import Verdict
from hpctools.elastic.effects import Decided
from hpctools.elastic.growth import Facts, Rule
from hpctools.elastic.restart.limits import Limits
from hpctools.elastic.restart.record import Record

PAUSES = 5


class Growing:
    """What earlier changes of size cost and gained, and the rule's answer."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._rule = Rule(limits.patience)
        self._pauses: list[float] = []
        self._growths: list[tuple[float, float | None]] = []
        self._said: tuple[int, str] | None = None

    def paused(self, seconds: float) -> None:
        """A change of size has cost so much."""
        self._pauses = [*self._pauses, seconds][-PAUSES:]

    def shrank(self, now: float) -> None:
        """What the last growth gained is lost again."""
        if self._growths and self._growths[-1][1] is None:
            self._growths[-1] = (self._growths[-1][0], now)

    def decide(
        self, now: float, record: Record, possible: int, came: list[float]
    ) -> tuple[bool, Decided | None]:
        """Whether to grow, and the verdict if it is a new one; in workers, as the run's history counts.

        Args:
            record: the generation that is on, with all its ranks begun.
            possible: nodes of the next one.
            came: when those nodes came that do not belong to it.
        """
        verdict = self.judge(now, len(record.members), possible, record.times["began"], came, record.calls)
        key = (record.number, verdict.why)
        is_new, self._said = key != self._said, key
        if verdict.grow:
            self._growths.append((now, None))
        in_workers = replace(verdict, to=verdict.to * record.per_node)
        sizes = (len(record.members) * record.per_node, possible * record.per_node)
        return verdict.grow, Decided(*sizes, in_workers) if is_new else None

    def judge(
        self, now: float, world: int, possible: int, began: float, came: list[float], calls: int
    ) -> Verdict:
        """The rule's answer; a script that never asks for events is left alone for a while after a start.

        Args:
            world: nodes of the present generation, and `possible` those of the next.
            began: when the present generation's ranks were started.
            came: when those nodes came that do not belong to it.
            calls: what its ranks have asked so far.
        """
        snooze = self._limits.patience.snooze if calls else self._limits.blind_snooze
        if now < began + snooze:
            why = "a restart was a short time ago"
            if not calls:
                why += ", and the script asks for no events: it would lose what it has not saved"
            numbers = {"world": world, "possible": possible, "snooze_s": snooze}
            return Verdict(False, world, began + snooze, numbers, why)
        facts = Facts(
            first_ready=min(came, default=began),
            last_ready=max(came, default=began),
            restarted=began,
            pauses=tuple(self._pauses),
            growths=tuple(self._growths),
        )
        return self._rule.judge(now, world, possible, facts)
