"""What is known of one generation of ranks: plain state of `Generations`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hpctools.elastic.restart.blame import BadEnd, cause_of, reason_of
from hpctools.elastic.restart.effects import Crashed, Resized

RATE_SECONDS = 0.2


@dataclass
class Rank:
    """One process of a generation.

    Attributes:
        calls: of `elastic_event_detected`, as far as its agent has said.
        told: the call at which it was told of an event; 0: it was not.
        code: its exit code; None while it runs.
    """

    calls: int = 0
    told: int = 0
    code: int | None = None


@dataclass
class Record:
    """One generation.

    Attributes:
        members: agents in rank order.
        ranks: by agent and place on its node.
        began: agents that have started all their ranks.
        times: of what happened, by name: `formed`, `began`, `first` (call), `told` or `lost`, `ended`.
        bad: ranks that ended badly and by themselves, on nodes that stay; as they were told.
        charged: what somebody that watches the run puts its end down to; empty: nobody has said.
        counted: whether a coordinator before us has counted its end as a crash already.
        recovered: whether it ended without a plan.
        is_dated: whether it is known when its training stopped.
        rate: calls per second of one rank; 0 when not known.
        most: calls of some rank, as its agent's answer to a proposal said.
    """

    number: int
    members: tuple[str, ...]
    per_node: int
    ranks: dict[tuple[str, int], Rank] = field(default_factory=dict)
    began: set[str] = field(default_factory=set)
    times: dict[str, float] = field(default_factory=dict)
    bad: list[BadEnd] = field(default_factory=list)
    charged: str = ""
    counted: bool = False
    recovered: bool = False
    is_dated: bool = True
    _observed: tuple[float, int] | None = None
    rate: float = 0.0
    most: int = 0

    def __post_init__(self) -> None:
        for member in self.members:
            for local in range(self.per_node):
                self.ranks.setdefault((member, local), Rank())

    @property
    def calls(self) -> int:
        """The most that any rank has made."""
        return max(self.most, max((rank.calls for rank in self.ranks.values()), default=0))

    @property
    def fewest(self) -> int:
        """The fewest calls of those ranks that ask at all: one alone may ask for all of them."""
        return min((rank.calls for rank in self.ranks.values() if rank.calls), default=self.calls)

    @property
    def told(self) -> bool:
        """Whether a rank has been told of an event."""
        return any(rank.told for rank in self.ranks.values())

    def over(self, agent: str | None = None) -> bool:
        """Whether all ranks, or those of one agent, have ended."""
        return all(rank.code is not None for (of, _), rank in self.ranks.items() if agent in (None, of))

    def well(self, agent: str | None = None) -> bool:
        """Whether all ranks, or those of one agent, have ended with exit code 0."""
        return all(rank.code == 0 for (of, _), rank in self.ranks.items() if agent in (None, of))

    @property
    def broken(self) -> bool:
        """Whether a rank has ended badly that was not told of an event: the others wait for it in vain."""
        return any(rank.code and not rank.told for rank in self.ranks.values())

    def blamed(self) -> tuple[Crashed | None, str]:
        """All ranks have ended: whose crash that was, if one's, and why it counts; empty: it does not.

        Who was told of an event was to end: with what exit code does not count.
        """
        if self.charged or self.counted or not self.bad:
            return None, self.charged
        untold = [each for each in self.bad if not self.ranks[each.crashed.agent, each.crashed.local].told]
        crash = cause_of(untold or self.bad)
        return crash, reason_of(crash) if untold else ""

    def drop(self, agent: str, told: int = 0) -> None:
        """The agent is gone and its ranks with it.

        Args:
            told: the call at which they may have been told of an event; 0: they were not.
        """
        for (of, _), rank in self.ranks.items():
            if of == agent and rank.code is None:
                rank.code, rank.told = -9, rank.told or told

    def heard(self, agent: str, ranks: Mapping[str, Any], now: float) -> None:
        """Its agent, whose line was broken, tells how its ranks stand (`NodeRanks.report`)."""
        self.observe(agent, {local: (calls, told) for local, (calls, told, _, _) in ranks.items()}, now)
        for local, (_, _, code, _) in ranks.items():
            self.ranks[agent, int(local)].code = code

    def number_of(self, agent: str, local: int) -> int:
        """The global rank."""
        return self.members.index(agent) * self.per_node + local

    def observe(self, agent: str, counts: Mapping[str, Any], now: float) -> None:
        """An agent's ranks have made so many calls: by place, the calls and the one that told."""
        for local, (calls, told) in counts.items():
            rank = self.ranks[agent, int(local)]
            rank.calls, rank.told = max(rank.calls, calls), rank.told or told
        most = self.calls
        if most:
            self.times.setdefault("first", now)
        if self._observed is None or most == 0:
            self._observed = (now, most)
        elif now - self._observed[0] >= RATE_SECONDS and most > self._observed[1]:
            self.rate = (most - self._observed[1]) / (now - self._observed[0])
            self._observed = (now, most)

    def resized(self, last: Record, steps: int) -> Resized:
        """How long it took from the generation before to this one, whose ranks have begun.

        Args:
            steps: calls in all generations before this one.
        """
        told, ended, began = last.times["told"], last.times["ended"], self.times["began"]
        first, formed = self.times.get("first", began), self.times.get("formed", ended)
        return Resized(
            generation=self.number,
            before=len(last.ranks),
            after=len(self.ranks),
            recovered=last.recovered,
            pause=first - told,
            step=steps,
            normal_step=1 / last.rate if last.rate else 0.0,
            phases={
                "save": ended - told,
                "wait": formed - ended,
                "start": began - formed,
                "first": first - began,
            },
        )
