"""How long steps take, and by how much a resize made one of them longer."""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass, field
from typing import Any

STEPS_TO_COMPARE = 3


@dataclass
class _Resize:
    generation: int
    step: int
    phases: dict[str, float]
    first: float | None = None
    following: list[float] = field(default_factory=list)


class StepClock:
    """Measures the pause of each resize.

    The pause is the time from the end of the last step before to the end of the first step after, minus a
    normal step: the median of the next steps, or of the steps before when there are none.
    """

    def __init__(self) -> None:
        self._last_end: float | None = None
        self._before: deque[float] = deque(maxlen=STEPS_TO_COMPARE)
        self._resize: _Resize | None = None

    def step_ended(self, now: float) -> None:
        """A step (with the optimizer's part) has ended; also called once before the first one."""
        if self._last_end is not None:
            self._note(now - self._last_end)
        self._last_end = now

    def resized(self, generation: int, step: int, phases: dict[str, float]) -> dict[str, Any] | None:
        """The step that is going on is the first in a generation; returns what the last resize still owes."""
        owed = self._measured()
        self._resize = _Resize(generation, step, phases)
        return owed

    def result(self, *, at_once: bool = False) -> dict[str, Any] | None:
        """The measured resize, once, when enough steps were seen; `at_once`: with those that there are."""
        resize = self._resize
        if resize is None or (len(resize.following) < STEPS_TO_COMPARE and not at_once):
            return None
        measured = self._measured()
        self._resize = None
        return measured

    def _note(self, seconds: float) -> None:
        resize = self._resize
        if resize is None:
            self._before.append(seconds)
        elif resize.first is None:
            resize.first = seconds
        else:
            resize.following.append(seconds)
            self._before.append(seconds)

    def _measured(self) -> dict[str, Any] | None:
        resize = self._resize
        steps = list((resize and resize.following) or self._before)
        if resize is None or resize.first is None or not steps:
            return None
        normal = statistics.median(steps)
        return {
            "generation": resize.generation,
            "step": resize.step,
            "pause_s": round(max(0.0, resize.first - normal), 4),
            "normal_step_s": round(normal, 4),
            "phases": {name: round(seconds, 4) for name, seconds in resize.phases.items()},
        }
