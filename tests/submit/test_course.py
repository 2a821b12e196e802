"""The course of a run, for a drawing."""

from __future__ import annotations

from hpctools.elastic.folder import Event
from hpctools.elastic.history import Moment
from hpctools.submit.course import Series, course


def at(second: int) -> str:
    return f"2026-02-03T10:00:{second:02}.000+00:00"


def test_history_and_events_on_one_axis():
    history = [
        Moment(at(10), 1, 2, 2, 3.0, None),
        Moment(at(20), 5, 4, 4, float("nan"), 40.0),
        Moment(at(30), 9, 4, 4, 1.0, 44.0),
    ]
    events = [
        Event(at(5), "started"),
        Event(at(12), "left", {"reason": "preempted"}),
        Event(at(13), "resize", {"from": 2, "to": 1, "recovered": False}),
        Event(at(14), "crashed"),
        Event(at(15), "left", {"reason": "lost"}),
        Event(at(16), "resize", {"from": 1, "to": 3, "recovered": True}),
        Event(at(17), "resize", {"from": 3, "to": 4, "recovered": False}),
        Event(at(18), "left", {"reason": "released"}),
        Event(at(19), "takeover"),
        Event(at(21), "notice", {"what": "drain"}),
        Event(at(22), "finding", {"cause": "lossSpike", "mode": "log"}),
        Event("soon", "warning"),
        Event(at(45), "finished"),
    ]
    found = course(history, events)
    assert found is not None
    assert found.seconds == 40.0
    assert found.size == Series((5.0, 8.0, 11.0, 12.0, 15.0, 25.0), (2.0, 1.0, 3.0, 4.0, 4.0, 4.0))
    assert found.throughput == Series((15.0, 25.0), (40.0, 44.0))
    assert found.loss == Series((5.0, 25.0), (3.0, 1.0))
    assert list(found.marks.items()) == [
        ("grew", (12.0,)),
        ("shrank", (8.0,)),
        ("preempted", (7.0,)),
        ("lost or crashed", (9.0, 10.0)),
        ("recovered", (11.0,)),
        ("coordinator taken over", (14.0,)),
        ("notice", (16.0,)),
        ("finding", (17.0,)),
    ]


def test_of_a_script_without_the_library_the_throughput_is_in_steps():
    history = [Moment(at(1), 1, 2, 2), Moment(at(2), 3, 2, 2, steps_per_second=2.5)]
    found = course(history, [])
    assert found is not None
    assert (found.unit, found.throughput) == ("steps/s", Series((1.0,), (2.5,)))
    both = course([*history, Moment(at(3), 4, 2, 2, samples_per_second=8.0)], [])
    assert both is not None
    assert (both.unit, both.throughput) == ("samples/s", Series((2.0,), (8.0,)))


def test_while_nobody_trains_there_is_no_throughput():
    told = [(2, 40.0), (0, 40.0), (0, None), (2, 38.0)]
    history = [Moment(at(place), 1, size, size, 3.0, rate) for place, (size, rate) in enumerate(told)]
    found = course(history, [])
    assert found is not None
    assert found.throughput == Series((0.0, 1.0, 3.0), (40.0, 0.0, 38.0))


def test_nothing_is_known_before_the_training_has_begun():
    assert course([], [Event(at(1), "started")]) is None


def test_a_coordinator_with_a_slow_clock_makes_no_time_run_backwards():
    """It took over after the third moment, ten seconds behind: its first ones stand where that one is."""
    told = [(10, 4, 3.0), (20, 4, 2.5), (30, 4, 2.0), (24, 3, 1.9), (28, 2, 1.8), (35, 2, 1.7)]
    history = [Moment(at(second), 1, size, size, loss, loss) for second, size, loss in told]
    found = course(history, [])
    assert found is not None
    times = (0.0, 10.0, 20.0, 20.0, 20.0, 25.0)
    assert found.loss == Series(times, (3.0, 2.5, 2.0, 1.9, 1.8, 1.7))
    assert found.throughput == found.loss
    assert found.size == Series(times, (4.0, 4.0, 4.0, 3.0, 2.0, 2.0))


def test_a_replica_that_a_person_cancelled_is_not_marked_as_preempted():
    events = [
        Event(at(2), "left", {"reason": "preempted", "job_id": 7}),
        Event(at(3), "left", {"reason": "preempted", "job_id": 8}),
        Event(at(4), "not_preempted", {"job_id": 7, "why": "was cancelled (scancel)"}),
    ]
    found = course([Moment(at(1), 1, 2, 2)], events)
    assert found is not None
    assert found.marks == {"preempted": (2.0,)}
