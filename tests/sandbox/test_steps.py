"""Steps: order, concurrency and failure."""

from __future__ import annotations

import threading

import pytest

from hpctools.errors import SandboxError
from hpctools.sandbox.steps import Step, take


def test_each_step_follows_those_it_depends_on() -> None:
    taken: list[str] = []

    def note(name: str) -> bool:
        taken.append(name)
        return True

    take(
        [Step(n, lambda n=n: note(n), a) for n, a in (("a", ()), ("b", ("a",)), ("c", ("b",)))],
        lambda *_: None,
    )
    assert taken == ["a", "b", "c"]


def test_independent_steps_are_taken_at_once() -> None:
    meeting, met = threading.Barrier(2, timeout=5), list[str]()
    take([Step(name, lambda: meeting.wait() >= 0) for name in ("a", "b")], lambda name, _: met.append(name))
    assert sorted(met) == ["a", "b"]


def test_only_steps_with_anything_to_do_are_reported() -> None:
    seen: list[str] = []
    take(
        [Step("idle", lambda: False), Step("busy", lambda: True, ("idle",))],
        lambda name, _: seen.append(name),
    )
    assert seen == ["busy"]


def test_what_depends_on_a_failure_is_not_taken_and_the_failure_is_told() -> None:
    taken: list[str] = []

    def fail() -> bool:
        raise SandboxError("broken")

    steps = [
        Step("a", fail),
        Step("after a", lambda: taken.append("after a") is None, ("a",)),
        Step("after that", lambda: taken.append("after that") is None, ("after a",)),
        Step("apart", lambda: taken.append("apart") is None),
    ]
    with pytest.raises(SandboxError, match="broken"):
        take(steps, lambda *_: None)
    assert taken == ["apart"]


def test_a_defect_of_ours_is_not_hidden() -> None:
    def defect() -> bool:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        take([Step("a", defect)], lambda *_: None)
