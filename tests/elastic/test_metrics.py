"""What a worker tells of its training between two signs of life."""

from __future__ import annotations

import math

import pytest

from hpctools.elastic import metrics
from hpctools.elastic.metrics import Metrics


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(metrics.time, "monotonic", lambda: now[0])
    return now


def test_numbers_are_told_once(clock: list[float]) -> None:
    told = Metrics()
    told.report(accuracy=0.5, lr=1)
    told.report(accuracy=0.75)
    assert told.take() == {"accuracy": 0.75, "lr": 1.0}
    assert told.take() == {}


def test_means_of_the_steps_in_between(clock: list[float]) -> None:
    told = Metrics()
    for number, at in ((1, 100.0), (2, 100.2), (3, 100.6)):
        clock[0] = at
        told.piece(0.1 * number)
        told.step(number, 5.0 - number, lambda: 7.0)
    assert told.take() == {
        "loss": 2.0,
        "step_s": pytest.approx(0.3),
        "shard_seconds": pytest.approx(0.2),
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
