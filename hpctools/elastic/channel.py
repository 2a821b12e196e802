"""A worker's line to the coordinator: a thread that listens, a thread that shows that we are alive."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any

from hpctools.elastic.folder import CoordinatorAddress
from hpctools.elastic.protocol import BEAT_SECONDS, Message, connect, decode, encode
from hpctools.errors import ElasticError

CONNECT_TIMEOUT = 10.0
PR_SET_PDEATHSIG = 1


class Channel:
    """The connection; messages arrive in its own thread.

    Args:
        hello: who we are; sent with the run's token first.
        on_message: called with every message.
        on_lost: called once, when the coordinator is gone.
        beat: what each sign of life carries.
    """

    def __init__(
        self,
        address: CoordinatorAddress,
        hello: Mapping[str, Any],
        on_message: Callable[[Message], None],
        on_lost: Callable[[], None],
        beat: Callable[[], Mapping[str, Any]],
    ) -> None:
        self._connection = connect(address, CONNECT_TIMEOUT)
        self._on_message = on_message
        self._on_lost = on_lost
        self._beat = beat
        self._sending = threading.Lock()
        self._closed = threading.Event()
        self.send("hello", token=address.token, role="worker", **hello)
        for work in (self._listen, self._show_life):
            threading.Thread(target=work, name=f"elastic{work.__name__}", daemon=True).start()

    def send(self, kind: str, **fields: Any) -> None:
        """Send a message; one that can no longer arrive is dropped, `on_lost` tells."""
        try:
            with self._sending:
                self._connection.sendall(encode(kind, **fields))
        except OSError:
            self.close()

    def close(self) -> None:
        """End the connection."""
        self._closed.set()
        with contextlib.suppress(OSError):  # the other side was first
            self._connection.shutdown(socket.SHUT_RDWR)

    def _listen(self) -> None:
        # A torn connection or line is a lost coordinator.
        with contextlib.suppress(OSError, ElasticError), self._connection.makefile("rb") as lines:
            for line in lines:
                self._on_message(decode(line))
        self._closed.set()
        self._on_lost()

    def _show_life(self) -> None:
        while not self._closed.wait(BEAT_SECONDS / 2):
            self.send("beat", **self._beat())


class Termination:
    """SIGTERM as a flag: Slurm sends it to every process of a job that has to go.

    The worker leaves at the end of a step; the signal's handler does nothing but note it. Outside the
    main thread, where Python admits no handler, the signal keeps its meaning.
    """

    def __init__(self) -> None:
        self.requested = False
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._note)

    def _note(self, *_: object) -> None:
        self.requested = True


def die_with_parent() -> None:
    """Have the kernel end us when the agent that started us is killed (Linux, prctl(2))."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:
        raise SystemExit("the agent of this worker has ended")
