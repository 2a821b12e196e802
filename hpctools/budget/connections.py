"""Connections to the service: those that are kept for the next question, and what TLS trusts."""

from __future__ import annotations

import http.client
import io
import math
import select
import socket
import ssl
import time
from collections.abc import Callable
from functools import lru_cache, partial
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


def limit(connection: http.client.HTTPConnection, seconds: float, until: float) -> None:
    """Say how long the next question over a connection may take.

    Args:
        seconds: for which anything is waited for.
        until: when all of the answer has to be there, by the monotonic clock: a server, or what is before it,
            that says a byte now and then would be waited for without an end. math.inf: as long as it goes on.

    Raises:
        TimeoutError: that is over.
    """
    connection.timeout = _left(seconds, until)
    if connection.sock is not None:
        connection.sock.settimeout(connection.timeout)
    kind = http.client.HTTPResponse if until == math.inf else partial(_Timely, seconds=seconds, until=until)
    connection.response_class = kind  # type: ignore[assignment]


def _left(seconds: float, until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return min(seconds, left)


class _Timely(http.client.HTTPResponse):
    """An answer that has to be there in time."""

    def __init__(self, sock: socket.socket, *, method: str | None, seconds: float, until: float) -> None:
        super().__init__(sock, method=method)
        self.fp = io.BufferedReader(_UntilThen(sock, self.fp.detach(), seconds, until))


class _UntilThen(io.RawIOBase):
    """What comes out of a socket, as long as there is time."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase, seconds: float, until: float) -> None:
        self._socket, self._raw, self._seconds, self._until = sock, raw, seconds, until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview, /) -> int | None:  # type: ignore[override]
        self._socket.settimeout(_left(self._seconds, self._until))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


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
