"""A sharded training that finds a checkpoint of another one in its folder: what is said, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_loader import Net, loader_for, no_group_stays, train
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from hpctools import elastic
from hpctools.elastic.sharded import process_group
from hpctools.elastic.sharded.surroundings import fitting
from hpctools.errors import ElasticError

__all__ = ["no_group_stays"]


def saved_in(folder: Path) -> elastic.Checkpoint:
    """A folder that has a checkpoint of `test_loader`'s training."""
    settings = elastic.Checkpoint(folder=str(folder), every_seconds=0, every_steps=2)
    loader = loader_for(checkpoint=settings)
    train(loader, lambda: loader.model, loader.optimizer)
    process_group.uninstall()
    return settings


def building(make: Callable[[], nn.Module], groups: int = 1) -> Any:
    def build(mesh: DeviceMesh) -> tuple[nn.Module, torch.optim.Optimizer]:
        model = make()
        fully_shard(model, mesh=mesh)
        parameters = list(model.parameters())
        parts = [{"params": parameters[:2]}, {"params": parameters[2:]}] if groups == 2 else parameters
        return model, torch.optim.AdamW(parts, lr=0.05)

    return build


class Further(Net):
    """With one more buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))


class OtherShape(Net):
    """With a buffer of another shape."""

    def __init__(self) -> None:
        super().__init__()
        self.norm.register_buffer("running_mean", torch.zeros(9))


class Deeper(Net):
    """With one more layer."""

    def __init__(self) -> None:
        super().__init__()
        self.more = nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (building(lambda: Net(width=7)), r"model first\.weight of shape \(7, 6\)"),
        (building(Deeper), r"parameter more\.\w+"),
        (building(Further), "it has no 'seen'"),
        (building(OtherShape), "size of tensor"),
        (building(Net, groups=2), "2 groups of parameters; before it had 1"),
    ],
)
def test_a_checkpoint_of_another_model_is_told_as_that(tmp_path: Path, build: Any, said: str) -> None:
    """Not that the model has to be built alike at each resize: it is another folder that is needed."""
    settings = saved_in(tmp_path)
    with pytest.raises(ElasticError, match=said) as refused:
        loader_for(build, checkpoint=settings)
    assert refused.value.message.startswith("the newest checkpoint does not fit this training: ")
    assert refused.value.remedy == (
        "train what was saved there, or give another folder (elastic.Checkpoint(folder=...))"
    )


def test_that_the_data_is_cut_otherwise_than_it_was_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = saved_in(tmp_path)
    assert loader_for(checkpoint=settings).step == 4
    assert "of another training" not in capsys.readouterr().err
    process_group.uninstall()
    loader_for(batch_size=14, seed=4, checkpoint=settings)
    assert (
        "the checkpoint is of another training: batch_size was 12 and is 14, seed was 3 and is 4; samples "
        "may be seen twice or not" in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("CUDA error: out of memory"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        MemoryError(),
    ],
)
def test_that_there_is_no_memory_for_it_is_no_other_model(error: Exception) -> None:
    """It may be there at the next try, for which the worker has to hear of it as it is."""
    source: Any = SimpleNamespace(name="checkpoint")
    with pytest.raises(type(error)) as raised, fitting(source):
        raise error
    assert raised.value is error
