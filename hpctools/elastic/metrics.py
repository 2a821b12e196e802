"""Numbers of a training, as its worker tells them with its signs of life."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from hpctools.errors import ElasticError

NORM_SECONDS = 0.5
"""The gradients' norm is measured so often at most: it reads all of them once more."""
MOST_STEPS = 256
"""Of so many steps, the newest, a number is told with one sign of life: a thousand steps a second, 8 kB."""
LOSS = "loss"
GRAD_NORM, GRAD_FINITE = "grad_norm", "grad_finite"
OF_ALL = (LOSS, GRAD_NORM, GRAD_FINITE)
"""What comes of all workers' samples together, whoever tells it."""

Steps = deque[tuple[int, float]]


class Metrics:
    """What has happened since it was last told.

    Signs of life come several times a second, steps may come more often: then `loss` is that of the last
    step, or the first one that was not finite. The numbers of a training's own are told once. Of the loss,
    and of those numbers, it is also told in which step which value came (`take_steps`).

    Told are `loss` and `first_nonfinite_step` (from 1, until the state changes); `step_s`, a step's mean
    time; `shard_seconds` and `sample_seconds`, this worker's own mean time for a piece and for a sample of
    it, without waiting for others; `grad_norm` and `grad_finite` (1 or 0) of the last step that was
    measured; and what `report` was given.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[str, float] = {}
        self._in_steps: dict[str, Steps] = {}
        self._steps: list[float] = []
        self._pieces: list[tuple[float, int]] = []
        self._step_ended: float | None = None
        self._measured = -math.inf
        self._first_bad: int | None = None

    def report(self, step: int, numbers: Mapping[str, float]) -> None:
        """Numbers of the training's own, to be told once.

        Args:
            step: which they are of, from 1; of two with one name in a step the later one counts.
        """
        numbers = {name: float(number) for name, number in numbers.items()}
        with self._lock:
            self._numbers.update(numbers)
            for name, number in numbers.items():
                self._note(name, step, number)

    def piece(self, seconds: float, samples: int) -> None:
        """A piece of so many samples was computed."""
        with self._lock:
            self._pieces.append((seconds, samples))

    def step(self, number: int, loss: float, norm: Callable[[], float | None] | None) -> None:
        """A step is done.

        Args:
            number: of the step, from 1.
            norm: measures the gradients; called now and then. None: another worker does it. What it returns
                is not told when it is None.
        """
        now = time.monotonic()
        measured = norm() if norm is not None and self.is_due(now) else None
        with self._lock:
            if self._step_ended is not None:
                self._steps.append(now - self._step_ended)
            self._step_ended = now
            self._note(LOSS, number, loss)
            if math.isfinite(self._numbers.get(LOSS, loss)):
                self._numbers[LOSS] = loss
            if not math.isfinite(loss) and self._first_bad is None:
                self._first_bad = number
            if measured is not None:
                self._measured = now
                self._numbers |= {GRAD_NORM: measured, GRAD_FINITE: float(math.isfinite(measured))}

    def is_due(self, now: float | None = None) -> bool:
        """Whether the gradients are to be measured again."""
        return (time.monotonic() if now is None else now) - self._measured >= NORM_SECONDS

    def forget(self) -> None:
        """The state is another one: what was bad is behind, and what is not told yet is of steps given up."""
        with self._lock:
            self._step_ended, self._first_bad = None, None
            self._numbers.pop(LOSS, None)
            self._in_steps.clear()

    def paused(self) -> None:
        """The step is done again with others: none lasted that long."""
        with self._lock:
            self._step_ended = None

    def take(self) -> dict[str, float]:
        """What there is to tell; the next call tells only what is new."""
        with self._lock:
            told = dict(self._numbers)
            if self._steps:
                told["step_s"] = sum(self._steps) / len(self._steps)
            told |= _means(self._pieces)
            if self._first_bad is not None:
                told["first_nonfinite_step"] = float(self._first_bad)
            for each in (self._numbers, self._steps, self._pieces):
                each.clear()
            return told

    def take_steps(self, *, leads: bool) -> dict[str, list[tuple[int, float]]]:
        """In which steps which numbers came, by name: (step, value), ascending, MOST_STEPS at most.

        Args:
            leads: whether we tell the loss, which all workers have. Who does not keeps the newest ones, for
                when the first worker is lost with some that it has not told.
        """
        with self._lock:
            told = {name: list(steps) for name, steps in self._in_steps.items() if leads or name != LOSS}
            for name in told:
                del self._in_steps[name]
            return told

    def _note(self, name: str, step: int, number: float) -> None:
        steps = self._in_steps.setdefault(name, deque(maxlen=MOST_STEPS))
        if steps and steps[-1][0] == step:
            steps.pop()
        steps.append((step, number))


def as_floats(numbers: Mapping[str, Any]) -> dict[str, float]:
    """What a training reports.

    Raises:
        ElasticError: one of them is no number.
    """
    try:
        return {name: float(number) for name, number in numbers.items()}
    except (TypeError, ValueError, OverflowError):
        raise ElasticError(f"loader.report({numbers}): not all are numbers", "give floats") from None


def _means(pieces: list[tuple[float, int]]) -> dict[str, float]:
    """Of a piece, and of a sample."""
    if not pieces:
        return {}
    seconds, samples = sum(each for each, _ in pieces), sum(each for _, each in pieces)
    return {"shard_seconds": seconds / len(pieces), "sample_seconds": seconds / max(1, samples)}
