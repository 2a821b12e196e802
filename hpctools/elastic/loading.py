"""Who makes batches of pieces: the training's own process, or several loading processes ahead of it.

A batch depends on its piece alone: whoever makes it seeds the random numbers by the piece's samples. So the
batches are the same to the bit with any number of loading processes.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, NoReturn, Protocol

from torch._utils import ExceptionWrapper

from hpctools.elastic.loading_process import SKIPPED, serve
from hpctools.elastic.nursery import Nursery, NurseryError
from hpctools.elastic.own_run import own_run
from hpctools.elastic.pieces import Piece
from hpctools.elastic.sources import Loaded, Mark, Source
from hpctools.errors import ElasticError

AHEAD = 2
"""Pieces that each loading process is asked for ahead of the training."""
FORKED_AGAIN = 3
"""Times that a loading process is replaced without so many batches of its place in between:"""
CALM_BATCHES = 100

Coming = Iterator[tuple[Piece, Mark | None]]
Ahead = Callable[[Piece], Coming]
"""The pieces from one on, as far as can be known, in the order in which they will be wanted."""


class Loading(Protocol):
    """Gives the batches of pieces as they are wanted."""

    def load(self, piece: Piece) -> Loaded:
        """The batch of a piece; waits for it."""
        ...

    def turn(self) -> None:
        """What was to come next is no longer what will be wanted."""
        ...

    def foresee(self, pieces: Iterable[Piece]) -> None:
        """These may be wanted first once `turn` is called, and what is wanted now all the same."""
        ...

    def follow(self, pieces: Iterable[Piece]) -> None:
        """From now on these will be wanted, and nothing else, as far as can be known."""
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

    def turn(self) -> None:
        """Nothing was loaded ahead."""

    def foresee(self, pieces: Iterable[Piece]) -> None:
        """Nothing is."""

    def follow(self, pieces: Iterable[Piece]) -> None:
        """They are loaded when they are wanted."""

    def close(self) -> None:
        """Nobody else loads."""


@dataclass(frozen=True)
class _Request:
    """What a loading process was asked for.

    Attributes:
        number: of the request, among all.
        server: the process's number.
        mark: what it was told of the stream's place.
    """

    number: int
    server: int
    mark: Mark | None


class LoadingProcesses:
    """Loading processes, forked as the training was at once, before it had threads and connections.

    When the plan changes, what was loaded ahead and is in the new one, too, is kept: a batch depends on its
    piece alone. Of a stream, which is read in order, it is kept if all of it comes next in the new plan: else
    the stream stands elsewhere, and is opened again.

    They end with `close`, with the process, and when nobody has this any more.

    One that a signal ends is replaced, and its successor is given what it still owed, with the last known
    places of its streams: the batches are the same.

    Args:
        count: how many, 1 or more.

    Raises:
        ElasticError: (from `load`) one of them has ended by itself, or by signals again and again; other
            errors are those of the data set.
    """

    def __init__(self, source: Source, ahead: Ahead, count: int) -> None:
        skipped = self._skipped = multiprocessing.get_context("fork").RawArray("B", SKIPPED)
        self._ahead = ahead
        self._is_sticky = source.is_sticky
        self._is_worker = own_run(os.environ) is not None
        self._coming: Coming = iter(())
        self._has_turned = False
        self._numbers = itertools.count()
        self._asked: dict[Piece, _Request] = {}
        self._foreseen: set[Piece] = set()  # of those, what is not in the present plan
        self._arrived: dict[Piece, Any] = {}
        self._marks: dict[int, Mark] = {}  # the last place of each shard's stream
        self._untold: dict[int, Mark] = {}  # of those, what a successor has to be told
        self._ends = [0] * count
        self._batches = [0] * count  # since the last end
        self._nursery = Nursery(lambda parent, number, line: serve(parent, line, source, skipped, number))
        self._end = weakref.finalize(self, self._nursery.close)  # a loop may leave us, and never come back
        self._end.atexit = False  # the nursery has a handler of its own
        self._connections = [self._nursery.start(number) for number in range(count)]

    def load(self, piece: Piece) -> Loaded:
        """The batch of a piece, which usually has arrived."""
        if self._has_turned or piece not in self._asked:
            self._begin(self._ahead(piece))
        while piece not in self._arrived:
            self._receive(self._asked[piece].server)
        del self._asked[piece]
        self._foreseen.discard(piece)  # if the plan ends here
        loaded = self._arrived.pop(piece)
        self._ask()
        if isinstance(loaded, ExceptionWrapper):
            loaded.reraise()  # type: ignore[no-untyped-call]
        return loaded  # type: ignore[no-any-return]

    def turn(self) -> None:
        """With the next piece that is wanted another plan begins."""
        self._has_turned = True

    def follow(self, pieces: Iterable[Piece]) -> None:
        """Have the processes load these, and skip what they were asked for and is not in it; no streams."""
        if not self._is_sticky:
            self._begin((piece, None) for piece in pieces)

    def foresee(self, pieces: Iterable[Piece]) -> None:
        """Have each process load one of these after what it was asked for; no streams."""
        if self._is_sticky:
            return
        soon = list(islice(pieces, len(self._connections)))
        self._skip(self._foreseen.difference(soon))
        for piece in soon:
            if piece not in self._asked:
                self._foreseen.add(piece)
                self._ask_for(piece, None)

    def close(self) -> None:
        """End the processes."""
        self._end()

    def _begin(self, coming: Coming) -> None:
        """Make this the plan."""
        soon = list(islice(coming, self._most))
        kept = {each for each, _ in soon}
        if self._is_sticky:
            later, coming = self._later(coming)
            kept = self._in_order([each for each, _ in chain(soon, later)])
        self._skip(self._asked.keys() - kept)
        shards = {each.number for each in kept}
        self._marks = {shard: mark for shard, mark in self._marks.items() if shard in shards}
        self._untold = {shard: mark for shard, mark in self._untold.items() if shard in shards}
        self._foreseen = set(self._asked) - {each for each, _ in soon}
        self._coming, self._has_turned = coming, False
        for piece, mark in soon:
            if piece not in self._asked:
                self._ask_for(piece, mark)

    def _later(self, coming: Coming) -> tuple[list[tuple[Piece, Mark | None]], Coming]:
        """Of what comes after the next pieces as much as might be asked for already; and all of it."""
        last = max((each.cursor.step for each in self._asked), default=-1)
        later: list[tuple[Piece, Mark | None]] = []
        for each in coming:
            later.append(each)
            if each[0].cursor.step > min(last, later[0][0].cursor.step + self._most):
                break
        return later, chain(later, coming)

    def _in_order(self, wanted: Sequence[Piece]) -> set[Piece]:
        """What was asked for of the streams of which it is what is wanted next, in that order."""
        before, after = _by_shard(self._asked), _by_shard(wanted)
        same = [asked for shard, asked in before.items() if after.get(shard, [])[: len(asked)] == asked]
        return {piece for asked in same for piece in asked}

    def _skip(self, pieces: Iterable[Piece]) -> None:
        """These are not wanted any more."""
        for piece in pieces:
            self._foreseen.discard(piece)
            asked = self._asked.pop(piece)
            if self._arrived.pop(piece, None) is None:  # else its number may be another one's by now
                self._skipped[asked.number % len(self._skipped)] = True

    @property
    def _most(self) -> int:
        """Pieces of the plan that are asked for ahead."""
        return AHEAD * len(self._connections)

    def _ask(self) -> None:
        """Ask for what comes next, as far ahead as there should be."""
        while len(self._asked) - len(self._foreseen) < self._most:
            if (coming := next(self._coming, None)) is None:
                return
            self._foreseen.discard(coming[0])
            if coming[0] not in self._asked:
                self._ask_for(*coming)

    def _ask_for(self, piece: Piece, mark: Mark | None) -> None:
        number, server = next(self._numbers), self._server_for(piece)
        self._skipped[number % len(self._skipped)] = False
        self._asked[piece] = _Request(number, server, mark)
        try:
            self._send(piece)
        except OSError as error:
            self._replace(server, error)

    def _send(self, piece: Piece) -> None:
        asked = self._asked[piece]
        mark = self._untold.pop(piece.number, asked.mark)
        self._connections[asked.server].send((asked.number, piece, mark))

    def _receive(self, server: int) -> None:
        try:
            number, piece, loaded = self._connections[server].recv()
        except (EOFError, OSError) as error:
            self._replace(server, error)
            return
        self._batches[server] += 1
        if (asked := self._asked.get(piece)) is not None and asked.number == number:
            self._arrived[piece] = loaded
            if isinstance(loaded, Loaded) and loaded.mark is not None:
                self._marks[piece.number] = loaded.mark

    def _server_for(self, piece: Piece) -> int:
        """The process that has the shard's stream open; without streams, the one with the least to do."""
        servers = range(len(self._connections))
        if self._is_sticky:
            return piece.number % len(servers)
        busy = [asked.server for asked in self._asked.values()]
        return min(servers, key=busy.count)

    def _replace(self, server: int, broken: Exception) -> None:
        """Have another process do what one of them still had to do when a signal ended it."""
        is_done = False
        while not is_done:
            try:
                self._judge(server, self._nursery.exit_code(server), broken)
                self._connections[server].close()
                self._connections[server] = self._nursery.start(server)
            except NurseryError as error:
                self._end_too(error)
            is_done = self._ask_again(server)

    def _ask_again(self, server: int) -> bool:
        """Whether all could be asked for: the successor may have been ended meanwhile."""
        owed = [each for each, asked in self._asked.items() if asked.server == server]
        if self._is_sticky:
            shards = [number for number in self._marks if number % len(self._connections) == server]
            self._untold |= {number: self._marks[number] for number in shards}
        try:
            for piece in owed:
                if piece not in self._arrived:
                    self._send(piece)
        except OSError:
            return False
        return True

    def _judge(self, server: int, code: int | None, broken: Exception) -> None:
        """Count the end of one of them; raises where another one would be of no use."""
        if code is None:
            raise broken  # it still runs
        if code >= 0:
            raise ElasticError(
                f"loading process {server} has ended (exit code {code})", "see its last words"
            ) from None
        calm, self._batches[server] = self._batches[server] >= CALM_BATCHES, 0
        self._ends[server] = 1 if calm else self._ends[server] + 1
        what = f"loading process {server} was ended by {_name(-code)}"
        if self._ends[server] > FORKED_AGAIN:
            raise _ended_again(what, self._ends[server]) from None
        _tell(f"{what}; another one takes its place")

    def _end_too(self, error: NurseryError) -> NoReturn:
        """Nobody can be forked any more: a run starts a worker again that a signal has ended."""
        if self._is_worker:
            _tell(f"{error}; this worker ends, and is started again")
            os.kill(os.getpid(), signal.SIGKILL)
        raise error


def _by_shard(pieces: Iterable[Piece]) -> dict[int, list[Piece]]:
    shards: dict[int, list[Piece]] = {}
    for piece in pieces:
        shards.setdefault(piece.number, []).append(piece)
    return shards


def _tell(line: str) -> None:
    print(f"elastic: {line}", file=sys.stderr, flush=True)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one of the real-time signals
        return f"signal {number}"


def _ended_again(what: str, count: int) -> ElasticError:
    return ElasticError(
        f"{what} {count} times, with less than {CALM_BATCHES} batches from each time to the next",
        "SIGKILL: the node is short of memory, use fewer num_workers or ask for more (--mem); SIGBUS: "
        "/dev/shm is full; SIGSEGV and others: a library of the data set fails, try num_workers=0",
    )
