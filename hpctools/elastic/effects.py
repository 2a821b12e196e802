"""What follows from a change of membership; the coordinator carries it out."""

from __future__ import annotations

from dataclasses import dataclass

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
        before: the members of the generation before.
        step: the first step in it.
        recovered: whether somebody had vanished.
    """

    generation: int
    members: tuple[str, ...]
    before: tuple[str, ...]
    step: int
    recovered: bool


@dataclass(frozen=True)
class Broken:
    """The run cannot go on."""

    reason: str


@dataclass(frozen=True)
class Completed:
    """All members have done the last step."""

    members: tuple[str, ...]


Effect = Send | Formed | Broken | Completed
