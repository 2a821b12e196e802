"""A generation on its way into force, as `Membership` keeps it, and who gives the state to whom in it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpctools.elastic.deciding import Verdict

NO_STATE = -1
LEAD_SECONDS = 0.2
LEAD_RATE, HURRY_RATE = 1.0, 2.0
"""Steps a second, at least, with which a change has a lead; the second where somebody waits to go."""
Place = Mapping[str, int]
"""Where a generation begins in the training's data; the coordinator passes it on."""


@dataclass
class Member:
    """A worker that is ready to train, or trains.

    Attributes:
        order: its place among the ranks; the first baseline's come first.
        leaving: whether it has to go soon.
        has_state: whether it trained once and can give its state, which may be an old one.
        stale: whether it was away from the training, so that its state is only taken when nobody has another.
    """

    order: tuple[int, ...]
    leaving: bool = False
    has_state: bool = False
    stale: bool = False


@dataclass
class Forming:
    """A generation on its way.

    Attributes:
        members: in rank order; none while too few are there, and all that hold the state wait parked.
        planned: whether the present generation trains until all agree to switch; else all have parked.
        linked: members that are connected with all others.
        rounds: of how many rounds the state of each of them was the result when it said so.
        parked: of how many rounds each worker's state is the result; -1: it has none.
        committed: whether the members were told to switch.
        admitted: whether those that join were let in, because the first of the others was switching.
        switched: members that train in it.
        step: completed steps when it began.
    """

    number: int
    members: tuple[str, ...]
    planned: bool
    linked: set[str] = field(default_factory=set)
    rounds: dict[str, int] = field(default_factory=dict)
    parked: dict[str, int] = field(default_factory=dict)
    committed: bool = False
    admitted: bool = False
    switched: set[str] = field(default_factory=set)
    step: int = 0

    @property
    def waits(self) -> bool:
        """Whether it is only a wait for more workers."""
        return not self.members

    def note_linked(self, worker: str, rounds: int | None) -> None:
        """A member is connected with all others; of an earlier release it does not say how far it is."""
        self.linked.add(worker)
        self.rounds |= {} if rounds is None else {worker: rounds}

    def switch_at(self, present: Collection[str], lead: int) -> int:
        """After how many rounds all switch: so many after the one in work; 0: nobody knows."""
        told = [self.rounds[each] for each in present if each in self.rounds]
        return max(told) + 1 + lead if told else 0

    @property
    def is_linked(self) -> bool:
        """Whether all members are connected with each other."""
        return self.linked >= set(self.members)

    @property
    def is_parked(self) -> bool:
        """Whether all members have said what their state is."""
        return self.is_parked_by(self.members)

    def is_parked_by(self, workers: Collection[str]) -> bool:
        """Whether all of these have said what their state is."""
        return set(self.parked) >= set(workers)

    @property
    def is_complete(self) -> bool:
        """Whether all members train in it."""
        return self.switched >= set(self.members)


def lead_steps(rate: float, *, is_called: bool) -> int:
    """How many steps after the one in work a planned change comes, so that all hear of it in time.

    Args:
        rate: steps a second; 0: not known.
        is_called: whether somebody waits to go, who has no time for long steps.
    """
    is_quick = rate >= (HURRY_RATE if is_called else LEAD_RATE)
    return math.ceil(rate * LEAD_SECONDS) if is_quick else 0


def not_yet(now: float, world: int, possible: int, until: float) -> Verdict:
    """The run does not grow before then, since its last attempt came to nothing."""
    numbers = {"world": world, "possible": possible, "wait_s": round(until - now, 3)}
    return Verdict(False, world, until, numbers, "a worker could not link with the others just now")


def receivers(transfers: Mapping[str, str], donor: str, members: Sequence[str]) -> list[int]:
    """Ranks to which a member sends the state.

    Args:
        transfers: who receives from whom.
    """
    return [members.index(receiver) for receiver, sender in transfers.items() if sender == donor]


def shared_out(receiving: Sequence[str], donors: Sequence[str]) -> dict[str, str]:
    """Who receives from whom; every donor serves its share."""
    return {receiver: donors[place % len(donors)] for place, receiver in enumerate(receiving)}


def planned_transfers(forming: Forming, present: Sequence[str]) -> dict[str, str]:
    """Who receives the state from whom when a planned generation begins.

    Args:
        present: members of the generation in force.
    """
    donors = [each for each in forming.members if each in present]
    return shared_out([each for each in forming.members if each not in present], donors)


def recovery_donors(forming: Forming, stale: set[str]) -> list[str]:
    """Members whose state the others get: those that are furthest, of those that were there all along.

    Nobody when no member has a state.
    """
    held = {each: forming.parked[each] for each in forming.members if forming.parked[each] > NO_STATE}
    current = {each: step for each, step in held.items() if each not in stale} or held
    furthest = max(current.values(), default=NO_STATE)
    return [each for each in current if current[each] == furthest]


def recovery_commits(forming: Forming, donors: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What each member of a recovery is told."""
    transfers = shared_out([each for each in forming.members if each not in donors], donors)
    return {
        member: {
            "generation": forming.number,
            "agree": False,
            "report": member == donors[0],
            "send_to": receivers(transfers, member, forming.members),
            "receive_from": forming.members.index(transfers[member]) if member in transfers else None,
            "moves": bool(transfers),
        }
        for member in forming.members
    }
