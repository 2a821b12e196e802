"""A sharded loader that nobody has any more: model and processes go with it. A model that is kept works."""

from __future__ import annotations

import gc
import multiprocessing
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from left_loop import leave_after_two_steps
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from hpctools import elastic
from hpctools.elastic.sharded import process_group


@pytest.fixture(autouse=True)
def no_group_stays() -> Iterator[None]:
    """torch's default group belongs to the process, not to a test."""
    yield
    process_group.uninstall()


def build(mesh: DeviceMesh) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 1))
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters())


def left(folder: Path, **options: Any) -> nn.Module:
    """A training whose loop was left after two steps, one of which was saved; its model."""
    saving = elastic.Checkpoint(folder=str(folder), every_seconds=0, every_steps=1)
    data: Any = list(torch.ones(24, 6))
    given = {"batch_size": 8, "epochs": 1, "shards": 2, "checkpoint": saving, **options}
    loader = elastic.ShardedLoader(build, data, **given)
    leave_after_two_steps(loader)
    assert loader._shard_keeper is not None
    loader._shard_keeper.close()  # what is being written holds it
    return loader.model


@pytest.mark.parametrize("mode", ["fast", "exact"])
def test_model_and_processes_go_with_it(tmp_path: Path, mode: str) -> None:
    before = set(multiprocessing.active_children())
    known = weakref.ref(left(tmp_path, mode=mode, num_workers=1))
    gc.collect()
    assert known() is None
    assert set(multiprocessing.active_children()) <= before


def test_a_model_that_is_kept_is_evaluated_without_it(tmp_path: Path) -> None:
    model = left(tmp_path)
    gc.collect()
    with torch.no_grad():
        assert model(torch.ones(3, 6)).shape == (3, 1)
