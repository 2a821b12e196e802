"""Numbers of a training, as its worker tells them with its signs of life."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

NORM_SECONDS = 0.5
"""The gradients' norm is measured so often at most: it reads all of them once more."""


class Metrics:
    """What has happened since it was last told.

    Signs of life come several times a second, steps may come more often: then `loss` is that of the last
    step, or the first one that was not finite. The numbers of a training's own are told once.

    Told are `loss` and `first_nonfinite_step` (from 1, until the state changes); `step_s`, a step's mean
    time; `shard_seconds`, this worker's own mean time for a piece, without waiting for others; `grad_norm`
    and `grad_finite` (1 or 0) of the last step that was measured; and what `report` was given.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers: dict[str, float] = {}
        self._steps: list[float] = []
        self._pieces: list[float] = []
        self._step_ended: float | None = None
        self._measured = -math.inf
        self._first_bad: int | None = None

    def report(self, **numbers: float) -> None:
        """Numbers of the training's own, to be told once."""
        with self._lock:
            self._numbers.update({name: float(number) for name, number in numbers.items()})

    def piece(self, seconds: float) -> None:
        """A piece was computed."""
        with self._lock:
            self._pieces.append(seconds)

    def step(self, number: int, loss: float, norm: Callable[[], float] | None) -> None:
        """A step is done.

        Args:
            number: of the step, from 1.
            norm: measures the gradients; called now and then. None: another worker does it.
        """
        now = time.monotonic()
        is_due = norm is not None and now - self._measured >= NORM_SECONDS
        measured = norm() if norm is not None and is_due else None
        with self._lock:
            if self._step_ended is not None:
                self._steps.append(now - self._step_ended)
            self._step_ended = now
            if math.isfinite(self._numbers.get("loss", loss)):
                self._numbers["loss"] = loss
            if not math.isfinite(loss) and self._first_bad is None:
                self._first_bad = number
            if measured is not None:
                self._measured = now
                self._numbers |= {"grad_norm": measured, "grad_finite": float(math.isfinite(measured))}

    def forget(self) -> None:
        """The training goes on elsewhere, or again: what was bad is behind, and no step lasted that long."""
        with self._lock:
            self._step_ended, self._first_bad = None, None
            self._numbers.pop("loss", None)

    def take(self) -> dict[str, float]:
        """What there is to tell; the next call tells only what is new."""
        with self._lock:
            told = dict(self._numbers)
            for name, seconds in (("step_s", self._steps), ("shard_seconds", self._pieces)):
                if seconds:
                    told[name] = sum(seconds) / len(seconds)
                    seconds.clear()
            if self._first_bad is not None:
                told["first_nonfinite_step"] = float(self._first_bad)
            self._numbers.clear()
            return told
