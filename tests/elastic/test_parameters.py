"""What trains is settled when the loader is made: whoever changes it is told, before weights go wrong."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

from hpctools import elastic
from hpctools.elastic.group import Group
from hpctools.elastic.parameters import _end
from hpctools.elastic.sharded import process_group
from hpctools.errors import ElasticError

DATA = [torch.tensor([0.1 * number, 1.0]) for number in range(8)]
Change = Callable[[nn.Module, torch.optim.Optimizer], Any]


def freeze(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model.get_parameter("0.weight").requires_grad_(False)


def unfreeze(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model.get_parameter("1.bias").requires_grad_()


def add_head(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.add_param_group({"params": nn.Linear(1, 1).parameters()})


CHANGES = [
    (freeze, "requires_grad of parameter 0.weight was changed"),
    (unfreeze, "requires_grad of parameter 1.bias was changed"),
    (add_head, "has 6 parameters in 2 groups, and had 4 in 1"),
]


def half_frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    model.get_parameter("1.bias").requires_grad_(False)
    return model


def train(loader: elastic.Loader, forward: nn.Module, change: Callable[[], Any]) -> list[int]:
    """The steps that were done; the change comes after the second of each epoch's four."""
    steps = []
    for _ in range(2):
        for inputs in loader:
            if loader.backward(forward(inputs).square().mean()):
                steps.append(loader.step)
                if loader.step == 2:
                    change()
    return steps


@pytest.mark.parametrize("mode", ["exact", "fast"])
@pytest.mark.parametrize(("change", "said"), CHANGES)
def test_a_change_is_said_in_the_next_step(mode: Any, change: Change, said: str) -> None:
    model = half_frozen()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = elastic.Loader(model, optimizer, DATA, batch_size=2, epochs=2, shards=2, mode=mode)
    with pytest.raises(ElasticError, match=f"{said}.*grad to None before optimizer.step"):
        train(loader, model, lambda: change(model, optimizer))
    assert loader.step == 2


@pytest.mark.parametrize(("change", "said"), CHANGES[:2])
def test_a_sharded_training_is_told_too(change: Change, said: str) -> None:
    def build(mesh: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
        model = fully_shard(half_frozen(), mesh=mesh)
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    try:
        loader = elastic.ShardedLoader(build, DATA, batch_size=2, epochs=2, shards=2)
        with pytest.raises(ElasticError, match=said):
            train(loader, loader.model, lambda: change(loader.model, loader.optimizer))
        with pytest.raises(ElasticError, match=said):  # a resize would build the model as it was
            loader._move(None, Group(1, 0, 1, None), lambda _, work: work())
    finally:
        process_group.uninstall()


def test_other_learning_rates_and_gradients_that_are_left_out_are_no_change() -> None:
    """What the error's remedy says."""
    model = half_frozen()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = elastic.Loader(model, optimizer, DATA, batch_size=2, epochs=2, shards=2)

    def hold_back() -> None:
        optimizer.param_groups[0]["lr"] = 0.0
        model.get_parameter("0.weight").grad = None

    assert train(loader, model, hold_back) == list(range(1, 9))


def test_parameters_of_nobody_knows_which_model_are_refused() -> None:
    """A loss with weights of its own, for example: each worker would train them by itself."""
    model, other = nn.Linear(2, 1), nn.Linear(3, 1)
    optimizer = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1)
    with pytest.raises(ElasticError, match=r"2 parameters .* group 0 are not the model's .*shape \(1, 3\)"):
        elastic.Loader(model, optimizer, DATA, batch_size=2, epochs=1)


