"""Connections to the service: those that are kept for the next question, and what TLS trusts."""

from __future__ import annotations

import http.client
import select
import ssl
import time
from collections.abc import Callable
from functools import lru_cache
from threading import Lock

KEPT_SECONDS = 4.0
"""Less than uvicorn keeps one that nobody uses (5 s)."""
HUNG_UP = (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""What a question may meet over a connection that was just closed; over TLS that is no ConnectionError."""
_MOST = 8
_TRUSTED_SECONDS = 600.0


class Kept:
    """Connections that stay open for a moment after an answer, for who asks often. Threads share them.

    Args:
        seconds: for which one that nobody uses is kept. Short: the service's machine may be replaced.
        clock: seconds, never going back.
    """

    def __init__(self, seconds: float = KEPT_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._lock = Lock()
        self._idle: list[tuple[float, http.client.HTTPConnection]] = []

    def take(self) -> http.client.HTTPConnection | None:
        """The one that was used last, for the caller alone; None when there is none that could be used."""
        with self._lock:
            idle, self._idle = self._idle, []
            while idle:
                until, connection = idle.pop()
                if self._clock() < until and not _has_ended(connection):
                    self._idle = idle
                    return connection
                connection.close()
        return None

    def give(self, connection: http.client.HTTPConnection) -> None:
        """Its answer has been read to the end."""
        with self._lock:
            self._idle.append((self._clock() + self._seconds, connection))
            while len(self._idle) > _MOST:
                self._idle.pop(0)[1].close()

    def close(self) -> None:
        """Close those that nobody uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()


def connect(scheme: str, host: str, seconds: float) -> http.client.HTTPConnection:
    """A connection that is made with the first question.

    Args:
        scheme: `http` or `https`.
        host: with its port.
        seconds: for which anything is waited for.
    """
    if scheme != "https":
        return http.client.HTTPConnection(host, timeout=seconds)
    trusted = _trusted(int(time.monotonic() // _TRUSTED_SECONDS))
    return http.client.HTTPSConnection(host, timeout=seconds, context=trusted)


@lru_cache(maxsize=1)
def _trusted(period: int) -> ssl.SSLContext:
    """Whom the machine trusts, read again now and then: reading takes longer than a question does."""
    del period
    return ssl.create_default_context()


def _has_ended(connection: http.client.HTTPConnection) -> bool:
    """Whether the other side has hung up, or said something that nobody asked for."""
    if connection.sock is None:
        return True
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))
