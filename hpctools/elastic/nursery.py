"""Forks processes for a training that has threads and connections by now, as it was before it had any.

A fork of such a process may wait for ever for what another thread held, and keeps sockets open whose end the
others of the run wait for. So the training forks one process at once, which only forks others on demand.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any

from hpctools.elastic.channel import die_with_parent
from hpctools.errors import ElasticError

LAST_SECONDS = 5.0
END_SECONDS = 5.0

Work = Callable[[int, int, Connection], None]
"""What a process does: the id of its parent, its number, its line to the training."""

_FORK = multiprocessing.get_context("fork")


class NurseryError(ElasticError):
    """No process can be forked any more, or none for now."""


class Nursery:
    """The process that forks others. They end with it, and it ends with the training.

    Args:
        work: what each of them does.

    Raises:
        OSError: it cannot be forked.
    """

    def __init__(self, work: Work) -> None:
        self._owner = os.getpid()
        self._line, theirs = _FORK.Pipe()
        self._process = _FORK.Process(
            target=_nurse, args=(os.getpid(), self._line, theirs, work), name="elastic-nursery"
        )
        self._process.start()
        theirs.close()
        atexit.register(self.close)  # before multiprocessing's own, which would wait for it

    def start(self, number: int) -> Connection:
        """Fork one; returns the line to it, which breaks when it ends.

        Args:
            number: names it; one with this number before has ended.

        Raises:
            NurseryError: there is no memory or process left for it, or the nursery has ended.
        """
        ours, theirs = _FORK.Pipe()
        with self._asking(), theirs:
            self._line.send(("start", number))
            send_handle(self._line, theirs.fileno(), self._process.pid)
            refused = self._line.recv()
        if refused:
            ours.close()
            raise NurseryError(
                f"loading process {number} cannot be started: {refused}",
                "use fewer num_workers, or ask for more memory (--mem)",
            )
        return ours

    def exit_code(self, number: int) -> int | None:
        """How one has ended (negative: by that signal), awaited for a moment; None: it still runs.

        Raises:
            NurseryError: the nursery has ended.
        """
        with self._asking():
            self._line.send(("exit code", number))
            code: int | None = self._line.recv()
        return code

    def close(self) -> None:
        """End all of them; in a fork of the training, which has our line, nothing is ended."""
        atexit.unregister(self.close)
        if self._line.closed or os.getpid() != self._owner:
            return
        with contextlib.suppress(OSError):
            self._line.send(("close", 0))
        self._process.join(END_SECONDS)
        self._process.kill()
        self._process.join()
        self._line.close()

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError):
            self._process.join(LAST_SECONDS)
            raise NurseryError(
                "the process that forks loading processes has ended "
                f"(exit code {self._process.exitcode}), and all of them with it",
                "-9: the node may be short of memory, use fewer num_workers or ask for more (--mem)",
            ) from None


def _nurse(training: int, far_end: Connection, line: Connection, work: Work) -> None:
    """The nursery: until it is told to end."""
    die_with_parent(training)
    # Slurm's SIGTERM reaches us, too; the training still finishes its step.
    for ignored in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ignored, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a handler of the script's might take the exit codes
    far_end.close()
    started: dict[int, ForkProcess] = {}
    with contextlib.suppress(EOFError, OSError):
        while (asked := line.recv())[0] != "close":
            line.send(_answer(line, started, work, *asked))
    for each in started.values():
        each.kill()
    for each in started.values():
        each.join()
    os._exit(0)  # what the training has registered for its own end is not for ours


def _answer(line: Connection, started: dict[int, ForkProcess], work: Work, kind: str, number: int) -> Any:
    if kind == "start":
        with Connection(recv_handle(line)) as theirs:
            return _forked(started, number, (os.getpid(), line, theirs, work, number))
    started[number].join(LAST_SECONDS)
    return started[number].exitcode


def _forked(started: dict[int, ForkProcess], number: int, arguments: tuple[Any, ...]) -> str | None:
    """Why it could not be; None: it was."""
    process = _FORK.Process(target=_run, args=arguments, name=f"elastic-load-{number}")
    try:
        process.start()
    except OSError as error:
        return error.strerror or str(error)
    started[number] = process
    return None


def _run(parent: int, line: Connection, own: Connection, work: Work, number: int) -> None:
    line.close()
    work(parent, number, own)
