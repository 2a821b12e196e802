"""The norm of a sharded model's gradients: of all ranks together, however they are cut."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rank_threads import everywhere, linked
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from hpctools import elastic
from hpctools.elastic.group import Group
from hpctools.elastic.pieces import Piece, Step
from hpctools.elastic.reduction import block
from hpctools.elastic.sampling import Cursor
from hpctools.elastic.sharded import feeding, process_group
from hpctools.elastic.sharded.feeding import ShardedSum
from hpctools.elastic.sharded.process_group import ShardGroup


@pytest.fixture(autouse=True)
def no_group_stays() -> Iterator[None]:
    """torch's default group belongs to the process, not to a test."""
    yield
    process_group.uninstall()


def summed(gradients: Iterable[float]) -> float:
    return sum(gradients)


def norms_of(group: Group, squares: float, steps: list[Step]) -> list[float | None]:
    """What a rank knows after each step, if its own gradients have such squares; steps 3 and 4 are due."""
    found: list[float | None] = []
    shards = ShardGroup(group.rank, group.world, lambda work: work(group) is None)
    model = nn.Module()
    model.register_buffer("seen", torch.zeros(3))
    total: Any = ShardedSum(model, shards, lambda _: False, is_due=lambda: len(found) in (1, 2))
    total._parameters = [SimpleNamespace(grad=squares)]
    for step in steps:
        low, high = block(group.rank, group.world, step.shards)
        total.begin(step, group)
        for piece in step.pieces[low:high]:
            total.begin_piece()
            total.add(piece, torch.tensor(2.0), lambda _: None, 0)
        total.set_back()
        total.measure()
        assert total.apply(total.exchange(group, 0)).loss == 2.0
        assert model.seen.tolist() == [0.0] * 3
        found.append(total.norm)
    return found


def step_of(number: int, shards: int) -> Step:
    pieces = [Piece(Cursor(number), each, each, each + 1, 1) for each in range(shards)]
    return Step(number, shards, shards, tuple(pieces))


@pytest.mark.parametrize("world", [1, 2, 4])
def test_every_rank_knows_the_norm_of_all_gradients(world: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them has nearly all of it; a step is measured when rank 0 said so in the one before."""
    monkeypatch.setattr(feeding, "own_squares", summed)
    groups, steps = linked(world), [step_of(number, 6) for number in range(5)]
    squares = [625.0 - (world - 1), *(1.0 for _ in range(world - 1))]
    found = everywhere([lambda group=group: norms_of(group, squares[group.rank], steps) for group in groups])
    assert found == [[25.0, None, 25.0, 25.0, None]] * world


def test_where_a_rank_has_nothing_to_add_to_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last batch may have fewer samples than there are ranks: part of the norm is none."""
    monkeypatch.setattr(feeding, "own_squares", summed)
    steps = [step_of(0, 2), step_of(1, 3), step_of(2, 3)]
    found = everywhere([lambda group=group: norms_of(group, 3.0, steps) for group in linked(3)])
    assert found == [[None, None, 3.0]] * 3


class Uneven:
    """Streams of which one is shorter."""

    def shard(self, index: int, of: int) -> Iterator[torch.Tensor]:
        return iter([torch.full((6,), float(index + each)) for each in range(12 if index else 3)])


def build(mesh: DeviceMesh) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 1))
    fully_shard(model, mesh=mesh)
    return model, torch.optim.SGD(model.parameters(), lr=1e-3)


@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_what_is_told_is_the_norm_before_clipping(mode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where streams have ended, so that fewer samples are the whole batch."""
    monkeypatch.setattr("hpctools.elastic.metrics.NORM_SECONDS", 0.0)
    loader: Any = elastic.ShardedLoader(build, Uneven(), batch_size=6, epochs=1, shards=2, mode=mode)
    told, expected = [], []
    for inputs in loader:
        if loader.backward(loader.model(inputs).square().mean()):
            gradients = [each.grad for each in loader.model.parameters()]
            whole = [each.full_tensor() for each in gradients if isinstance(each, DTensor)]
            expected.append(math.sqrt(sum(float(each.square().sum()) for each in whole)))
            told.append(loader._metrics.take()["grad_norm"])
            loader.clip_grad_norm_(1e-3)
            loader.optimizer.step()
            loader.optimizer.zero_grad()
    assert len(told) == 4
    assert told == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_gradients_that_are_not_finite_are_told(value: float) -> None:
    loader: Any = elastic.ShardedLoader(build, Uneven(), batch_size=6, epochs=1, shards=2)
    for inputs in loader:
        if loader.backward(loader.model(inputs).square().mean() * value):
            break
    told = loader._metrics.take()
    assert told["grad_finite"] == 0.0
    assert not math.isfinite(told["grad_norm"])
