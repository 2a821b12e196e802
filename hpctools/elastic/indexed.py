"""Batches of a map-style data set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from hpctools.elastic.pieces import Piece
from hpctools.elastic.randomness import draw_from
from hpctools.elastic.sampling import Sampling
from hpctools.elastic.sources import Loaded, Mark
from hpctools.elastic.training import MapDataset


class Indexed:
    """Reads a piece's samples one by one, each with random numbers of its own.

    A data set that has `set_epoch` is told of each epoch before its first sample is read here. That is in
    each loading process, as whatever the training does to its own data set does not come there.
    """

    is_sticky = False

    def __init__(self, dataset: MapDataset, collate: Callable[[list[Any]], Any], sampling: Sampling) -> None:
        self._dataset = dataset
        self._collate = collate
        self._sampling = sampling
        self._permuted: tuple[int, torch.Tensor] | None = None
        self._told: int | None = None

    def load(self, piece: Piece, mark: Mark | None = None) -> Loaded:
        """The samples that the epoch's order has at the piece's places."""
        epoch = piece.cursor.epoch
        self._tell(epoch)
        samples = []
        for index in self.indices(epoch, piece.low, piece.high):
            draw_from(self._sampling.seed, "sample", epoch, index)
            samples.append(self._dataset[index])
        return Loaded(self._collate(samples), piece.samples)

    def _tell(self, epoch: int) -> None:
        """Also of one that comes again, after a roll back."""
        if self._told == epoch:
            return
        set_epoch = getattr(self._dataset, "set_epoch", None)
        if callable(set_epoch):
            draw_from(self._sampling.seed, "epoch", epoch)  # what it draws is the same in all processes
            set_epoch(epoch)
        self._told = epoch

    def indices(self, epoch: int, low: int, high: int) -> list[int]:
        """The samples at some places of an epoch's order."""
        if self._permuted is None or self._permuted[0] != epoch:
            self._permuted = (epoch, self._sampling.permutation(epoch))
        return self._permuted[1][low:high].tolist()
