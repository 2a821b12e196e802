"""What `lossSpike` compares with once a training has gone back: its own earlier steps alone."""

from __future__ import annotations

import math

import pytest
from test_detectors import beat, beat_of

from hpctools.elastic.recovery.numbers import Course
from hpctools.elastic.recovery.settings import Spike
from hpctools.elastic.watchers import View


@pytest.mark.parametrize("back_to", [0, 60, 290])
def test_a_training_that_goes_back_is_not_compared_with_the_one_that_was_given_up(back_to: int) -> None:
    """Its loss is what it was at that step, which is far above what it had fallen to meanwhile."""
    course = Course(Spike())
    losses = [0.8 + 6.2 * math.exp(-step / 60) for step in range(301)]
    assert course.heard(0.0, beat_of(*losses[1:], last=300)) == []
    course.tick(0.0, View(300, 1, 1, "running"))
    course.reset()
    course.tick(0.0, View(back_to, 1, 2, "running"))
    assert course.heard(0.0, beat_of(*losses[back_to + 1 :], last=300)) == []
    assert len(course.heard(0.0, beat(301, loss=9.0))) == 1, "the course is a new one"


def test_what_was_before_the_step_back_stays_the_course() -> None:
    """A loss that is far above it at once, and stays there, is not taken for its beginning."""
    course = Course(Spike(ratio=3.0, deviations=None))
    assert course.heard(0.0, beat_of(*[1.0] * 30, last=30)) == []
    course.tick(0.0, View(30, 1, 1, "running"))
    course.reset()
    course.tick(0.0, View(20, 1, 2, "running"))
    assert [each.step for each in course.heard(0.0, beat_of(9.0, last=21))] == [21]


def test_of_a_row_of_spikes_those_that_are_given_up_do_not_count() -> None:
    course = Course(Spike(ratio=3.0, deviations=None, points=3))
    assert course.heard(0.0, beat_of(*[1.0] * 10, 9.0, 9.0, last=12)) == []
    course.tick(0.0, View(12, 1, 1, "running"))
    course.tick(0.0, View(10, 1, 2, "running"))
    assert course.heard(0.0, beat_of(9.0, 9.0, last=12)) == []
    assert [each.step for each in course.heard(0.0, beat(13, loss=9.0))] == [11]
