"""Orders as the training's thread finds them: after the save with which a run ends nobody trains on."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from hpctools.elastic import orders
from hpctools.elastic.orders import Orders, refusal

STANDING = 3
Message = dict[str, object]


class Waited(threading.Condition):
    """Knows how a wait ended: it was told, its time was over, or (None) there was none.

    Args:
        meanwhile: is done as soon as somebody waits.
    """

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        super().__init__()
        self.told: bool | None = None
        self._meanwhile = meanwhile

    def wait_for(self, predicate: Callable[[], object], timeout: float | None = None) -> bool:  # type: ignore[override]
        threading.Thread(target=self._tell).start()
        self.told = bool(super().wait_for(predicate, timeout))
        return self.told

    def _tell(self) -> None:
        with self:
            self._meanwhile()
            self.notify_all()


def ordered(*, ends: bool) -> Orders:
    made = Orders()
    made.note({"kind": "save", "why": "cancelled", "urgent": True, "seconds": 6.5, "ends": ends})
    return made


def rested(made: Orders, *messages: Message) -> bool | None:
    """Whether the training's thread rests, and hears the messages then."""

    def come() -> None:
        for message in messages:
            made.note(message)

    changed = Waited(come)
    made.rest(changed, STANDING)
    return changed.told


@pytest.mark.parametrize("message", [{"kind": "stop"}, {"kind": "park", "generation": STANDING + 1}])
def test_who_has_saved_the_last_state_rests_until_it_is_told_what_to_do(message: Message) -> None:
    made = ordered(ends=True)
    assert rested(made) is None, "it is not saved yet"
    made.told("saved", "cancelled")
    assert rested(made, {"kind": "commit", "generation": 2, "agree": True}, message) is True


def test_it_trains_on_when_nobody_says_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who ordered it may be gone."""
    monkeypatch.setattr(orders, "REST_SECONDS", 0.1)
    made = ordered(ends=True)
    made.told("saved", "cancelled")
    assert rested(made) is False
    assert rested(made) is None, "once"


def test_no_other_save_stops_the_training() -> None:
    made = ordered(ends=False)
    made.told("saved", "cancelled")
    assert rested(made) is None
    made = ordered(ends=True)
    for kind, why in (("saved", "interval"), ("unsaved", "cancelled"), ("beat", None)):
        made.told(kind, why)
    assert rested(made) is None


def test_who_saves_by_itself_says_so_of_the_order_that_was_given() -> None:
    words = {"step": 7, "why": "the training saves by itself"}
    assert refusal({"kind": "save", "order": "2.1"}, 7) == {**words, "order": "2.1"}
    assert refusal({"kind": "save"}, 7) == words, "of a coordinator that does not number them"


def test_what_a_later_release_says_besides_is_passed_over() -> None:
    made = Orders()
    said = {
        "kind": "commit",
        "generation": 4,
        "agree": True,
        "send_to": [2],
        "moves": False,
        "colour": "blue",
    }
    made.note(said)
    commit = made.commits[4]
    assert (commit.agree, commit.send_to, commit.moves, commit.leave) == (True, (2,), False, False)


def form(generation: int, **more: object) -> Message:
    return {"kind": "form", "generation": generation, "rank": 0, "world": 1, "recover": True, **more}


def test_a_roll_back_counts_until_its_generation_or_a_later_one_is_in_force() -> None:
    """Who coordinates next may not know of it."""
    made = Orders()
    made.note(form(4, roll_back={"to_step": 9, "skip": [10]}))
    made.note(form(5))
    assert made.going_back(STANDING) == [{"to_step": 9, "skip": [10]}]
    assert made.standing(STANDING)["roll_back"] == {"generation": 4, "to_step": 9, "skip": [10]}
    assert made.standing(STANDING)["pending"]
    assert made.going_back(5) == []
    stands = {"seen": 5, "pending": False, "finished": False, "roll_back": {}, "saves": None}
    assert made.standing(5) == stands


def test_roll_backs_are_gone_through_in_the_order_in_which_they_came() -> None:
    made = Orders()
    made.note(form(5, roll_back={"to_step": 2, "skip": []}))
    made.note(form(4, roll_back={"to_step": 9, "skip": []}))
    assert [each["to_step"] for each in made.going_back(STANDING)] == [9, 2]
    assert made.standing(STANDING)["roll_back"]["generation"] == 5
