"""Sharded models after passes of the loop that were over before a worker came."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed
from test_loader import build, loader_for
from torch.distributed.tensor import DTensor

from hpctools.elastic.group import Group
from hpctools.elastic.sharded import process_group
from hpctools.elastic.sharded.process_group import ShardGroup
from hpctools.elastic.sharded.trained import built
from hpctools.errors import ElasticError

Call = Callable[[], object]


@pytest.fixture(autouse=True)
def no_group_stays() -> Iterator[None]:
    """torch's default group belongs to the process, not to a test."""
    yield
    process_group.uninstall()


def unmet(work: Callable[[Group], None]) -> bool:
    pytest.fail("it went out to the others")


def test_collectives_and_passes_of_the_model_are_refused() -> None:
    group = ShardGroup(0, 2, unmet)
    trained = built(build, process_group.install(group, "cpu"), with_values=True)
    (parameter, *_) = trained.model.parameters()
    assert isinstance(parameter, DTensor)
    tensor = torch.ones(2)
    calls: list[Call] = [
        partial(torch.distributed.all_reduce, tensor),
        partial(torch.distributed.broadcast, tensor, 0),
        partial(torch.distributed.all_gather, [tensor.clone(), tensor.clone()], tensor),
        torch.distributed.barrier,
        parameter.full_tensor,
        partial(trained.model, torch.ones(4, 6)),
    ]
    group.replays = True
    for call in calls:
        with pytest.raises(ElasticError, match=r"put `if loader\.replays: continue` before"):
            call()
    assert tensor.tolist() == [1.0, 1.0]
    assert not group.void, "the next step's collectives are done"


def resumed(ended: Any) -> Any:
    """A loader that begins where another one has come to."""
    loader = loader_for()
    loader._begin = partial(loader._load_rest, ended._capture_rest())  # type: ignore[method-assign]
    return loader


def test_whoever_resumes_may_call_them_in_passes_of_its_own() -> None:
    """Also in those that are run through, as long as it is alone: there is nobody to be met."""
    first = loader_for()
    for _ in range(2):
        for inputs in first:
            first.backward(first.model(inputs).square().mean())
            if first.step == 4:
                break
    loader, seen = resumed(first), []
    for _ in range(2):
        for inputs in loader:
            assert not loader._shards.group.replays
            loader.backward(loader.model(inputs).square().mean())
        loader.model(torch.ones(4, 6))
        seen.append((loader.step, loader.replays, loader._shards.group.replays))
    assert seen == [(4, True, True), (6, False, False)]
