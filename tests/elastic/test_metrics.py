"""What a worker tells of its training between two signs of life."""

from __future__ import annotations

import math

import pytest

from hpctools.elastic import metrics
from hpctools.elastic.metrics import MOST_STEPS, Metrics
from hpctools.elastic.protocol import encode


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(metrics.time, "monotonic", lambda: now[0])
    return now


def test_numbers_are_told_once(clock: list[float]) -> None:
    told = Metrics()
    told.report(1, {"accuracy": 0.5, "lr": 1})
    told.report(1, {"accuracy": 0.75})
    told.report(2, {"accuracy": 0.7})
    assert told.take() == {"accuracy": 0.7, "lr": 1.0}
    assert told.take() == {}
    assert told.take_steps(leads=True) == {"accuracy": [(1, 0.75), (2, 0.7)], "lr": [(1, 1.0)]}
    assert told.take_steps(leads=True) == {}


def test_means_of_the_steps_in_between(clock: list[float]) -> None:
    told = Metrics()
    for number, at in ((1, 100.0), (2, 100.2), (3, 100.6)):
        clock[0] = at
        told.piece(0.1 * number, 4)
        told.step(number, 5.0 - number, lambda: 7.0)
    assert told.take() == {
        "loss": 2.0,
        "step_s": pytest.approx(0.3),
        "shard_seconds": pytest.approx(0.2),
        "sample_seconds": pytest.approx(0.05),
        "grad_norm": 7.0,
        "grad_finite": 1.0,
    }


def test_a_loss_that_was_not_finite_in_between_is_told(clock: list[float]) -> None:
    told = Metrics()
    for number, loss in ((1, 1.0), (2, math.nan), (3, 2.0)):
        told.step(number, loss, lambda: math.inf)
    first = told.take()
    assert math.isnan(first["loss"])
    assert (first["first_nonfinite_step"], first["grad_finite"]) == (2.0, 0.0)
    told.step(4, 2.0, lambda: 1.0)
    assert told.take() == {"loss": 2.0, "first_nonfinite_step": 2.0, "step_s": 0.0}
    told.forget()
    told.step(5, 2.0, lambda: 1.0)
    assert told.take() == {"loss": 2.0}


def test_every_step_since_the_last_time_is_told_with_its_loss(clock: list[float]) -> None:
    told = Metrics()
    for number, loss in ((1, 2.0), (2, 900.0), (3, 1.5)):
        told.step(number, loss, None)
    assert told.take()["loss"] == 1.5, "the status has the last one"
    assert told.take_steps(leads=True) == {"loss": [(1, 2.0), (2, 900.0), (3, 1.5)]}
    told.step(4, 1.0, None)
    told.paused()
    assert told.take_steps(leads=True) == {"loss": [(4, 1.0)]}, "a step that is done stays so"
    told.step(5, math.nan, None)
    told.forget()
    told.step(5, 1.0, None)
    assert told.take_steps(leads=True) == {"loss": [(5, 1.0)]}, "what was given up is of no interest"


def test_of_very_many_steps_the_newest_are_told_and_a_message_stays_small(clock: list[float]) -> None:
    told = Metrics()
    for number in range(1, 10_001):
        told.step(number, number / 7, None)
    steps = told.take_steps(leads=True)["loss"]
    assert [step for step, _ in steps] == list(range(10_001 - MOST_STEPS, 10_001))
    assert len(encode("beat", in_steps={"loss": steps})) < 9_000


def test_who_does_not_lead_keeps_the_newest_losses_until_it_does(clock: list[float]) -> None:
    told = Metrics()
    told.report(1, {"accuracy": 0.5})
    for number in range(1, MOST_STEPS + 3):
        told.step(number, 1.0, None)
    assert told.take_steps(leads=False) == {"accuracy": [(1, 0.5)]}
    assert [step for step, _ in told.take_steps(leads=True)["loss"]] == list(range(3, MOST_STEPS + 3))


def test_the_norm_is_measured_now_and_then(clock: list[float]) -> None:
    told, calls = Metrics(), []
    for number in range(20):
        clock[0] = 100 + number / 10
        told.step(number, 1.0, lambda: float(calls.append(1) or 1.0))
    assert len(calls) == 4


def test_another_worker_may_measure_the_norm(clock: list[float]) -> None:
    told = Metrics()
    told.step(1, 1.0, None)
    assert told.take() == {"loss": 1.0}
