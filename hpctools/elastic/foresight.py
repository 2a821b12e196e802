"""What a worker will be fed first in the next generation, loaded before that is in force.

The coordinator says after which step all switch (`Commit.at`). Where steps are short that is the first that
ends 0.2 s after the one in work, and whoever joins hears of it at the boundary before. So the first batches
of all are loaded beside that step, and not while everybody waits for whoever has nothing to do yet. Before it
is known, and where there is no such step, those that stay load ahead from the moment on that they know of a
smaller group.

A member that hears of the step too late puts the switch off, for all: they find it in the headers of their
exchange. Then some of what was loaded ahead was so in vain, and the next step is announced in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hpctools.elastic.group import Group
from hpctools.elastic.orders import Commit, Orders, Seat
from hpctools.elastic.session import Foreseeing, Transferable

UNSURE_STEPS = 5
"""For how many steps a smaller group that nobody has committed is loaded ahead for."""


class Foresight:
    """One worker's.

    Args:
        groups: those that are linked and not in force, by generation.
        say: sends a message to the coordinator.
    """

    def __init__(
        self, state: Transferable, orders: Orders, groups: Mapping[int, Group], say: Callable[..., None]
    ) -> None:
        self._state = state
        self._orders = orders
        self._groups = groups
        self._say = say
        self._agreed = 0
        self._announced = (0, 0)
        self._looked_at = (0, 0)

    def agree(self, generation: int, standing: int) -> None:
        """All members switch to a generation after this step.

        Args:
            standing: the generation in force.
        """
        if generation > max(self._agreed, standing):
            self._agreed = generation

    def switches_to(self, standing: int) -> int | None:
        """The generation to switch to between this step and the next; None: none yet.

        Args:
            standing: the generation in force.
        """
        if self._agreed > standing:
            return self._agreed
        commit = self._orders.agreeing
        if commit is not None and commit.generation > standing:
            self._announce(commit)
        return None

    def coming(self, present: Group) -> Seat | None:
        """Our place in what may come into force after this step, unless it was loaded for already.

        It is looked at from the moment on that a smaller group is formed, for some steps: it may be given up
        without a word. A larger one comes later as a rule.

        Args:
            present: the group in force.
        """
        orders, seat = self._orders, self._orders.seat
        if seat.number <= max(present.number, orders.recover) or seat.number < orders.seen:
            return None  # it is in force, its members wait for it, or it was given up
        commit = orders.commits.get(seat.number)
        if commit is not None:
            completed = self._state._completed
            is_due = commit.agree and completed + 1 >= commit.at
            return seat if is_due and self._announced != (commit.generation, completed) else None
        if self._looked_at[0] != seat.number:
            self._looked_at = seat.number, self._state._completed + UNSURE_STEPS
        return seat if seat.world < present.world and self._state._completed < self._looked_at[1] else None

    @property
    def is_due(self) -> bool:
        """Whether it was said where a generation will begin that lets us in."""
        return self._orders.prepared is not None

    def prepare(self) -> None:
        """Load ahead for that generation."""
        prepared, self._orders.prepared = self._orders.prepared, None
        if prepared is not None:
            self.begins(int(prepared["generation"]), prepared.get("place"))

    def begins(self, generation: int, place: Mapping[str, int] | None = None) -> None:
        """A generation begins at a place in the data; None: where we are."""
        group = self._groups.get(generation)
        if group is not None and isinstance(self._state, Foreseeing):
            self._state._foresee(group, place)

    def described(self, commit: Commit, ahead: int = 0) -> dict[str, Any]:
        """What is told of a generation that begins after so many steps from now on."""
        state = self._state
        place = state._place(ahead) if isinstance(state, Foreseeing) else None
        return {"generation": commit.generation, "place": place}

    def _announce(self, commit: Commit) -> None:
        """If all are to switch after the step that comes now, or somebody has put that off."""
        completed = self._state._completed
        if not 0 < commit.at <= completed + 1:
            return
        self._announced, there = (commit.generation, completed), self.described(commit, ahead=1)
        if commit.report:
            self._say("place", **there)
        if not commit.leave:
            self.begins(**there)
