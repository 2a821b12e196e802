"""Where the training is in its data, and the batches that come next."""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, astuple, replace
from itertools import chain
from typing import Any

from hpctools.elastic.containers import plain
from hpctools.elastic.group import Group
from hpctools.elastic.indexed import Indexed
from hpctools.elastic.loading import AHEAD, Loading, LoadingHere, LoadingProcesses
from hpctools.elastic.pieces import Cut, Fill, Piece, Seated, Step, one_at_least
from hpctools.elastic.randomness import draw_from
from hpctools.elastic.readable import check_readable
from hpctools.elastic.sampling import Cursor, Sampling, StreamSampling
from hpctools.elastic.session import LONE
from hpctools.elastic.sources import Mark
from hpctools.elastic.state import share
from hpctools.elastic.streams import Streams
from hpctools.errors import ElasticError

MARK_STEPS = 64
"""Every so many steps all workers tell each other where their streams stand."""
MOST_EMPTY = 1000
"""A loop that begins so many passes once the training is complete has no end."""


class Batches:
    """The cursor, and the pieces and batches of each step.

    Args:
        cut: which pieces of a step are a worker's.
        num_workers: loading processes; 0: batches are made here when they are wanted.

    Raises:
        ElasticError: there cannot be so many.

    Attributes:
        cursor: the next step's place.
        began: with streams, after how many steps each epoch but the first began, as far as that is known.
        fill: with streams, adds what is fed without effect where several workers train.
        unchecked: whether it is still to be asked if what a stream says of its place can be read back.
    """

    def __init__(
        self, sampling: Sampling | StreamSampling, source: Indexed | Streams, cut: Cut, num_workers: int
    ) -> None:
        if num_workers < 0:
            raise ElasticError(f"elastic.Loader: num_workers is {num_workers}", "it has to be 0 or more")
        self.sampling = sampling
        self.cursor = Cursor()
        self.began: dict[int, int] = {}
        self.fill: Fill = one_at_least
        self.unchecked = False
        self._too_many = 0
        self._told_unreadable = False
        self._source = source
        self._cut = cut
        self._group = LONE
        self._soon = AHEAD * num_workers
        self._foreseen: tuple[int, Cursor] | None = None
        self._ready: dict[Piece, Any] = {}
        self._practice: Any = None
        self._marks: dict[int, Mark] = {}
        self._coming: dict[int, Mark] = {}
        self._loading: Loading = (
            LoadingProcesses(source, self._ahead, num_workers)
            if num_workers
            else LoadingHere(source, self._ahead)
        )

    @property
    def is_over(self) -> bool:
        """Whether the last epoch has ended."""
        return self.sampling.is_over(self.cursor)

    @property
    def rounds(self) -> int:
        """Exchanges of all workers that lie behind."""
        return self.sampling.rounds(self.cursor)

    def check_pass(self, number: int, known: int) -> None:
        """Whether the loop may begin a pass; who resumes a complete training runs through empty ones.

        A few passes too many are told, and do not fail a training that is complete; without an end they would
        go round for ever. They are counted from its end on: a loop may have many short passes before.

        Args:
            number: of the pass, from 0.
            known: the furthest that was known before; who resumes runs through all passes up to it.

        Raises:
            ElasticError: the training is complete, and this is the `MOST_EMPTY`th pass too many.
        """
        epochs = self.sampling.epochs
        if not self.is_over or number < epochs or number <= known:
            return
        self._too_many += 1
        what = (
            f"the loop begins pass {number + 1}, and the training of {epochs} epochs is complete "
            f"(step {self.cursor.step})"
        )
        remedy = "give the loader as many epochs= as the loop is to have, or end the loop after so many"
        if self._too_many >= MOST_EMPTY:
            raise ElasticError(what, remedy)
        if self._too_many == 1:
            warnings.warn(f"{what}: it is empty; {remedy}", RuntimeWarning, stacklevel=3)

    def skip(self) -> None:
        """Pass over the next step; of the next epoch, where streams are known to have ended."""
        if isinstance(self.sampling, Sampling):  # a stream is read on
            self._loading.turn()
        elif self.began.get(self.cursor.epoch + 1) == self.cursor.step:
            self.cursor = self.sampling.after_epoch(self.cursor)
        self.cursor = self.sampling.after(self.cursor)

    def rehearsal(self) -> tuple[Piece, Any]:
        """A piece for practice, and its batch.

        Raises:
            ElasticError: all streams are empty, or what one says of its place cannot be read back.
        """
        if isinstance(self.sampling, Sampling):
            piece = self._piece_for_practice()
            return piece, self._loading.load(piece).batch
        for shard in range(self.sampling.shards):
            low, high = self.sampling.slice_of(self.cursor, shard)
            piece = Piece(self.cursor, shard, low, high, 0, is_practice=True)
            loaded = self._loading.load(piece)
            self._practice = loaded.batch
            self._told(loaded.mark)
            if self._practice is not None:
                return piece, self._for_practice()
        raise _empty()

    def plan(self, group: Group) -> Step:
        """A worker's part of the next step, or, when it is begun again, of the same one.

        With streams their samples are read now, as only then it is known how many there are; one process
        by itself that finds none goes on with the next epoch (`cursor`), and the step has no pieces.

        Raises:
            ElasticError: one process by itself finds none at the very beginning.
        """
        if group is not self._group:
            self._group = group
            self._loading.turn()
        self._ready.clear()
        self._coming.clear()
        pieces = self._cut(self.cursor, group.rank, group.world)
        if isinstance(self.sampling, StreamSampling):
            pieces = self._read(pieces)
            if group.world > 1:
                pieces = self.fill(pieces, group.world)
            elif not any(piece.is_fed for piece in pieces):
                if self.cursor == Cursor():
                    raise _empty()
                self.passed(0)
                return Step(self.rounds, 1, 1, ())
        low, high = self.sampling.batch(self.cursor)
        return Step(self.rounds, self.sampling.shards_of(self.cursor), high - low, tuple(pieces))

    def batch(self, piece: Piece) -> Any:
        """What the loop is fed for a piece."""
        if piece in self._ready:
            return self._ready.pop(piece)
        if piece.is_practice and isinstance(self.sampling, StreamSampling):
            return self._for_practice()
        return self._loading.load(piece).batch

    def place(self, ahead: int) -> Cursor:
        """Where the training will be after so many steps from now on."""
        cursor = self.cursor
        for _ in range(ahead):
            cursor = self.sampling.after(cursor)
        return cursor

    def look_ahead(self, coming: Seated | None, left: int) -> None:
        """Load what we shall want first in a group that may come into force after this step, too.

        A guess that is wrong costs what was loaded in vain; batches are the same.

        Args:
            left: pieces of this step that are not done. It comes after them, as soon as all are asked for.
        """
        if coming is not None and left <= self._soon and self._foreseen != (coming.number, self.cursor):
            self._foreseen = coming.number, self.cursor
            self._loading.foresee(self._from(self.place(1), coming))

    def begins(self, group: Group, cursor: Cursor) -> None:
        """Load what we shall want in a group that begins here or there; before it that of the next step."""
        is_next = self._group is not LONE and cursor == self.place(1)
        ours = self._cut(self.cursor, self._group.rank, self._group.world) if is_next else []
        self._loading.follow(chain(ours, self._from(cursor, group)))

    def draw(self, shard: int) -> None:
        """Let the random numbers be those of one shard's forward pass."""
        draw_from(self.sampling.seed, "shard", self.cursor.step, shard)

    def indices(self) -> list[int]:
        """The samples of the next step's global batch, in order; empty for streams."""
        if isinstance(self._source, Streams):
            return []
        return self._source.indices(self.cursor.epoch, *self.sampling.batch(self.cursor))

    def passed(self, samples: int) -> None:
        """The next step is done with so many samples; none: all streams have ended."""
        self._marks |= self._coming
        if samples == 0 and isinstance(self.sampling, StreamSampling):
            self.cursor = self.sampling.after_epoch(self.cursor)
            if not self.is_over:
                self.began[self.cursor.epoch] = self.cursor.step
        else:
            self.cursor = self.sampling.after(self.cursor)

    def tell(self, group: Group, agreed: int) -> None:
        """Tell all ranks where our streams will stand after this step, if it is time; in the group's thread.

        It is before a planned change, so that those who take over need not read anything again, and every
        MARK_STEPS steps, for those who take over from one that dies. What others could not read is left out.

        Raises:
            RuntimeError: a peer is gone.
        """
        due = agreed > group.number or (self.cursor.step + 1) % MARK_STEPS == 0
        if isinstance(self.sampling, Sampling) or group.world == 1 or not due:
            return
        for marks in share(group, self._readable(self._coming)).values():
            self._coming |= {shard: Mark(*mark) for shard, mark in marks.items()}

    def capture(self) -> Mapping[str, Any]:
        """The place in the data, for another worker."""
        marks = self._readable(self._marks)
        place = {"cursor": asdict(self.cursor), "streams": marks}
        return {**place, "began": dict(self.began), "began_of": self._shape}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from another worker's place; states of earlier releases do not tell where epochs began."""
        self.cursor = Cursor(**state["cursor"])
        # With another shape epochs have other numbers of steps, also those that a roll back may go to.
        known = tuple(state.get("began_of", self._shape)) == self._shape
        self.began = dict(state.get("began", {})) if known else {}
        if isinstance(self.sampling, Sampling) and self.cursor.offset >= self.sampling.samples:
            # What was saved is of a data set with more samples (which is said): of this one none is left.
            self.cursor = Cursor(self.cursor.step, self.cursor.epoch + 1, 0)
        self._marks = {shard: Mark(*mark) for shard, mark in state["streams"].items()}
        self._loading.turn()

    @property
    def _shape(self) -> tuple[int, int]:
        """What decides how many steps an epoch of streams has, besides the data."""
        return self.sampling.batch_size, self.sampling.shards

    def close(self) -> None:
        """The training is over: end the loading processes."""
        self._loading.close()

    def _piece_for_practice(self) -> Piece:
        """A shard; in fast mode about as much, but two samples of a batch that has them, for batch norms."""
        low, high = self.sampling.batch(self.cursor)
        world = max(1, min(self.sampling.shards, (high - low) // 2))
        pieces = self._cut(self.cursor, world - 1, world)
        largest = max(pieces, key=lambda piece: piece.high - piece.low)
        return replace(largest, number=0, samples=0, is_practice=True)

    def _for_practice(self) -> Any:
        """A copy where there can be one: it is fed again and again, and the loop may change what it gets."""
        try:
            return copy.deepcopy(self._practice)
        except Exception:  # noqa: BLE001 - a result of autograd, a lock, or whatever a data set's samples hold
            return self._practice

    def _read(self, pieces: list[Piece]) -> list[Piece]:
        """Read the streams; the pieces with as many samples as there were."""
        found = []
        for piece in pieces:
            loaded = self._loading.load(piece)
            found.append(replace(piece, samples=loaded.samples))
            self._ready[found[-1]] = loaded.batch
            if (mark := self._told(loaded.mark)) is not None:
                self._coming[piece.number] = mark
        return found

    def _told(self, mark: Mark | None) -> Mark | None:
        """What a stream says of its place, as it is saved and moved."""
        if mark is None or mark.state is None:
            return mark
        if self.unchecked:
            check_readable({"stream.state_dict()": mark.state})
            self.unchecked = False
        return replace(mark, state=plain(mark.state))

    def _readable(self, marks: Mapping[int, Mark]) -> dict[int, tuple[Any, ...]]:
        """As they travel, without those that cannot be read back: what is not known costs reading only."""
        states = {shard: mark.state for shard, mark in marks.items()}
        unreadable: dict[int, str] = {}
        if states and _why_unreadable(states) is not None:
            whys = {shard: _why_unreadable(state) for shard, state in states.items()}
            unreadable = {shard: why for shard, why in whys.items() if why is not None}
        if unreadable and not self._told_unreadable:
            self._told_unreadable = True
            why = next(iter(unreadable.values()))
            _say(f"places of streams are not told, so that who takes over has more to read again: {why}")
        return {shard: astuple(mark) for shard, mark in marks.items() if shard not in unreadable}

    def _ahead(self, piece: Piece) -> Iterator[tuple[Piece, Mark | None]]:
        """The piece, and those that will be wanted after it if nothing changes."""
        marks = dict(self._marks)
        ours = self._cut(piece.cursor, self._group.rank, self._group.world)
        rest = ours[ours.index(piece) + 1 :] if piece in ours else []
        later = () if piece.is_practice else self._from(self.sampling.after(piece.cursor), self._group)
        for each in chain([piece], rest, later):
            yield each, marks.pop(each.number, None)

    def _from(self, cursor: Cursor, group: Seated) -> Iterator[Piece]:
        """All our pieces in a group from a step on."""
        while not self.sampling.is_over(cursor):
            yield from self._cut(cursor, group.rank, group.world)
            cursor = self.sampling.after(cursor)


def _why_unreadable(state: Any) -> str | None:
    try:
        check_readable({"stream.state_dict()": state})
    except ElasticError as error:
        return str(error)
    return None


def _say(line: str) -> None:
    print(f"elastic: {line}", file=sys.stderr, flush=True)


def _empty() -> ElasticError:
    return ElasticError("elastic.Loader: the data set's streams are all empty", "give it samples")
