"""How the members of a generation wait for each other, through its store and in Python.

What waits in C++ cannot be called off, and a thread that comes back from there while Python shuts down takes
the process with it (SIGABRT, `terminate called`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

Store = Any
"""A `torch.distributed.Store`; torch does not type what it exports from C++."""

LINK_TIMEOUT = timedelta(seconds=20)
MEET_SECONDS = 0.005
HERE = "here"
"""Where the members of a generation meet first."""
HOSTS = "hosts"
"""Where each has left its address before."""


class GivenUpError(Exception):
    """A generation's group is not wanted any more."""


@dataclass(frozen=True)
class Meeting:
    """The members of a generation, as one of them meets the others.

    Args:
        rank, world: our place and how many there are.
        given_up: asked again and again whether it is still wanted.
    """

    store: Store
    rank: int
    world: int
    given_up: Callable[[], bool]

    def leave(self, place: str, note: str) -> None:
        """Leave a note; who meets us later, anywhere, finds it."""
        self.store.set(f"{place}/{self.rank}", note)

    def meet(self, place: str, note: str, patience: timedelta = LINK_TIMEOUT) -> None:
        """Leave a note, and wait until all have left theirs.

        Args:
            place: what they meet for; the same on all, another one each time.

        Raises:
            RuntimeError: not everyone came in time.
            GivenUpError: it is not wanted any more.
        """
        self.leave(place, note)
        deadline = time.monotonic() + patience.total_seconds()
        while not self.store.check(self._keys(place)):
            if self.given_up():
                raise GivenUpError
            if time.monotonic() > deadline:
                raise RuntimeError(f"not all {self.world} members came within {patience.total_seconds():g} s")
            time.sleep(MEET_SECONDS)

    def notes(self, place: str) -> list[str]:
        """What all have left there, by rank."""
        return [bytes(note).decode(errors="replace") for note in self.store.multi_get(self._keys(place))]

    def _keys(self, place: str) -> list[str]:
        return [f"{place}/{rank}" for rank in range(self.world)]
