"""A generation on its way into force, as `Membership` keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Member:
    """A worker that is ready to train, or trains.

    Attributes:
        order: its place among the ranks; the baseline's come first.
        leaving: whether it has to go soon.
    """

    order: tuple[int, ...]
    leaving: bool = False


@dataclass
class Forming:
    """A generation on its way.

    Attributes:
        members: in rank order.
        planned: whether the present generation trains until all agree to switch; else all have parked.
        linked: members that are connected with all others.
        parked: of how many steps each member's state is the result; -1: it has none.
        committed: whether the members were told to switch.
        admitted: whether those that join were let in, because the first of the others was switching.
        switched: members that train in it.
        step: completed steps when it began.
    """

    number: int
    members: tuple[str, ...]
    planned: bool
    linked: set[str] = field(default_factory=set)
    parked: dict[str, int] = field(default_factory=dict)
    committed: bool = False
    admitted: bool = False
    switched: set[str] = field(default_factory=set)
    step: int = 0


def receivers(transfers: dict[str, str], donor: str, members: Sequence[str]) -> list[int]:
    """Ranks to which a member sends the state.

    Args:
        transfers: who receives from whom.
    """
    return [members.index(receiver) for receiver, sender in transfers.items() if sender == donor]
