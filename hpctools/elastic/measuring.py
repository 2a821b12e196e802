"""Tells the coordinator how long each resize held up a worker's training."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from hpctools.elastic.orders import Commit
from hpctools.elastic.session import Resharding, Transferable
from hpctools.elastic.timing import StepClock


class Measuring:
    """The steps of one worker, and what resizes made of them.

    Args:
        say: sends a message to the coordinator.
    """

    def __init__(self, state: Transferable, say: Callable[..., None]) -> None:
        self._state = state
        self._say = say
        self._clock = StepClock()
        self._late: int | None = None

    def step_ended(self, *, at_once: bool = False) -> None:
        """A step has ended: tell of the last resize when enough of them have; `at_once`: those must do."""
        self._clock.step_ended(time.monotonic())
        self._tell(self._clock.result(at_once=at_once))

    def resized(self, commit: Commit, linking: float, begun: float) -> None:
        """A generation is in force.

        Args:
            linking: how long its group was linked, in seconds.
            begun: when its state began to move, on the monotonic clock.
        """
        phases = {"link": linking, "agree": begun - commit.arrived, "state": time.monotonic() - begun}
        self._tell(self._clock.resized(commit.generation, self._state._steps, phases))
        self._late = self._state._completed - commit.at if commit.agree and commit.at else None

    def _tell(self, resize: dict[str, Any] | None) -> None:
        if resize is not None:
            moved = {"moved": self._state._moved()} if isinstance(self._state, Resharding) else {}
            late = {} if self._late is None else {"late": self._late}
            self._say("resized", **resize, **moved, **late)
