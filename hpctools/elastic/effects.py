"""What follows from a change of membership; the coordinator carries it out."""

from __future__ import annotations

from dataclasses import dataclass

from hpctools.elastic.deciding import Verdict
from hpctools.elastic.protocol import Message


@dataclass(frozen=True)
class Send:
    """A message to a worker."""

    to: str
    message: Message


@dataclass(frozen=True)
class Formed:
    """A generation is in force: all its members have switched to it.

    Attributes:
        before: the members of the generation before; after a takeover those that have come.
        world_before: how many trained in it.
        step: the first step in it.
        recovered: whether somebody had vanished.
    """

    generation: int
    members: tuple[str, ...]
    before: tuple[str, ...]
    step: int
    recovered: bool
    world_before: int = 0


@dataclass(frozen=True)
class Waiting:
    """The training waits, its state in memory, for more workers.

    Attributes:
        have: workers that could train.
        need: how many it takes.
    """

    have: int
    need: int


@dataclass(frozen=True)
class Adopted:
    """A new coordinator has found the training undisturbed: the generation in force stays in force."""

    generation: int
    members: tuple[str, ...]


@dataclass(frozen=True)
class WentBack:
    """A new coordinator has found a roll back that had begun, and goes on with it.

    Attributes:
        generation: the first one that trains after it.
        to_step: steps that its state is the result of, at most.
    """

    generation: int
    to_step: int


@dataclass(frozen=True)
class Decided:
    """A verdict on growing that differs from the one before.

    Attributes:
        world, possible: workers that train, and that could.
    """

    world: int
    possible: int
    verdict: Verdict


@dataclass(frozen=True)
class Broken:
    """The run cannot go on.

    Attributes:
        state_is_lost: whether a checkpoint is what it takes to go on.
    """

    reason: str
    state_is_lost: bool = False


@dataclass(frozen=True)
class NotLinked:
    """Workers that would have joined are let go: with them no generation could be linked."""

    workers: tuple[str, ...]


@dataclass(frozen=True)
class Completed:
    """All members have done the last step."""

    members: tuple[str, ...]


Effect = Send | Formed | Waiting | Adopted | WentBack | Decided | Broken | NotLinked | Completed
