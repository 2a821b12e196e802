"""Which samples a step takes: a seeded permutation per epoch, one global cursor, fixed virtual shards.

Nothing here depends on the number of processes, so any history of resizes sees every sample exactly once
per epoch, in the same order.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch

from hpctools.elastic.reduction import Node


@dataclass(frozen=True)
class Cursor:
    """How far the training is.

    Attributes:
        step: completed steps since the beginning.
        epoch: the epoch of the next step, from 0.
        offset: samples of that epoch that are done.
    """

    step: int = 0
    epoch: int = 0
    offset: int = 0


@dataclass(frozen=True)
class Sampling:
    """The order of samples.

    Attributes:
        samples: size of the data set.
        batch_size: samples in a global batch; the last one of an epoch may be smaller.
        shards: virtual shards of a global batch; a step with fewer samples has one a sample.
        epochs: passes over the data set.
        seed: of the permutations and of every shard's random numbers.
    """

    samples: int
    batch_size: int
    shards: int
    epochs: int
    seed: int

    @property
    def total_steps(self) -> int:
        """Steps of the whole training."""
        return self.epochs * -(-self.samples // self.batch_size)

    @property
    def last_batch(self) -> int:
        """Samples of an epoch's last batch."""
        return self.samples % self.batch_size or self.batch_size

    def batch(self, cursor: Cursor) -> Node:
        """Places within the epoch's permutation that the next step takes."""
        return cursor.offset, min(cursor.offset + self.batch_size, self.samples)

    def after(self, cursor: Cursor) -> Cursor:
        """The cursor once the next step is done."""
        _, end = self.batch(cursor)
        if end >= self.samples:
            return Cursor(cursor.step + 1, cursor.epoch + 1, 0)
        return Cursor(cursor.step + 1, cursor.epoch, end)

    def is_over(self, cursor: Cursor) -> bool:
        """Whether the last step is done."""
        return cursor.epoch >= self.epochs

    def rounds(self, cursor: Cursor) -> int:
        """Exchanges of all workers that lie behind."""
        return cursor.step

    def permutation(self, epoch: int) -> torch.Tensor:
        """The order of an epoch: int64, shape (samples,)."""
        generator = torch.Generator().manual_seed(mixed_seed(self.seed, "epoch", epoch))
        return torch.randperm(self.samples, generator=generator)

    def shards_of(self, cursor: Cursor) -> int:
        """Virtual shards of the next step; none of them is empty."""
        low, high = self.batch(cursor)
        return min(self.shards, high - low)

    def slice_of(self, cursor: Cursor, shard: int) -> Node:
        """Places within the epoch's permutation that one shard of the next step takes."""
        low, high = self.batch(cursor)
        size, shards = high - low, self.shards_of(cursor)
        return low + shard * size // shards, low + (shard + 1) * size // shards


@dataclass(frozen=True)
class StreamSampling:
    """The order of samples that come in one stream for each virtual shard, of lengths that nobody knows.

    A step takes each shard's share of `batch_size` from its stream, less where a stream ends. An epoch ends
    with a round in which no worker found a sample, which is no step.

    Attributes:
        batch_size: samples in a global batch, as long as no stream has ended.
        shards: streams; at most `batch_size`.
        epochs: passes over the data set.
        seed: of every sample's and every shard's random numbers.
    """

    batch_size: int
    shards: int
    epochs: int
    seed: int

    total_steps = None

    def batch(self, cursor: Cursor) -> Node:
        """Places that the next step takes when no stream ends."""
        return cursor.offset, cursor.offset + self.batch_size

    def after(self, cursor: Cursor) -> Cursor:
        """The cursor once the next step is done."""
        return Cursor(cursor.step + 1, cursor.epoch, cursor.offset + self.batch_size)

    def after_epoch(self, cursor: Cursor) -> Cursor:
        """The cursor once it is known that all streams have ended."""
        return Cursor(cursor.step, cursor.epoch + 1, 0)

    def is_over(self, cursor: Cursor) -> bool:
        """Whether the last epoch has ended."""
        return cursor.epoch >= self.epochs

    def rounds(self, cursor: Cursor) -> int:
        """Exchanges of all workers that lie behind: the steps, and one at the end of each epoch."""
        return cursor.step + cursor.epoch

    def shards_of(self, cursor: Cursor) -> int:
        """Virtual shards of a step; some may have no samples left."""
        return self.shards

    def slice_of(self, cursor: Cursor, shard: int) -> Node:
        """Places that one shard of the next step takes."""
        size = self.batch_size
        return cursor.offset + shard * size // self.shards, cursor.offset + (shard + 1) * size // self.shards

    def taken(self, cursor: Cursor, shard: int) -> int:
        """Samples of a shard's stream that the steps of this epoch have taken."""
        low, high = self.slice_of(cursor, shard)
        return (high - low) * (cursor.offset // self.batch_size)


def mixed_seed(*parts: int | str) -> int:
    """A 63-bit seed that differs for any two different lists of parts."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
