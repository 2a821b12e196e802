"""Events that storage would not take: they are kept, and written in their order when it does again.

A run's events are its account, and what a coordinator that takes over knows of it.
"""

from __future__ import annotations

import json
from collections import deque
from typing import Protocol

from hpctools.elastic.folder import Event

MOST = 1000
AT_ONCE = 50  # events in one write: what fits goes, and one slow file system is asked a few times only


class EventsFile(Protocol):
    """Where events are written (`RunFolder`)."""

    def append_events(self, *events: Event) -> None:
        """Add these in their order, all or none; raises ElasticError."""
        ...


class OwedEvents:
    """Writes events, and keeps those that cannot be written.

    All methods belong to one thread, but `any`.

    Args:
        most: how many are kept; beyond them the oldest go, and a `warning` in their place says how many.
    """

    def __init__(self, file: EventsFile, most: int = MOST) -> None:
        self._file = file
        self._most = most
        self._owed: deque[Event] = deque()
        self._dropped = 0
        self._gap = ""  # when the last one happened that was dropped

    @property
    def any(self) -> bool:
        """Whether some are still to be written."""
        return bool(self._owed)

    def add(self, event: Event) -> None:
        """Write it, after all that are kept.

        Raises:
            ElasticError: that cannot be done now; it is kept.
            TypeError, ValueError: it can never be; it is not kept.
        """
        json.dumps(event.detail)  # a fault in one event must not keep all that follow it
        self._owed.append(event)
        while len(self._owed) > self._most:
            self._gap = self._owed.popleft().time
            self._dropped += 1
        self.write()

    def write(self) -> None:
        """Write what is kept.

        Raises:
            ElasticError: something cannot be written yet; it, and what came after it, is kept.
        """
        if self._dropped:
            self._file.append_events(Event(self._gap, "warning", {"message": _missing(self._dropped)}))
            self._dropped = 0
        while self._owed:
            first = [self._owed[index] for index in range(min(AT_ONCE, len(self._owed)))]
            self._file.append_events(*first)
            for _ in first:
                self._owed.popleft()


def _missing(count: int) -> str:
    return (
        f"{count} event(s) before this one are missing: the run's folder could not be written for so long "
        "that they were not kept any more; the training went on"
    )
