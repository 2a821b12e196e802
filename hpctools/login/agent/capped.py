"""Servers with a thread for each connection, of which nobody can hold more than a few, or one for long."""

from __future__ import annotations

import logging
import socket
import socketserver
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock, Thread
from typing import Any, ClassVar, TypeVar

_log = logging.getLogger("hpctools.login")
_PEER = struct.Struct("3i")
_ROOT = 0
_POLL_SECONDS = 0.1
Server = TypeVar("Server", bound=socketserver.BaseServer)


@dataclass(frozen=True)
class Cap:
    """What connections may be.

    Attributes:
        seconds: that one may take, from its first byte to its last.
        most: open at the same time; None for no limit.
        most_of_one: of one person. Root's are not counted.
    """

    seconds: float
    most: int | None = None
    most_of_one: int | None = None


@dataclass(frozen=True)
class _Open:
    uid: int | None
    since: float
    connection: socket.socket


class CappedServer(socketserver.ThreadingMixIn):
    """Turns connections away that are too many, and hangs up on those that take too long.

    What each thread waits for is its connection: one that is hung up on ends it, however it was held.
    """

    daemon_threads = True
    # Nobody waits for threads at the end, so they need not be kept in a list.
    block_on_close = False
    cap: ClassVar[Cap]
    refusal: ClassVar[bytes] = b""
    """What one is told that is turned away."""
    monotonic: Callable[[], float] = staticmethod(time.monotonic)

    def __init__(self, *words: Any) -> None:
        self._lock = Lock()
        self._open: dict[int, _Open] = {}
        self._complained = -60.0
        super().__init__(*words)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin a thread, unless there are too many."""
        if not self._admit(request):
            with suppress(OSError):
                request.setblocking(False)
                request.send(self.refusal)
            request.close()
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError as error:  # the kernel gives no more threads
            self._complain(f"no thread for a connection: {error}")
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """It is over."""
        with self._lock:
            self._open.pop(id(request), None)
        super().shutdown_request(request)  # type: ignore[misc]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who hangs up in the middle is no news."""
        if not isinstance(sys.exc_info()[1], OSError):
            _log.exception("a connection could not be served")

    def service_actions(self) -> None:
        """Hang up on connections that have had their time; called several times a second."""
        now = self.monotonic()
        with self._lock:
            for each in self._open.values():
                if now - each.since > self.cap.seconds:
                    with suppress(OSError):
                        each.connection.shutdown(socket.SHUT_RDWR)

    def _admit(self, request: socket.socket) -> bool:
        uid = peer(request) if request.family == socket.AF_UNIX else None
        with self._lock:
            if uid != _ROOT and not self._has_room(uid):
                self._complain(f"connections are turned away{f' of uid {uid}' if uid is not None else ''}")
                return False
            self._open[id(request)] = _Open(uid, self.monotonic(), request)
            return True

    def _has_room(self, uid: int | None) -> bool:
        counted = [each.uid for each in self._open.values() if each.uid != _ROOT]
        full = self.cap.most is not None and len(counted) >= self.cap.most
        one_full = self.cap.most_of_one is not None and counted.count(uid) >= self.cap.most_of_one
        return not (full or one_full)

    def _complain(self, words: str) -> None:
        """Once a minute: who can fill the log is no better than who can fill the agent."""
        if self.monotonic() - self._complained >= 60:
            self._complained = self.monotonic()
            _log.warning("%s: too many are open", words)


def started(server: Server) -> Server:
    """A server that serves, in a thread that ends with the process."""
    serve = {"poll_interval": _POLL_SECONDS}
    Thread(target=server.serve_forever, kwargs=serve, daemon=True).start()
    return server


def peer(connection: socket.socket) -> int:
    """The uid of who is at the other end of a Unix socket, as the kernel knows it."""
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return int(_PEER.unpack(packed)[1])
