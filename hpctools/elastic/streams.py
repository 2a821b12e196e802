"""Batches of a data set that is read in order: one stream for each virtual shard, wherever that shard is.

The place of a stream is a function of the cursor: after k steps of an epoch, k times the shard's samples were
taken. A worker that takes a stream over opens it, restores the last place before that is known, and reads
forward to the cursor's. So does one that has it open at a place before that.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from hpctools.elastic.pieces import Piece
from hpctools.elastic.randomness import draw_from
from hpctools.elastic.sampling import StreamSampling
from hpctools.elastic.sources import Loaded, Mark
from hpctools.elastic.training import Stream, StreamDataset
from hpctools.errors import ElasticError


class Streams:
    """Reads a piece's samples from the stream of its virtual shard."""

    is_sticky = True

    def __init__(
        self, dataset: StreamDataset, collate: Callable[[list[Any]], Any], sampling: StreamSampling
    ) -> None:
        self._dataset = dataset
        self._collate = collate
        self._sampling = sampling
        self._open: dict[int, _Open] = {}

    def load(self, piece: Piece, mark: Mark | None) -> Loaded:
        """The next samples of the stream: fewer than wanted, or none, where it ends."""
        shard, epoch = piece.number, piece.cursor.epoch
        start = self._sampling.taken(piece.cursor, shard)
        stream = self._open.get(shard)
        known = mark if mark is not None and mark.epoch == epoch and mark.taken <= start else None
        if stream is None or not stream.leads_to(epoch, start, known):
            # What `shard` itself draws, such as an order of files, is the same for all shards.
            draw_from(self._sampling.seed, "streams", epoch)
            opened = self._dataset.shard(shard, self._sampling.shards)
            stream = self._open[shard] = _Open(opened, self._seeds(shard), epoch, known)
        stream.skip(start - stream.taken)
        wanted = piece.high - piece.low
        samples = stream.take(wanted)
        batch = self._collate(samples) if samples else None
        return Loaded(batch, len(samples), stream.mark())

    def _seeds(self, shard: int) -> tuple[int | str, ...]:
        seeds = (self._sampling.seed, "stream")
        return seeds if isinstance(self._dataset, _Whole) else (*seeds, shard)


class _Open:
    """A stream that is being read.

    Attributes:
        taken: the place of the cursor that it stands at, which is beyond its end when it has ended.
    """

    def __init__(self, stream: Stream, seeds: tuple[int | str, ...], epoch: int, known: Mark | None) -> None:
        self._stream = stream
        self._seeds = (*seeds, epoch)
        self.epoch = epoch
        self.taken = known.taken if known is not None else 0
        self._ended = known is not None and known.state is None
        if hasattr(stream, "set_epoch"):
            stream.set_epoch(epoch)
        if isinstance(stream, _EveryNth):
            stream.seeds = self._seeds
        if known is not None and not self._ended:
            stream.load_state_dict(known.state)  # type: ignore[attr-defined]
        draw_from(*self._seeds)
        self._samples = iter(stream)

    def leads_to(self, epoch: int, start: int, known: Mark | None) -> bool:
        """Whether to go on with it to a place; not where a place that is known lies between."""
        is_ahead = known is None or known.taken <= self.taken or self._ended
        return self.epoch == epoch and self.taken <= start and is_ahead

    def take(self, count: int) -> list[Any]:
        """The next samples, each with random numbers of its own; fewer at the end."""
        samples: list[Any] = []
        # Once ended it is not asked again: some data sets would begin anew.
        while len(samples) < count and not self._ended:
            draw_from(*self._seeds, self.taken + len(samples))
            try:
                samples.append(next(self._samples))
            except StopIteration:
                self._ended = True
        self.taken += count
        return samples

    def skip(self, count: int) -> None:
        """Read over so many samples; there may be more of them than memory holds."""
        while count > 0 and not self._ended:
            self.take(1)
            count -= 1
        self.taken += count

    def mark(self) -> Mark | None:
        """Where it stands, when it can say."""
        if self._ended:
            return Mark(self.epoch, self.taken, None)
        if not hasattr(self._stream, "state_dict"):
            return None
        # A copy: what it hands out may be what it goes on with.
        return Mark(self.epoch, self.taken, copy.deepcopy(self._stream.state_dict()))


class _EveryNth:
    """An ordinary iterable data set as a stream: every `of`-th sample of the whole, for each shard.

    All shards draw the same random numbers for the same sample of the whole, those that they leave out
    included: else a data set that shuffles would give each of them another order, and samples of it would be
    lost and others come twice.

    Attributes:
        seeds: of the random numbers, the same for all shards.
    """

    seeds: tuple[int | str, ...] = ()

    def __init__(self, dataset: Any, index: int, of: int) -> None:
        self._dataset = _own_copy(dataset)
        self._index = index
        self._of = of

    def set_epoch(self, epoch: int) -> None:
        """Handed on to a data set that wants to know."""
        if hasattr(self._dataset, "set_epoch"):
            self._dataset.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        draw_from(*self.seeds)
        samples = iter(self._dataset)
        for number in count():
            draw_from(*self.seeds, number)
            try:
                sample = next(samples)
            except StopIteration:
                return
            if number % self._of == self._index:
                yield sample


def _own_copy(dataset: Any) -> Any:
    try:
        return copy.deepcopy(dataset)
    except Exception as error:
        raise ElasticError(
            f"elastic.Loader: {type(dataset).__name__} cannot be read by each virtual shard: {error}",
            "each reads a copy of its own: give an object whose __iter__ begins anew and opens "
            "what it needs, in place of a generator or an open file; or one with shard(index, of)",
        ) from error


class _Whole:
    """An ordinary iterable data set, as torch.utils.data.IterableDataset: every shard reads all of it."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def shard(self, index: int, of: int) -> Stream:
        """Its own copy of the data set, and of it every `of`-th sample."""
        return _EveryNth(self._dataset, index, of)


def _has_streams(dataset: Any) -> bool:
    """Whether `shard(index, of)` is there, and not what another library calls so.

    `datasets.Dataset` and `datasets.IterableDataset` of Hugging Face have `shard(num_shards, index, ...)`.
    """
    shard = getattr(dataset, "shard", None)
    if not callable(shard):
        return False
    try:
        return "num_shards" not in inspect.signature(shard).parameters
    except (TypeError, ValueError):  # a builtin that does not tell
        return True


def as_streams(dataset: Any) -> StreamDataset | None:
    """The data set as streams; None: it is map-style.

    Raises:
        ElasticError: it can neither be indexed nor iterated, or gives batches instead of samples.
    """
    if isinstance(dataset, DataLoader) and dataset.batch_sampler is not None:
        raise ElasticError(
            "elastic.Loader: the data set is a DataLoader, which gives batches and not samples",
            "give its data set (loader.dataset) and batch_size=; elastic.Loader takes the DataLoader's place",
        )
    if _has_streams(dataset):
        return dataset  # type: ignore[no-any-return]
    # torch's IterableDataset has a `__getitem__` that only raises, and may have been given a length.
    indexed = hasattr(dataset, "__getitem__") and not isinstance(dataset, IterableDataset)
    if indexed and hasattr(dataset, "__len__"):
        return None
    if hasattr(dataset, "__iter__"):
        return _Whole(dataset)
    raise ElasticError(
        f"elastic.Loader: {type(dataset).__name__} is no data set",
        "give it __len__ and __getitem__, or shard(index, of), or __iter__",
    )
