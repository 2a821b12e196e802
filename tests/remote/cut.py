"""A line that breaks: a proxy that hangs up after so many bytes, or says nothing any more."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

_NO_LIMIT, _CUT = -1, -2


class Cutter:
    """Passes connections on to a port; the first ones end after so many bytes.

    Attributes:
        budgets: bytes that each next connection may carry, both ways together; afterwards there is no limit.
        silent: one that is cut does not end: nothing comes through any more, as with a lid that was closed.
        cut: how many were cut.
    """

    def __init__(self, target: int, budgets: list[int], *, silent: bool = False) -> None:
        self.target, self.budgets, self.silent, self.cut, self.carried = target, budgets, silent, 0, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        self.sockets: list[socket.socket] = []
        self.lock = threading.Lock()  # the two ways of a connection have one budget
        self.threads = [threading.Thread(target=self._accept, daemon=True)]
        self.threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = socket.create_connection(("127.0.0.1", self.target))
                left = [self.budgets.pop(0) if self.budgets else _NO_LIMIT]
                self.sockets += [near, far]
                for source, sink in ((near, far), (far, near)):
                    thread = threading.Thread(target=self._pass_on, args=(source, sink, left), daemon=True)
                    self.threads.append(thread)
                    thread.start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, left: list[int]) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                through = self._counted(data, left)
                sink.sendall(through)
                if len(through) < len(data) and not self.silent:
                    break
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _counted(self, data: bytes, left: list[int]) -> bytes:
        """As much of it as is still carried."""
        with self.lock:
            self.carried += len(data)
            if left[0] == _NO_LIMIT:
                return data
            through = data[: max(0, left[0])]
            if len(through) == len(data):
                left[0] -= len(data)
            elif left[0] != _CUT:  # the other way of it may have been first, and it is cut once
                self.cut, left[0] = self.cut + 1, _CUT
            return through

    def close(self) -> None:
        """End it, with all connections."""
        for each in (self.listener, *self.sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # close alone does not wake who waits on it
        for thread in self.threads:
            thread.join(10)
        for each in (self.listener, *self.sockets):
            each.close()


@contextlib.contextmanager
def cutter(target: int, *budgets: int, silent: bool = False) -> Iterator[Cutter]:
    """A line to a port that breaks."""
    made = Cutter(target, list(budgets), silent=silent)
    try:
        yield made
    finally:
        made.close()
