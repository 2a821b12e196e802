"""What a new coordinator learns from the agents about the generation that is on: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hpctools.elastic.growth import NEVER
from hpctools.elastic.restart.blame import BadEnd
from hpctools.elastic.restart.effects import Crashed
from hpctools.elastic.restart.record import Rank, Record

ADOPT_SECONDS = 5.0
LAST_SECONDS = 1.0  # the same while the run ends, from the first on; later ones are told what the others were


@dataclass(frozen=True)
class StepsKnown:
    """What the coordinators before us have told of steps.

    Attributes:
        generation: number of the last one that they knew of.
        all: how many there were when one of them told of them last.
        before: by the number of the generation whose first step was seen last: those of the ones before it.
    """

    generation: int = 0
    all: int = 0
    before: Mapping[int, int] = field(default_factory=dict)

    def before_generation(self, number: int, calls: int) -> int:
        """The steps of all generations before one that has been found.

        Args:
            calls: its own so far. Where nothing better is known they count as told, though some may have
                been made while nobody coordinated.
        """
        known = {1: 0, **self.before}
        return known.get(number, max(0, self.all - calls))


class Adoption:
    """The generation that a coordinator which is gone had begun, as the agents report it one by one.

    Args:
        running: the first agent's report (`NodeRanks.report`).
        now: since when its members are awaited.
        counted: whether that coordinator has counted the generation's end as a crash already.

    Attributes:
        record: the generation.
        restarts: after crashes so far.
        committed: the call at which all ranks see an event; 0: that was not agreed.
        ending: whether its ranks were being ended.
    """

    def __init__(self, running: Mapping[str, Any], per_node: int, now: float, *, counted: bool) -> None:
        self.record = Record(int(running["generation"]), tuple(running["members"]), per_node)
        self.record.times = {"formed": now, "began": now}
        self.record.began = set(self.record.members)
        self.restarts = int(running["restarts"])
        self.committed = 0
        self.ending = False
        self._began = now
        self.record.counted = counted
        self._reported: set[str] = set()
        self._silent = set(self.record.members)  # they have never reported
        self._vanished: dict[str, float] = {}  # when; until they report again
        self._stopped: list[float] = []
        self._moved: list[float] = []
        self._ended: list[float] = []

    def add(self, agent: str, running: Mapping[str, Any], now: float) -> bool:
        """An agent has reported; whether it belongs to this generation."""
        if int(running["generation"]) != self.record.number or agent not in self.record.members:
            return False
        for local, (calls, told, code, said) in running["ranks"].items():
            self.record.ranks[agent, int(local)] = Rank(calls, told, code)
            ago, ours = running.get("ends", {}).get(local, (0.0, False))
            self._ended += [] if code is None else [now - ago]
            if code and not (told or ours):
                self._note_bad_end(agent, int(local), code, said, now - ago)
        for known, ago in ((self._stopped, running.get("stopped")), (self._moved, running.get("moved"))):
            known += [] if ago is None else [now - ago]
        self.committed = max(self.committed, int(running["committed"]))
        self.ending |= bool(running["ending"])
        self._reported.add(agent)
        self._silent.discard(agent)
        self._vanished.pop(agent, None)
        return True

    def note_end(self, at: float) -> None:
        """A rank that ran when its agent reported has ended: the training goes on no longer."""
        self._ended.append(at)
        self._stopped.append(at)

    def heard_again(self, agent: str, number: int, now: float, *, unforeseen: bool) -> None:
        """An agent has come, and says what it began last: one that was replaced knows of no rank any more."""
        if agent in self._reported and number < self.record.number:
            self.forget(agent, now, unforeseen=unforeseen)

    def forget(self, agent: str, now: float, *, unforeseen: bool) -> None:
        """An agent is gone; what still ran there is lost unless it comes back in time and reports again."""
        if not self.record.over(agent):
            self._reported.discard(agent)
        if unforeseen and agent in self.record.members:
            self._vanished[agent] = now

    def is_due(self, now: float, *, closing: bool) -> bool:
        """Whether to go on with those that have reported.

        Args:
            closing: whether the run ends, and the time in which ranks may save goes by.
        """
        return self.complete or now >= self._began + (LAST_SECONDS if closing else ADOPT_SECONDS)

    def give_up_missing(self) -> None:
        """Members that have not reported are lost, and what ran there is.

        Where it was agreed that all save, one that never did may have saved and gone, as a node does that
        has to: the others save, too.
        """
        for member in self.missing:
            self.record.drop(member, told=self.committed if member in self._silent else 0)

    def date_the_end(self) -> None:
        """The generation is over or ends: since when, as its agents know; what they do not is not told.

        We have seen nothing of it: it stopped while nobody coordinated, or before. Where no rank of those
        that report has ended, and others are lost, it stopped after the last step that one was seen to do.
        """
        record, reported = self.record, [each for each in self.record.ranks if each[0] in self._reported]
        stopped = min(self._stopped, default=max(self._moved, default=None))
        if stopped is None:
            record.is_dated = False
        else:
            record.times["told"] = stopped
        if self._ended and all(record.ranks[each].code is not None for each in reported):
            record.times["ended"] = max(self._ended)

    def _note_bad_end(self, agent: str, local: int, code: int, said: str, at: float) -> None:
        number = self.record.number_of(agent, local)
        self.record.bad.append(BadEnd(Crashed(agent, local, number, code, (said,)), at))

    @property
    def lost_at(self) -> float:
        """When a member was lost last, as far as we know; `NEVER`: none was.

        Where it was agreed that all save, a node had to go as likely as not: it may be the one that never
        reports, and that is not to be waited for.
        """
        silent = bool(self._silent) and not self.committed
        return max(self._vanished.values(), default=self._began if silent else NEVER)

    @property
    def running(self) -> list[str]:
        """Members that have reported, and whose ranks have not all ended."""
        return [each for each in self.record.members if each in self._reported and not self.record.over(each)]

    @property
    def complete(self) -> bool:
        """Whether all members have reported."""
        return self._reported == set(self.record.members)

    @property
    def missing(self) -> list[str]:
        """Members that have not reported."""
        return sorted(set(self.record.members) - self._reported)
