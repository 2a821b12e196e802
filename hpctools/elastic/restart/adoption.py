"""What a new coordinator learns from the agents about the generation that is on: pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpctools.elastic.restart.effects import Crashed
from hpctools.elastic.restart.record import Rank, Record

ADOPT_SECONDS = 5.0


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
        self.record.times = {"formed": now, "began": now, "measured": now}
        self.record.began = set(self.record.members)
        self.restarts = int(running["restarts"])
        self.committed = 0
        self.ending = False
        self.until = now + ADOPT_SECONDS
        self._counted = counted
        self._reported: set[str] = set()

    def add(self, agent: str, running: Mapping[str, Any]) -> bool:
        """An agent has reported; whether it belongs to this generation."""
        if int(running["generation"]) != self.record.number or agent not in self.record.members:
            return False
        for local, (calls, told, code, said) in running["ranks"].items():
            self.record.ranks[agent, int(local)] = Rank(calls, told, code)
            if code and not told and self.record.crash is None:
                number = self.record.number_of(agent, int(local))
                self.record.crash = Crashed(agent, int(local), number, code, (said,))
                why = f"rank {number} ended with exit code {code}: {said}"
                self.record.charged = "" if self._counted else why
        self.committed = max(self.committed, int(running["committed"]))
        self.ending |= bool(running["ending"])
        self._reported.add(agent)
        return True

    @property
    def complete(self) -> bool:
        """Whether all members have reported."""
        return self._reported == set(self.record.members)

    @property
    def missing(self) -> list[str]:
        """Members that have not reported."""
        return sorted(set(self.record.members) - self._reported)
