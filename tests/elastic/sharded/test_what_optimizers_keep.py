"""What an optimizer keeps beside a sharded parameter: sharded like it, the same everywhere, or refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from test_loader import build, loader_for, no_group_stays, train

from hpctools import elastic
from hpctools.elastic.sharded import process_group
from hpctools.elastic.sharded.process_group import ShardGroup
from hpctools.elastic.sharded.trained import (
    Trained,
    built,
    check_kept,
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


class Counting(torch.optim.AdamW):
    """One that counts its steps for all parameters together, as torch's own `load_state_dict` allows."""

    def step(self, closure: Any = None) -> Any:
        self.state["seen"] = self.state.get("seen", 0) + 1
        return super().step(closure)


def build_counting(mesh: Any) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model, _ = build(mesh)
    return model, Counting(model.parameters(), lr=0.05)


def test_what_it_keeps_of_all_parameters_together_goes_with_the_training(tmp_path: Path) -> None:
    """It was a bare KeyError in the second step."""
    settings = elastic.Checkpoint(folder=str(tmp_path), every_seconds=0, every_steps=2)
    loader = loader_for(build_counting, checkpoint=settings)
    train(loader, lambda: loader.model, loader.optimizer)
    process_group.uninstall()
    again = loader_for(build_counting, checkpoint=settings)
    assert (again.step, again.optimizer.state["seen"]) == (4, 4)


def test_the_second_step_looks_at_the_parameters_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """There nothing is moved yet, and nothing need be captured."""
    loader = loader_for(build_counting)
    monkeypatch.setattr("hpctools.elastic.sharded.shards.plain_state", lambda *_: {}["nothing"])
    train(loader, lambda: loader.model, loader.optimizer)


def test_what_is_there_before_the_first_step_does_not_end_the_looking() -> None:
    trained = built(build, process_group.install(ShardGroup(0, 2, None), "cpu"), with_values=True)
    trained.optimizer.state["seen"] = 1
    assert not check_kept(trained)
    for parameter in trained.parameters.values():
        trained.optimizer.state[parameter]["momentum"] = torch.zeros_like(local(parameter))
    with pytest.raises(ElasticError, match="as a plain tensor"):
        check_kept(trained)


@pytest.mark.parametrize("of_a_tensor", [False, True])
def test_what_cannot_be_moved_of_it_is_refused_in_words(of_a_tensor: bool) -> None:
    trained = rank_of_two(0, torch.zeros_like)
    parameter = next(iter(trained.parameters.values()))
    if of_a_tensor:
        trained.optimizer.state[torch.zeros(2)]["momentum"] = 1
    else:
        trained.optimizer.state["mean"] = parameter
    what = "a tensor that is no parameter of the model" if of_a_tensor else "'mean'"
    with pytest.raises(ElasticError, match=f"the optimizer keeps state of {what}, which cannot be moved"):
        plain_state(trained)
