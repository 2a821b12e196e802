"""After which step a worker switches, and what it loads ahead of that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from hpctools.elastic.foresight import UNSURE_STEPS, Foresight
from hpctools.elastic.group import Group
from hpctools.elastic.orders import Orders, Seat

STANDING, NEXT = 3, 4
GROUP = Group(NEXT, 1, 2, None)
Place = Mapping[str, int]


class State:
    """A training that can load ahead."""

    def __init__(self, completed: int) -> None:
        self._completed = completed
        self.foreseen: list[tuple[Group, Place | None]] = []

    def _place(self, ahead: int) -> Place:
        return {"step": self._completed + ahead}

    def _foresee(self, group: Group, place: Place | None) -> None:
        self.foreseen.append((group, place))


class Plain:
    """One that cannot."""

    _completed = 10


class Made:
    """A worker's foresight, and all around it."""

    def __init__(self, state: Any) -> None:
        self.orders, self.state = Orders(), state
        self.groups = {NEXT: GROUP}
        self.said: list[dict[str, Any]] = []
        self.foresight = Foresight(
            state, self.orders, self.groups, lambda kind, **fields: self.said.append({"kind": kind, **fields})
        )

    def commit(self, **more: Any) -> None:
        self.orders.note({"kind": "commit", "generation": NEXT, "agree": True, **more})

    def step(self, agreed: int) -> int | None:
        """All have exchanged, and this is the way to the next step."""
        self.foresight.agree(agreed, STANDING)
        self.state._completed += 1
        return self.foresight.switches_to(STANDING)


@pytest.fixture
def made() -> Made:
    return Made(State(10))


def test_all_switch_after_the_step_in_which_they_agree(made: Made) -> None:
    made.commit()
    assert made.step(agreed=STANDING) is None
    assert made.step(agreed=NEXT) == NEXT
    assert made.said == made.state.foreseen == []


def test_nobody_agrees_before_the_step_that_was_named_nor_later_than_that(made: Made) -> None:
    assert made.orders.ready_for(10) == 0
    made.commit(at=12)
    assert [made.orders.ready_for(completed) for completed in (10, 11, 12)] == [0, NEXT, NEXT]
    made.commit()
    assert made.orders.ready_for(10) == NEXT, "as soon as all have heard"


def test_the_step_that_was_named_is_announced_when_it_comes(made: Made) -> None:
    made.commit(at=13, report=True)
    assert made.step(agreed=STANDING) is None
    assert made.said == made.state.foreseen == []
    assert made.step(agreed=STANDING) is None
    assert made.said == [{"kind": "place", "generation": NEXT, "place": {"step": 13}}]
    assert made.state.foreseen == [(GROUP, {"step": 13})]
    assert made.step(agreed=NEXT) == NEXT
    assert made.state._completed == 13
    assert len(made.said) == len(made.state.foreseen) == 1


@pytest.mark.parametrize("at", [10, 11])
def test_who_hears_too_late_announces_the_next_step(made: Made, at: int) -> None:
    """All others know already, as a rule."""
    made.commit(at=at, report=True)
    assert made.step(agreed=STANDING) is None
    assert made.said == [{"kind": "place", "generation": NEXT, "place": {"step": 12}}]
    assert made.state.foreseen == [(GROUP, {"step": 12})]
    assert made.step(agreed=NEXT) == NEXT


def test_what_another_one_puts_off_is_announced_again(made: Made) -> None:
    """Those that join would load for a step that is over, and ours of the next one would be thrown away."""
    made.commit(at=12, report=True)
    assert [made.step(agreed=STANDING) for _ in range(2)] == [None] * 2
    assert made.step(agreed=NEXT) == NEXT
    assert [each["place"] for each in made.said] == [{"step": 12}, {"step": 13}]
    assert made.state.foreseen == [(GROUP, {"step": 12}), (GROUP, {"step": 13})]


def test_nothing_is_announced_of_an_order_that_names_no_step(made: Made) -> None:
    """The coordinator is of an earlier release."""
    made.commit(report=True)
    assert made.step(agreed=STANDING) is None
    assert made.step(agreed=NEXT) == NEXT
    assert made.said == made.state.foreseen == []


def test_one_of_them_announces_it_and_who_does_not_take_part_loads_nothing(made: Made) -> None:
    made.commit(at=12, leave=True, stay=True)
    assert made.step(agreed=STANDING) is None
    assert made.said == made.state.foreseen == []
    assert made.step(agreed=NEXT) == NEXT


def test_an_agreement_of_before_a_recovery_is_void(made: Made) -> None:
    made.commit(at=12, report=True)
    assert made.foresight.switches_to(standing=NEXT + 1) is None
    made.foresight.agree(NEXT, standing=NEXT + 1)
    made.state._completed += 1
    assert made.foresight.switches_to(standing=NEXT + 1) is None
    assert made.said == []


