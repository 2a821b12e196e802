"""A loader that nobody has any more: the memory of its model and its processes are free, as between folds."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from lone_training import model
from torch import nn

from hpctools import elastic
from hpctools.elastic.loading import LoadingProcesses
from hpctools.elastic.pieces import Piece
from hpctools.elastic.sampling import Cursor
from hpctools.elastic.sources import Loaded, Mark


class Readers:
    """Samples that tell by which process they were read."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        return os.getpid(), torch.full((6,), float(index))


def train(steps: int, folder: Path | None, mode: str, count: int) -> tuple[weakref.ref[nn.Module], set[int]]:
    """So many steps of a training, or all that there are; who loaded its batches."""
    trained = model()
    optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-2)
    saving = elastic.Checkpoint(folder=str(folder), every_seconds=0, every_steps=1) if folder else None
    options = {"batch_size": 8, "shards": 2, "num_workers": count, "checkpoint": saving, "mode": mode}
    loader = elastic.Loader(trained, optimizer, Readers(), epochs=1, **options)  # type: ignore[arg-type]
    readers: set[int] = set()
    for pids, inputs in loader:
        readers.update(pids.tolist())
        if not loader.backward(trained(inputs).square().mean()):
            continue
        optimizer.step()
        optimizer.zero_grad()
        if loader.step == steps:
            break
    return weakref.ref(trained), readers


def is_there(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


@pytest.mark.parametrize("mode", ["exact", "fast"])
@pytest.mark.parametrize("steps", [2, 99], ids=["left", "complete"])
@pytest.mark.parametrize("saves", [False, True], ids=["unsaved", "saved"])
@pytest.mark.parametrize("count", [0, 2])
def test_model_and_processes_go_with_it(
    tmp_path: Path, count: int, saves: bool, steps: int, mode: str
) -> None:
    before = set(multiprocessing.active_children())
    known, readers = train(steps, tmp_path if saves else None, mode, count)
    for thread in threading.enumerate():  # it holds what it writes until that is complete
        if thread.name.startswith("elastic-checkpoint"):
            thread.join(30)
    gc.collect()
    assert known() is None
    assert set(multiprocessing.active_children()) <= before
    assert len(readers) == max(1, count)
    assert not any(is_there(pid) for pid in readers - {os.getpid()})


class Telling:
    """Tells in which process it was asked for what."""

    is_sticky = False

    def load(self, piece: Piece, mark: Mark | None) -> Loaded:
        return Loaded((os.getpid(), piece.number), 1)


def endless(first: Piece) -> Iterator[tuple[Piece, Mark | None]]:
    for number in range(first.number, 1000):
        yield Piece(Cursor(), number, number, number + 1, 1), None


def test_a_fork_of_the_training_that_forgets_it_ends_nothing() -> None:
    """As another library's loading process does, or one of the script's own: it has all that we have."""
    loading = LoadingProcesses(Telling(), endless, 1)
    try:
        fork = multiprocessing.get_context("fork").Process(target=loading.close)
        fork.start()
        fork.join(30)
        assert fork.exitcode == 0
        (first, *_) = endless(Piece(Cursor(), 0, 0, 1, 1))
        assert loading.load(first[0]).batch[1] == 0
    finally:
        loading.close()
