"""Who makes batches of pieces: the training's own process, or several loading processes ahead of it.

A batch depends on its piece alone: whoever makes it seeds the random numbers by the piece's samples. So the
batches are the same to the bit with any number of loading processes.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection
from typing import Any, Protocol

import torch
import torch.multiprocessing
from torch._utils import ExceptionWrapper

from hpctools.elastic.channel import die_with_parent
from hpctools.elastic.pieces import Piece
from hpctools.errors import ElasticError

AHEAD = 2
"""Pieces that each loading process is asked for ahead of the training."""
SHARED_BYTES = 1 << 20


@dataclass(frozen=True)
class Mark:
    """A place in the stream of one virtual shard.

    Attributes:
        epoch: of the stream.
        taken: samples that were taken of it.
        state: its `state_dict()` there; None when it has ended.
    """

    epoch: int
    taken: int
    state: Any


@dataclass(frozen=True)
class Loaded:
    """What a piece came to.

    Attributes:
        batch: what the loop is fed; None when there were no samples.
        samples: how many there were.
        mark: where the piece's stream stands after it; None for a data set without streams.
    """

    batch: Any
    samples: int
    mark: Mark | None = None


class Source(Protocol):
    """Makes batches of pieces.

    Attributes:
        is_sticky: whether the pieces of one virtual shard are best made by one process.
    """

    is_sticky: bool

    def load(self, piece: Piece, mark: Mark | None) -> Loaded:
        """Read a piece's samples.

        Args:
            mark: a place that is known before the piece; used when the stream does not stand there already.
        """
        ...


Ahead = Callable[[Piece], Iterator[tuple[Piece, Mark | None]]]
"""The pieces from one on, as far as can be known, in the order in which they will be wanted."""


class Loading(Protocol):
    """Gives the batches of pieces as they are wanted."""

    def load(self, piece: Piece) -> Loaded:
        """The batch of a piece; waits for it."""
        ...

    def forget(self) -> None:
        """What was to come next is no longer what will be wanted."""
        ...

    def close(self) -> None:
        """Nothing more will be wanted."""
        ...


class LoadingHere:
    """Loads each piece when it is wanted."""

    def __init__(self, source: Source, ahead: Ahead) -> None:
        self._source = source
        self._ahead = ahead

    def load(self, piece: Piece) -> Loaded:
        """Read it now."""
        wanted, mark = next(self._ahead(piece))
        return self._source.load(wanted, mark)

    def forget(self) -> None:
        """Nothing was loaded ahead."""

    def close(self) -> None:
        """Nobody else loads."""


class LoadingProcesses:
    """Loading processes, forked at once, before the training has threads and connections.

    Args:
        count: how many, 1 or more.

    Raises:
        ElasticError: (from `load`) one of them has ended; other errors are those of the data set.
    """

    def __init__(self, source: Source, ahead: Ahead, count: int) -> None:
        context = multiprocessing.get_context("fork")
        self._ahead = ahead
        self._is_sticky = source.is_sticky
        self._turn = context.RawValue("Q", 0)
        self._coming: Iterator[tuple[Piece, Mark | None]] = iter(())
        self._asked: dict[Piece, int] = {}
        self._arrived: dict[Piece, Any] = {}
        self._connections: list[Connection] = []
        self._processes = []
        for number in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_serve,
                args=(os.getpid(), theirs, source, self._turn, number),
                name=f"elastic-load-{number}",
            )
            process.start()
            theirs.close()
            self._connections.append(ours)
            self._processes.append(process)
        atexit.register(self.close)  # before multiprocessing's own, which would wait for them

    def load(self, piece: Piece) -> Loaded:
        """The batch of a piece, which usually has arrived."""
        if piece not in self._asked:
            self.forget()
            self._coming = self._ahead(piece)
            self._ask()
        while piece not in self._arrived:
            self._receive(self._asked[piece])
        del self._asked[piece]
        loaded = self._arrived.pop(piece)
        self._ask()
        if isinstance(loaded, ExceptionWrapper):
            loaded.reraise()  # type: ignore[no-untyped-call]
        return loaded  # type: ignore[no-any-return]

    def forget(self) -> None:
        """Have the processes skip what they were asked for."""
        self._turn.value += 1
        self._coming = iter(())
        self._asked.clear()
        self._arrived.clear()

    def close(self) -> None:
        """End the processes."""
        atexit.unregister(self.close)
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()

    def _ask(self) -> None:
        for piece, mark in islice(self._coming, AHEAD * len(self._connections) - len(self._asked)):
            server = self._asked[piece] = self._server_for(piece)
            try:
                self._connections[server].send((self._turn.value, piece, mark))
            except OSError:
                raise self._ended(server) from None

    def _receive(self, server: int) -> None:
        try:
            turn, piece, loaded = self._connections[server].recv()
        except (EOFError, OSError):
            raise self._ended(server) from None
        if turn == self._turn.value:
            self._arrived[piece] = loaded

    def _server_for(self, piece: Piece) -> int:
        """The process that has the shard's stream open; without streams, the one with the least to do."""
        servers = range(len(self._processes))
        if self._is_sticky:
            return piece.number % len(servers)
        busy = list(self._asked.values())
        return min(servers, key=busy.count)

    def _ended(self, server: int) -> ElasticError:
        self._processes[server].join(1)
        code = self._processes[server].exitcode
        return ElasticError(
            f"loading process {server} has ended (exit code {code})",
            "-9: the node ran out of memory, use fewer num_workers or ask for more; else see its last words",
        )


def _serve(training: int, connection: Connection, source: Source, turn: Any, number: int) -> None:
    """A loading process: until its training ends it."""
    die_with_parent(training)
    # Slurm's SIGTERM reaches us, too; the training still finishes its step, with our batches.
    for ignored in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ignored, signal.SIG_IGN)
    torch.set_num_threads(1)
    while True:
        asked, piece, mark = connection.recv()
        if asked == turn.value:
            _send(connection, (asked, piece, _attempt(source, piece, mark, number)))


def _send(connection: Connection, answer: tuple[int, Piece, Loaded | ExceptionWrapper]) -> None:
    """Small batches through the pipe; large ones in shared memory, at the cost of a handshake a tensor."""
    copied = pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
    if len(copied) <= SHARED_BYTES:
        connection.send_bytes(copied)
    else:
        connection.send(answer)


def _attempt(source: Source, piece: Piece, mark: Mark | None, number: int) -> Loaded | ExceptionWrapper:
    try:
        return source.load(piece, mark)
    except Exception:  # noqa: BLE001 - it is raised again in the training
        return ExceptionWrapper(where=f"in loading process {number}")  # type: ignore[no-untyped-call]