def warned_of(steps_after: Callable[[int], bool], *, clears: bool = False) -> list[str]:
    """What is said where the optimizer steps after some of six steps."""
    trained = half_frozen()
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    loader = elastic.Loader(trained, optimizer, DATA, batch_size=3, epochs=2, shards=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            for inputs in loader:
                if loader.backward(trained(inputs).square().mean()):
                    if steps_after(loader.step):
                        optimizer.step()
                    if clears:
                        optimizer.zero_grad()
    return [str(each.message) for each in caught]


def test_gradients_that_the_loop_wants_to_accumulate_by_itself_are_not_dropped_without_a_word() -> None:
    (said,) = warned_of(lambda step: step % 2 == 0)
    assert said.startswith("the optimizer has used the gradients of step 2 alone: those of the 1 before")
    assert "give a larger batch_size" in said


def test_a_step_that_is_left_out_on_purpose_is_nothing_to_be_said() -> None:
    assert warned_of(lambda step: True) == warned_of(lambda step: False) == []
    assert warned_of(lambda step: step != 3, clears=True) == []


def test_an_optimizer_that_evaluates_the_loss_again_is_refused() -> None:
    """Its closure has one shard of the batch, and each worker another one."""
    trained = half_frozen()
    for more in ({}, {"max_iter": 1, "line_search_fn": "strong_wolfe"}):
        with pytest.raises(ElasticError, match="LBFGS evaluates loss and gradients again"):
            loader_with(trained, torch.optim.LBFGS(trained.parameters(), **more))
    optimizer = torch.optim.LBFGS(trained.parameters(), lr=0.1, max_iter=1)
    loader = loader_with(trained, optimizer)
    losses = []
    for inputs in loader:
        if loader.backward(trained(inputs).square().mean()):
            losses.append(optimizer.step(lambda: loader.loss))
    assert losses[-1] < losses[0]


class ZeroRedundancyOptimizer(torch.optim.SGD):
    """Named as torch's, which needs a process group."""


def test_an_optimizer_that_has_a_part_of_the_state_only_is_refused() -> None:
    trained = half_frozen()
    with pytest.raises(ElasticError, match="a ZeroRedundancyOptimizer has a part of the state only"):
        loader_with(trained, ZeroRedundancyOptimizer(trained.parameters(), lr=0.1))


def loader_with(trained: nn.Module, optimizer: torch.optim.Optimizer) -> elastic.Loader:
    return elastic.Loader(trained, optimizer, DATA, batch_size=2, epochs=1, shards=2)


class Momentum(nn.Module):
    """Has an encoder beside it that follows slowly, in the forward pass or not."""

    def __init__(self, follow: Callable[[torch.Tensor, torch.Tensor], Any]) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(2, 1), nn.Linear(2, 1)
        self.key.requires_grad_(False)
        self.follow = follow
        self.register_buffer("queue", torch.zeros(2))

    @torch.no_grad()
    def update(self) -> None:
        for key, query in zip(self.key.parameters(), self.query.parameters(), strict=True):
            self.follow(key, query)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.update()
        self.queue += inputs.mean(0)
        made: torch.Tensor = self.query(inputs) - self.key(inputs)
        return made


def in_place(key: torch.Tensor, query: torch.Tensor) -> None:
    key.mul_(0.9).add_(query, alpha=0.1)


def as_data(key: torch.Tensor, query: torch.Tensor) -> None:
    key.data = key.data * 0.9 + query.data * 0.1


def in_data(key: torch.Tensor, query: torch.Tensor) -> None:
    key.data.mul_(0.9).add_(query.data, alpha=0.1)


def practise(trained: nn.Module) -> list[str]:
    """What is said when the batch for practice was fed."""
    loader = loader_with(trained, torch.optim.SGD(trained.query.parameters(), lr=0.1))  # type: ignore[arg-type]
    loader._session.is_lone = False  # type: ignore[misc]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for inputs in loader._rehearsal():
            assert not loader.backward(trained(inputs).square().mean())
    return [str(each.message) for each in caught]


@pytest.mark.parametrize("follow", [in_place, as_data, in_data])
def test_a_forward_pass_that_changes_what_does_not_train_is_told(follow: Any) -> None:
    (said,) = practise(Momentum(follow))
    assert said.startswith("the batch for practice has changed parameter key.weight")
    assert "when loader.backward has returned True" in said


class Flagged(nn.Module):
    """Sets a statistic once, and a flag when it has."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(2, 2)
        self.register_buffer("initialized", torch.tensor(False))
        self.register_buffer("mask", torch.tensor([True, False]))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.initialized.fill_(True)
        made: torch.Tensor = self.query(inputs)
        return made * self.mask


def test_a_bool_buffer_is_after_practice_as_it_was_and_its_change_is_told() -> None:
    """Floats are set back: the run would train with a flag that says that they are set."""
    trained = Flagged()
    (said,) = practise(trained)
    assert said.startswith("the batch for practice has changed the bool buffer initialized")
    assert not trained.initialized
    assert trained.mask.tolist() == [True, False]


class Normalized(Flagged):
    """As an ActNorm does it: the first batch decides where it begins."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if not self.initialized:
            self.query.bias.data.copy_(-inputs.mean(0))
        return super().forward(inputs)


def test_a_parameter_that_the_first_batch_sets_would_be_another_one_on_each_worker() -> None:
    told = practise(Normalized())
    assert len(told) == 2
    assert told[0].startswith("the batch for practice has changed the bool buffer initialized")
    assert told[1].startswith("the batch for practice has changed parameter query.bias, which trains")
    trained = Normalized()
    trained(torch.ones(2, 2))
    assert practise(trained) == [], "set before the loader is made"


def first_of_many(key: torch.Tensor, query: torch.Tensor) -> None:
    key.data.view(-1)[:1].add_(1.0)


def last_of_many(key: torch.Tensor, query: torch.Tensor) -> None:
    key.data[..., -1:].add_(1.0)


def changes_nothing(key: torch.Tensor, query: torch.Tensor) -> None:
    key.clamp_(-1e6, 1e6)


def beside(frozen: torch.Tensor, follow: Callable[[torch.Tensor, torch.Tensor], Any]) -> nn.Module:
    """A model with one parameter that does not train, and no others in the way."""
    trained = Momentum(lambda key, query: None)
    trained.frozen = nn.Parameter(frozen, requires_grad=False)
    trained.update = lambda: follow(trained.frozen, trained.frozen)  # type: ignore[method-assign, arg-type]
    return trained


@pytest.mark.parametrize("shape", [(4,), (5, 2), (70_000,), (300, 300), (1, 1, 70_000, 1)])
@pytest.mark.parametrize("follow", [first_of_many, last_of_many])
def test_both_ends_of_a_parameter_are_looked_at(follow: Any, shape: tuple[int, ...]) -> None:
    (said,) = practise(beside(torch.zeros(shape), follow))
    assert "changed parameter frozen" in said


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int32])
def test_a_small_parameter_is_looked_at_everywhere(dtype: torch.dtype) -> None:
    """Also where a sum stays as it is."""
    frozen = torch.arange(100, dtype=dtype)
    assert practise(beside(frozen, lambda key, _: key.copy_(key.flip(0)))) != []
    assert practise(beside(frozen, lambda key, _: key[50].add_(1))) != []


@pytest.mark.parametrize("shape", [(4,), (), (0, 3), (300, 300)])
def test_a_change_in_place_that_changes_no_value_is_nothing_to_be_said(shape: tuple[int, ...]) -> None:
    assert practise(beside(torch.ones(shape), changes_nothing)) == []


def test_what_does_not_train_may_be_sparse_or_lie_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large one that does not lie in order no copy is made, which a GPU may have no room for."""
    assert practise(beside(torch.eye(3).to_sparse(), lambda key, query: None)) == []
    across = torch.zeros(1000, 2000).t()
    copied = []
    contiguous = torch.Tensor.contiguous
    monkeypatch.setattr(
        torch.Tensor, "contiguous", lambda each: (copied.append(each.numel()), contiguous(each))[1]
    )
    assert practise(beside(across, lambda key, query: None)) == []
    assert 0 < max(copied) < 100
    assert _end(across).data_ptr() == across.data_ptr()


def test_buffers_may_change_and_frozen_parameters_may_be_used() -> None:
    assert practise(Momentum(lambda key, query: None)) == []
