"""The pause of a resize: the first step's surplus over a normal step."""

from __future__ import annotations

import pytest

from hpctools.elastic.timing import StepClock


def test_pause_is_the_first_step_minus_the_median_of_the_next() -> None:
    clock = StepClock()
    for end in (0.0, 1.0, 2.0):
        clock.step_ended(end)
    assert clock.resized(2, step=2, phases={"state": 0.1}) is None
    for end in (3.5, 4.5, 5.6):
        clock.step_ended(end)
        assert clock.result() is None
    clock.step_ended(6.5)
    result = clock.result()
    assert result is not None
    assert (result["generation"], result["step"], result["phases"]) == (2, 2, {"state": 0.1})
    assert result["pause_s"] == pytest.approx(0.5)
    assert result["normal_step_s"] == pytest.approx(1.0)
    assert clock.result() is None


def test_next_resize_gets_the_last_one_reported_with_what_is_known() -> None:
    clock = StepClock()
    for end in (0.0, 1.0):
        clock.step_ended(end)
    clock.resized(2, step=1, phases={})
    clock.step_ended(3.0)
    owed = clock.resized(3, step=2, phases={})
    assert owed is not None
    assert (owed["generation"], owed["pause_s"]) == (2, 1.0)


def test_end_of_the_training_reports_at_once() -> None:
    clock = StepClock()
    for end in (0.0, 1.0):
        clock.step_ended(end)
    clock.resized(2, step=1, phases={})
    clock.step_ended(2.2)
    assert clock.result() is None
    result = clock.result(at_once=True)
    assert result is not None
    assert result["pause_s"] == pytest.approx(0.2)
