"""Whether a run of restarts shall grow: the rule of `hpctools.elastic.growth` with what is known here.

That is how long replicas stay and what restarts take. A script tells neither its speed nor how far it is nor
when it saved last: a larger size is taken to be faster in proportion and the end to be far. (How often it
asks for events in a second is no speed: many a script makes its batch larger instead.) A script that asks for
events loses nothing; of another one half of what it has done since its start is taken to be lost, or half of
what lies between two checkpoints, if that is less.
"""

from __future__ import annotations

from dataclasses import replace

from hpctools.elastic.deciding import NOBODY, Verdict
from hpctools.elastic.effects import Decided
from hpctools.elastic.growth import PAYS, Rule
from hpctools.elastic.growth_history import GrowthHistory
from hpctools.elastic.restart.limits import Limits
from hpctools.elastic.restart.record import Record

SAVES_EACH_SECONDS = 1800.0  # what a script that says nothing is taken to do


class Growing:
    """What earlier changes of size cost and gained, and the rule's answer.

    Args:
        history: where that is noted; of the run, when somebody else notes there how long replicas stay.
    """

    def __init__(self, limits: Limits, history: GrowthHistory | None = None) -> None:
        self._limits = limits
        self._rule = Rule(limits.patience)
        self._history = history or GrowthHistory()
        self._said: tuple[int, str] | None = None

    def paused(self, seconds: float) -> None:
        """A change of size has cost so much."""
        self._history.paused(seconds)

    def shrank(self, now: float) -> None:
        """What the last growth gained is lost again."""
        self._history.shrank(now)

    def decide(
        self, now: float, record: Record, possible: int, came: list[float]
    ) -> tuple[bool, Decided | None]:
        """Whether to grow, and the verdict if it is a new one; in workers, as the run's history counts.

        Args:
            record: the generation that is on, with all its ranks begun.
            possible: nodes of the next one; when that is no larger, it is new that those have gone about whom
                a refusal was.
            came: when those nodes came that do not belong to it.
        """
        if possible <= len(record.members):
            return False, self._nobody_to_grow_by(record)
        verdict = self.judge(now, len(record.members), possible, record.times["began"], came, record.calls)
        key = (record.number, verdict.why)
        is_new, self._said = key != self._said, key
        if verdict.grow:
            self._history.grew(now)
        in_workers = replace(verdict, to=verdict.to * record.per_node)
        sizes = (len(record.members) * record.per_node, possible * record.per_node)
        return verdict.grow, Decided(*sizes, in_workers) if is_new else None

    def _nobody_to_grow_by(self, record: Record) -> Decided | None:
        """Else the refusal would go on to be shown; also that of an earlier generation."""
        if self._said is None or self._said[1] in (PAYS, NOBODY):
            return None
        self._said, world = (record.number, NOBODY), len(record.members) * record.per_node
        return Decided(world, world, Verdict(False, world, why=NOBODY))

    def judge(
        self, now: float, world: int, possible: int, began: float, came: list[float], calls: int
    ) -> Verdict:
        """The rule's answer; a script that never asks for events is left alone for a while after a start.

        After that newcomers must be expected to stay for long enough to make up for what it would lose.

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
        first, last = min(came, default=began), max(came, default=began)
        largest = self._limits.sizes[-1]
        facts = self._history.facts(now, first_ready=first, last_ready=last, largest=largest)
        unsaved = 0.0 if calls else min(now - began, SAVES_EACH_SECONDS) / 2
        return self._rule.judge(now, world, possible, replace(facts, restarted=began, unsaved=unsaved))
