"""What follows from a change of generations; the run's coordinator carries it out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hpctools.elastic.effects import Decided, Waiting


@dataclass(frozen=True)
class Tell:
    """A message to an agent."""

    agent: str
    message: dict[str, Any]


@dataclass(frozen=True)
class Release:
    """A node that has to go has nothing to do any more: its agent ends."""

    agent: str


@dataclass(frozen=True)
class Formed:
    """All ranks of a generation have been started, or a new coordinator has found them at work.

    Attributes:
        members: agents, in rank order.
        before: those of the generation before.
        restarts: after crashes so far.
    """

    generation: int
    members: tuple[str, ...]
    before: tuple[str, ...]
    restarts: int


@dataclass(frozen=True)
class Resized:
    """From one generation to the next, measured.

    Attributes:
        recovered: whether it was not planned.
        pause: seconds in which nothing was trained: from the event or the loss to the first step, or, for a
            script that never asks for events, to the start of all processes.
        step: calls of `elastic_event_detected` so far.
        normal_step: seconds between two calls; 0 when not known.
        phases: the pause's parts in seconds: `save` (to the end of the last process), `wait` (for nodes),
            `start` (of all new ones) and `first` (to the first step, where it is seen).
    """

    generation: int
    before: int
    after: int
    recovered: bool
    pause: float
    step: int
    normal_step: float
    phases: dict[str, float]

    @property
    def cost(self) -> float:
        """Seconds of the pause that the change itself took: without the wait for nodes."""
        return self.pause - self.phases["wait"]


@dataclass(frozen=True)
class Crashed:
    """A rank ended badly, the first of its generation, and not because of a node that has gone or goes.

    Attributes:
        code: its exit code; negative: the signal that ended it.
        said: what it said last, oldest line first.
    """

    agent: str
    local: int
    rank: int
    code: int
    said: tuple[str, ...]


@dataclass(frozen=True)
class Charged:
    """The end of a generation counts as a crash; a later coordinator goes on from it.

    Attributes:
        reason: what it is put down to.
    """

    generation: int
    reason: str


@dataclass(frozen=True)
class Finished:
    """All ranks have ended well and nobody had told them to."""


@dataclass(frozen=True)
class Broken:
    """The run cannot go on.

    Attributes:
        code: exit code of the baseline job; None: that of a failed run.
    """

    reason: str
    code: int | None = None


Effect = Tell | Release | Formed | Resized | Crashed | Charged | Decided | Waiting | Finished | Broken
