"""What a training hands to the loader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TypeAlias


class Stateful(Protocol):
    """Anything that can be saved and restored, for example a learning-rate scheduler."""

    def state_dict(self) -> dict[str, Any]:
        """All that it needs to go on elsewhere: plain values, containers and tensors."""
        ...

    def load_state_dict(self, state: dict[str, Any], /) -> Any:
        """Go on from there."""
        ...


class MapDataset(Protocol):
    """A map-style data set, as torch.utils.data.Dataset with a length.

    It may also have `set_epoch(epoch: int)`, called in every process that loads, before the epoch's first
    sample is read there. All that differs between epochs has to come of it: other changes that a script makes
    once it has its loader do not reach the loading processes.
    """

    def __len__(self) -> int:
        """How many samples there are."""
        ...

    def __getitem__(self, index: int, /) -> Any:
        """One sample; the same at every call in an epoch, but for what torch, random or numpy draw."""
        ...


class Stream(Protocol):
    """One stream of samples: that of one virtual shard, over one epoch.

    It may also have `set_epoch(epoch: int)`, called before it is iterated or restored; and `state_dict` and
    `load_state_dict`, as torchdata's stateful data sets: its place after the samples that were taken.
    Without the latter a stream that moves to another worker is read again from its beginning.
    """

    def __iter__(self) -> Iterator[Any]:
        """The samples from the stream's place on; the same ones whenever the place is the same."""
        ...


class StreamDataset(Protocol):
    """A data set that is read in order: one stream for each virtual shard."""

    def shard(self, index: int, of: int, /) -> Stream:
        """Stream number `index` of `of`; each sample is in exactly one of them.

        Called again wherever the stream is to be read: the streams must share nothing that one moves.
        """
        ...


AnyDataset: TypeAlias = MapDataset | StreamDataset | Iterable[Any]
"""What a loader takes. Of a plain iterable every virtual shard reads all, and takes its own samples of it."""
