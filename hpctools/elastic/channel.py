"""A worker's line to the coordinator: a thread that listens, a thread that shows that we are alive."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from hpctools.elastic.folder import FINAL_STATES, RunFolder
from hpctools.elastic.patience import Lines
from hpctools.elastic.protocol import (
    BEAT_SECONDS,
    EXPELLED,
    SILENCE_SECONDS,
    Message,
    connect,
    decode,
    encode,
)
from hpctools.elastic.restart.events import give_back_to_forked
from hpctools.errors import ElasticError, UnreachableError

CONNECT_TIMEOUT = 2.0
WELCOME_SECONDS = 1.5
FIRST_SECONDS = 60.0
LOOK_SECONDS = 0.1
PR_SET_PDEATHSIG = 1


class Channel:
    """The connection with whoever coordinates the run; it is made again when it breaks.

    Messages arrive in a thread of its own. What is sent while there is no connection is not kept: the next
    hello tells how we stand.

    Args:
        hello: who we are and how we stand; sent with the run's token first.
        on_message: called with every message but the beats.
        on_welcome: called with the term of each coordinator that has admitted us.
        beat: what each sign of life carries.

    Raises:
        UnreachableError: no coordinator answers for FIRST_SECONDS.
        ElasticError: the run has ended, or goes on without us.
    """

    def __init__(
        self,
        folder: RunFolder,
        hello: Callable[[], Mapping[str, Any]],
        on_message: Callable[[Message], None],
        on_welcome: Callable[[int], None],
        beat: Callable[[], Mapping[str, Any]],
    ) -> None:
        self._folder = folder
        self._hello = hello
        self._on_message = on_message
        self._on_welcome = on_welcome
        self._beat = beat
        self._sending = threading.Lock()
        self._closed = threading.Event()
        self._expelled = False
        self._lines: Lines | None = None
        self._connection: socket.socket | None = None
        self._connect_first()
        for work in (self._listen, self._show_life):
            threading.Thread(target=work, name=f"elastic{work.__name__}", daemon=True).start()

    def send(self, kind: str, **fields: Any) -> None:
        """Send a message; one that can no longer arrive is dropped."""
        with self._sending:
            self._send(encode(kind, **fields))

    def close(self) -> None:
        """End the connection for good."""
        self._closed.set()
        self._hang_up()

    def _send(self, line: bytes) -> None:
        try:
            if self._connection is not None:
                self._connection.sendall(line)
        except OSError:
            self._hang_up()

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(OSError):  # the other side was first
                connection.shutdown(socket.SHUT_RDWR)  # who listens notices, and closes it

    def _connect_first(self) -> None:
        deadline = time.monotonic() + FIRST_SECONDS
        while not self._connect():
            check_not_over(self._folder)
            if self._expelled:
                raise ElasticError(EXPELLED)
            if time.monotonic() > deadline:
                raise UnreachableError(
                    f"no coordinator of {self._folder.path} answers",
                    "the run's baseline job has probably ended; hp-status tells",
                )
            time.sleep(LOOK_SECONDS)

    def _connect(self) -> bool:
        """One attempt to be admitted by the coordinator that the folder names."""
        try:
            address = self._folder.coordinator()
            if address is None:
                return False
            connection = connect(address, CONNECT_TIMEOUT)
        except (ElasticError, UnreachableError):
            return False
        connection.settimeout(SILENCE_SECONDS)  # for what is sent
        lines = Lines(connection)
        # What is sent from now on comes after the hello, and what was before is in it.
        with self._sending, contextlib.suppress(OSError, ElasticError, KeyError):
            connection.sendall(encode("hello", token=address.token, role="worker", **self._hello()))
            answer = decode(lines.read(WELCOME_SECONDS))["kind"]
            self._expelled = answer == "expelled"
            if answer == "welcome":
                self._on_welcome(address.term)
                self._connection, self._lines = connection, lines
                return True
        connection.close()
        return False

    def _listen(self) -> None:
        while not self._closed.is_set():
            # A torn connection or line, or silence, is a lost coordinator.
            lines = self._lines
            with contextlib.suppress(OSError, ElasticError, ValueError):
                self._hear(lines)
            with self._sending:
                self._hang_up()
            if lines is not None:
                lines.close()
            while not self._closed.is_set() and not self._connect():
                if self._expelled:
                    self._on_message({"kind": "expelled"})
                    return
                self._closed.wait(LOOK_SECONDS)

    def _hear(self, lines: Lines | None) -> None:
        while lines is not None and (line := lines.read(SILENCE_SECONDS)):
            message = decode(line)
            if message["kind"] != "beat":
                self._on_message(message)

    def _show_life(self) -> None:
        while not self._closed.wait(BEAT_SECONDS / 2):
            self.send("beat", **self._beat())


def check_not_over(folder: RunFolder) -> None:
    """Nobody can be part of a run that has ended.

    Raises:
        ElasticError: it has.
    """
    status = None
    with contextlib.suppress(ElasticError):  # what cannot be read just now says nothing
        status = folder.status()
    if status is not None and status.state in FINAL_STATES:
        raise ElasticError(f"{folder.path} has ended", "submit it again")


class Termination:
    """SIGTERM as a flag: Slurm sends it to every process of a job that has to go.

    The worker leaves at the end of a step; the signal's handler does nothing but note it. Outside the
    main thread, where Python admits no handler, the signal keeps its meaning, and so it does in processes
    that the training forks: `multiprocessing` ends them by it.
    """

    def __init__(self) -> None:
        self.requested = False
        if threading.current_thread() is threading.main_thread():
            former = signal.signal(signal.SIGTERM, self._note)
            give_back_to_forked(self._note, signal.SIG_DFL if former is None else former)

    def _note(self, *_: object) -> None:
        self.requested = True


def die_with_parent(parent: int) -> None:
    """Have the kernel end us when the process that started us is killed (Linux, prctl(2)).

    Args:
        parent: its id, known before this. It may be 1: that of a container's init, or of a training that is
            all there is in its container.

    Raises:
        SystemExit: it has ended already.
    """
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit(f"the process that started this one ({parent}) has ended")
