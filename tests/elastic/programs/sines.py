"""The data set of the test trainings."""

from __future__ import annotations

from collections.abc import Iterator

import torch

Sample = tuple[int, torch.Tensor, torch.Tensor]


class Sines:
    """So many samples of 16 numbers, each with its index and what is to be learnt of it."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Sample:
        inputs = torch.sin(torch.arange(16) * (index + 1.0))
        return index, inputs, inputs[:4].sum().reshape(1)


class SineStream:
    """Some of them, one after the other."""

    def __init__(self, first: int, end: int, samples: Sines) -> None:
        self._next, self._end, self._samples = first, end, samples

    def state_dict(self) -> dict[str, int]:
        return {"next": self._next}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._next = state["next"]

    def __iter__(self) -> Iterator[Sample]:
        while self._next < self._end:
            self._next += 1
            yield self._samples[self._next - 1]


class SineStreams:
    """The same samples in streams: each has some more than the one before, so that they end one by one."""

    def __init__(self, length: int) -> None:
        self._samples = Sines(length)

    def shard(self, index: int, of: int) -> SineStream:
        ends = [len(self._samples) * place**2 // of**2 for place in (index, index + 1)]
        return SineStream(ends[0], ends[1], self._samples)
