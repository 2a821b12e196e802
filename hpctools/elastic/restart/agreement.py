"""At which call of `elastic_event_detected` all ranks see an event: pure.

Two phases, because ranks go on calling while the agents talk. A call N that no rank has reached is proposed;
each agent binds its ranks to it, or refuses because one of them is there already, and then a later call is
proposed. A bound rank that comes to N waits there. When all are bound, N is committed and all see the event
there; nobody can have gone past it. Source of the pattern: two-phase commit (Gray 1978); the slot's lock in
`events` makes "bound" certain.
"""

from __future__ import annotations

from collections.abc import Iterable

MESSAGE_SECONDS = 0.1


class Agreement:
    """One event's way to all ranks.

    Args:
        members: the agents of the generation.

    Attributes:
        call: the proposed call; 0 before the first proposal.
        committed: whether all ranks see the event there.
    """

    def __init__(self, members: Iterable[str]) -> None:
        self.call = 0
        self.committed = False
        self._members = frozenset(members)
        self._bound: set[str] = set()
        self._attempts = 0

    def propose(self, calls: int, rate: float) -> int:
        """The next call to propose: as far ahead as ranks come while agents talk; one where steps are long.

        Args:
            calls: the most calls that any rank is known to have made.
            rate: calls per second of one rank; 0 when not known.
        """
        ahead = 1 + round(rate * MESSAGE_SECONDS * (1 << min(self._attempts, 10)))
        self._attempts += 1
        self._bound.clear()
        self.call = max(calls, self.call) + ahead
        return self.call

    def answered(self, member: str, call: int, *, bound: bool) -> bool:
        """An agent has bound its ranks, or one of them was there already.

        Returns:
            whether another call has to be proposed.
        """
        if call != self.call or self.committed or member not in self._members:
            return False
        if not bound:
            return True
        self._bound.add(member)
        self.committed = self._bound == self._members
        return False

    def forget(self, member: str) -> None:
        """An agent is gone, and the others do not wait for its answer."""
        self._members -= {member}
        self._bound.discard(member)
        self.committed = self.committed or self._bound == self._members