def test_what_others_agree_on_that_is_older_than_what_is_in_force_is_nothing(made: Made) -> None:
    """Those that came by a recovery never heard of it."""
    made.foresight.agree(STANDING - 1, STANDING)
    assert made.foresight.switches_to(STANDING) is None


PRESENT = Group(STANDING, 1, 3, None)
SMALLER, LARGER = Seat(NEXT, 1, 2), Seat(NEXT, 1, 4)


def formed(seat: Seat, *, recover: bool = False) -> dict[str, Any]:
    """How the coordinator says so."""
    place = {"generation": seat.number, "rank": seat.rank, "world": seat.world}
    return {"kind": "form", **place, "recover": recover}


def test_those_that_stay_look_ahead_from_the_forming_of_a_smaller_group_on(made: Made) -> None:
    assert made.foresight.coming(PRESENT) is None
    made.orders.note(formed(SMALLER))
    assert made.foresight.coming(PRESENT) == SMALLER
    made.commit()
    assert made.foresight.coming(PRESENT) == SMALLER
    assert made.foresight.coming(GROUP) is None, "it is in force"


@pytest.mark.parametrize("later", [formed(Seat(NEXT + 1, 0, 2)), {"kind": "commit", "leave": True}])
def test_what_was_given_up_for_another_one_is_not_looked_at(made: Made, later: dict[str, Any]) -> None:
    """We may not be in that."""
    made.orders.note(formed(SMALLER))
    made.orders.note({"generation": NEXT + 1, "agree": True, **later})
    seat = made.foresight.coming(PRESENT)
    assert seat is None or seat.number == NEXT + 1


def test_what_nobody_commits_is_looked_at_for_some_steps(made: Made) -> None:
    """It may have been given up, because all have to go."""
    made.orders.note(formed(SMALLER))
    looks = []
    for _ in range(UNSURE_STEPS + 2):
        looks += [made.foresight.coming(PRESENT), made.foresight.coming(PRESENT)]
        made.step(agreed=STANDING)
    assert looks == [SMALLER] * 2 * UNSURE_STEPS + [None] * 4
    made.commit()
    assert made.foresight.coming(PRESENT) == SMALLER


def test_of_a_larger_one_it_has_to_be_known_that_this_step_may_be_the_last_before_it(made: Made) -> None:
    made.orders.note(formed(LARGER))
    assert made.foresight.coming(PRESENT) is None
    made.commit(at=12)
    assert made.foresight.coming(PRESENT) is None
    made.state._completed += 1
    assert made.foresight.coming(PRESENT) == LARGER, "it was heard of within that step"
    made.foresight.switches_to(STANDING)
    assert made.foresight.coming(PRESENT) is None, "it has been loaded for"
    made.state._completed += 1
    assert made.foresight.coming(PRESENT) == LARGER, "it was put off"
    made.foresight.switches_to(STANDING)
    assert made.foresight.coming(PRESENT) is None


def test_who_leaves_has_no_place_to_look_at(made: Made) -> None:
    made.commit(leave=True)
    assert made.foresight.coming(PRESENT) is None


def test_a_recovery_is_not_foreseen(made: Made) -> None:
    """Its members wait; and one that was on its way before it is given up."""
    made.orders.note(formed(SMALLER))
    made.orders.note({"kind": "park", "generation": NEXT + 1})
    assert made.foresight.coming(PRESENT) is None
    made.orders.note(formed(Seat(NEXT + 1, 0, 2), recover=True))
    assert made.foresight.coming(PRESENT) is None


def test_who_joins_loads_ahead_once_when_it_hears_where(made: Made) -> None:
    assert not made.foresight.is_due
    made.orders.note({"kind": "prepare", "generation": NEXT, "place": {"step": 12}})
    assert made.foresight.is_due
    made.foresight.prepare()
    assert made.state.foreseen == [(GROUP, {"step": 12})]
    assert not made.foresight.is_due
    made.foresight.prepare()
    assert len(made.state.foreseen) == 1


def test_nothing_is_loaded_for_a_group_that_was_given_up(made: Made) -> None:
    made.groups.clear()
    made.foresight.begins(NEXT)
    made.orders.note({"kind": "prepare", "generation": NEXT, "place": None})
    made.foresight.prepare()
    assert made.state.foreseen == []


def test_a_training_that_cannot_load_ahead_switches_all_the_same() -> None:
    made = Made(Plain())
    made.commit(at=12, report=True)
    assert made.step(agreed=STANDING) is None
    assert made.said == [{"kind": "place", "generation": NEXT, "place": None}]
    assert made.step(agreed=NEXT) == NEXT
