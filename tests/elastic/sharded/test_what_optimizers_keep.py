"""What an optimizer keeps beside a sharded parameter: sharded like it, the same everywhere, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_loader import build, loader_for, no_group_stays, train

from hpctools.elastic.sharded import process_group
from hpctools.elastic.sharded.process_group import ShardGroup
from hpctools.elastic.sharded.trained import (
    Trained,
    built,
    local,
    make_room,
    part_of,
    plain_state,
    put_together,
    sharded_tensors,
)
from hpctools.errors import ElasticError

__all__ = ["no_group_stays"]


def rank_of_two(rank: int, kept: Callable[[Any], torch.Tensor]) -> Trained:
    """A rank whose optimizer keeps something of each parameter."""
    trained = built(build, process_group.install(ShardGroup(rank, 2, None), "cpu"), with_values=True)
    for parameter in trained.parameters.values():
        trained.optimizer.state[parameter]["momentum"] = kept(parameter)
    return trained


def give_to_the_other_rank(trained: Trained) -> None:
    """As rank 0's checkpoint is read; what rank 1 keeps is all ones."""
    plain = plain_state(trained)
    other = rank_of_two(1, lambda parameter: torch.ones_like(local(parameter)))
    examples = {name: part_of(each) for name, each in sharded_tensors(other).items()}
    restored = put_together(other, other.optimizer, make_room(other, examples), plain)
    taken = [restored.optimizer.state[each]["momentum"] for each in restored.parameters.values()]
    assert all(bool((each == 1).all()) for each in taken), "rank 0's"


def test_a_plain_tensor_of_a_ranks_own_part_is_refused() -> None:
    """A rank that is restored would have what rank 0 kept of another part, and nobody would know."""
    trained = rank_of_two(0, lambda parameter: torch.zeros_like(local(parameter)))
    with pytest.raises(
        ElasticError, match=r"keeps 'momentum' of parameter first\.weight as a plain tensor of"
    ) as refused:
        give_to_the_other_rank(trained)
    assert refused.value.remedy.endswith("as torch.zeros_like(parameter) makes it")


@pytest.mark.parametrize("kept", [torch.zeros_like, lambda parameter: torch.zeros(parameter.shape)])
def test_what_is_sharded_or_whole_everywhere_is_not(kept: Callable[[Any], torch.Tensor]) -> None:
    plain_state(rank_of_two(1, kept))


def test_it_is_said_before_there_is_something_to_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the second step, and not ten minutes later, with the first checkpoint."""
    loader = loader_for()

    def refuse(*_: object) -> bool:
        return True

    monkeypatch.setattr("hpctools.elastic.sharded.trained._is_of_part", refuse)
    with pytest.raises(ElasticError, match="as a plain tensor"):
        train(loader, lambda: loader.model, loader.optimizer)
    assert loader.step == 2
