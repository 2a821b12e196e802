"""Administrators' sessions that the service has not been told of: also those that are over, for its trail."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from threading import Lock
from typing import Any

MOST = 1000
"""Kept while the service is away, the newest."""
TOGETHER = 200
"""Told with one report, the oldest: the service takes a million bytes."""


class Untold:
    """What a report is to tell of administrators though it is over. They ask nobody, so only this remembers.

    Args:
        monotonic: seconds, never going back.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = Lock()
        self._waiting: dict[str, tuple[float, dict[str, Any]]] = {}
        self._told: frozenset[str] = frozenset()

    def note(self, sessions: Iterable[Mapping[str, Any]]) -> None:
        """Administrators' sessions, as a report tells of them, that are or were here."""
        now = self._monotonic()
        with self._lock:
            for each in sessions:
                if each["claim"] not in self._told:
                    self._waiting.setdefault(each["claim"], (now - each["age"], dict(each)))
            while len(self._waiting) > MOST:
                del self._waiting[next(iter(self._waiting))]

    @property
    def claims(self) -> frozenset[str]:
        """What waits now."""
        with self._lock:
            return frozenset(self._waiting)

    def over(self, claims: Collection[str]) -> list[dict[str, Any]]:
        """What waits of these, as a report tells of it; they are over."""
        now = self._monotonic()
        with self._lock:
            over = [waiting for claim, waiting in self._waiting.items() if claim in claims]
        return [{**each, "age": max(0.0, now - at)} for at, each in over[:TOGETHER]]

    def told(self, claims: Collection[str]) -> None:
        """The service has taken a report of these, and no other is here."""
        with self._lock:
            for claim in claims:
                self._waiting.pop(claim, None)
            self._told = frozenset(claims)
