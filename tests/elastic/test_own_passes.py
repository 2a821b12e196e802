"""Backward passes of the loop's own: refused where they would train, left alone where they do not."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

from hpctools import elastic
from hpctools.elastic.sharded import process_group
from hpctools.errors import ElasticError

DATA = [torch.sin(torch.arange(4.0) + number) for number in range(12)]
Loop = Callable[[elastic.Loader, nn.Module, torch.optim.Optimizer, torch.Tensor], Any]
MODES = pytest.mark.parametrize("mode", ["exact", "fast"])


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))


def loss_of(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    return model(inputs).square().mean()


def train(mode: Any, loop: Loop, **options: Any) -> list[torch.Tensor]:
    """The weights after three steps."""
    torch.manual_seed(0)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options = {"microbatch": 2, **options} if mode == "fast" else options
    loader = elastic.Loader(model, optimizer, DATA, batch_size=4, epochs=1, shards=2, mode=mode, **options)
    for inputs in loader:
        loop(loader, model, optimizer, inputs)
    assert loader.step == 3
    return [each.detach().clone() for each in model.parameters()]


def plainly(loader: elastic.Loader, model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Any) -> None:
    if loader.backward(loss_of(model, inputs)):
        optimizer.step()
        optimizer.zero_grad()


def a_second_loss(loader: elastic.Loader, model: nn.Module, _: Any, inputs: torch.Tensor) -> None:
    model(inputs).abs().mean().backward()
    loader.backward(loss_of(model, inputs))


@MODES
def test_a_second_loss_is_to_be_added_to_the_first(mode: Any) -> None:
    """It would be weighted as if the batch were the whole global batch."""
    said = r"parameter 0\.weight has a gradient before loader\.backward.*add all losses up"
    with pytest.raises(ElasticError, match=said):
        train(mode, a_second_loss)


def test_a_sharded_model_in_fast_mode_is_told_too() -> None:
    def build(mesh: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
        model = fully_shard(net(), mesh=mesh)
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    try:
        loader = elastic.ShardedLoader(build, DATA, batch_size=4, epochs=1, shards=2)
        batches = iter(loader)
        with pytest.raises(ElasticError, match="has a gradient before loader"):
            a_second_loss(loader, loader.model, loader.optimizer, next(batches))
    finally:
        process_group.uninstall()


class Twice(torch.optim.Optimizer):
    """Sharpness-aware: the gradients of weights that lie a little further; another optimizer steps."""

    def __init__(self, base: torch.optim.Optimizer) -> None:
        super().__init__(base.param_groups, {})
        self.base = base

    def step(self, closure: Any = None) -> None:
        self.base.zero_grad()
        closure()
        self.base.step()


def evaluates_again(loader: elastic.Loader, model: nn.Module, optimizer: Any, inputs: Any) -> None:
    if loader.backward(loss_of(model, inputs)):
        optimizer.zero_grad()
        loss_of(model, inputs).backward()
        optimizer.step()


def evaluates_in_the_step(loader: elastic.Loader, model: nn.Module, optimizer: Any, inputs: Any) -> None:
    if loader.backward(loss_of(model, inputs)):
        optimizer.step(lambda: loss_of(model, inputs).backward())


def has_an_optimizer_inside(loader: elastic.Loader, model: nn.Module, optimizer: Any, inputs: Any) -> None:
    if loader.backward(loss_of(model, inputs)):
        Twice(optimizer).step(lambda: loss_of(model, inputs).backward())


def steps_again(loader: elastic.Loader, model: nn.Module, optimizer: Any, inputs: Any) -> None:
    if loader.backward(loss_of(model, inputs)):
        optimizer.step()
        loss_of(model, inputs).backward()
        optimizer.step()


@MODES
@pytest.mark.parametrize(
    "loop", [evaluates_again, evaluates_in_the_step, has_an_optimizer_inside, steps_again]
)
def test_no_optimizer_steps_with_gradients_that_no_other_worker_has(mode: Any, loop: Loop) -> None:
    with pytest.raises(ElasticError, match=r"SGD\.step\(\) after a backward pass of the loop's own"):
        train(mode, loop)


def perturbs_inputs(loader: elastic.Loader, model: nn.Module, optimizer: Any, inputs: Any) -> None:
    """Fast gradient sign, for which torch gives the model gradients, too; the loss is that of `plainly`."""
    own = inputs.clone().requires_grad_()
    loss_of(model, own).backward()
    assert own.grad is not None
    model.zero_grad(set_to_none=loader.step == 0)
    plainly(loader, model, optimizer, inputs)


def looks_at_gradients(loader: elastic.Loader, model: nn.Module, optimizer: Any, inputs: Any) -> None:
    torch.autograd.grad(loss_of(model, inputs), list(model.parameters()))
    optimizer.zero_grad()
    if loader.backward(loss_of(model, inputs)):
        torch.autograd.grad(loss_of(model, inputs), list(model.parameters()))
        nn.utils.clip_grad_norm_(model.parameters(), 1e6)
        optimizer.step()


def trains_another_model(loader: elastic.Loader, model: nn.Module, optimizer: Any, inputs: Any) -> None:
    other = copy.deepcopy(model)
    loss_of(other, inputs).backward()
    if loader.backward(loss_of(model, inputs)):
        loss_of(other, inputs).backward()
        torch.optim.SGD(other.parameters(), lr=0.1).step()
        optimizer.step()


def evaluates_with_gradients(loader: elastic.Loader, model: nn.Module, optimizer: Any, inputs: Any) -> None:
    if loader.backward(loss_of(model, inputs)):
        optimizer.step()
        loss_of(model, inputs).backward()
        optimizer.zero_grad(set_to_none=False)


@MODES
@pytest.mark.parametrize(
    "loop", [perturbs_inputs, looks_at_gradients, trains_another_model, evaluates_with_gradients]
)
def test_what_does_not_train_the_model_is_left_alone(mode: Any, loop: Loop) -> None:
    for got, expected in zip(train(mode, loop), train(mode, plainly), strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=0)


@MODES
def test_a_gradient_scaler_steps_as_always(mode: Any) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)

    def loop(loader: elastic.Loader, model: nn.Module, optimizer: Any, inputs: Any) -> None:
        if loader.backward(loss_of(model, inputs), scaler):
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()

    for got, expected in zip(train(mode, loop), train(mode, plainly), strict=True):
        torch.testing.assert_close(got, expected)


def steps_by_itself(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    loss_of(model, DATA[0]).backward()
    optimizer.step()


@MODES
def test_what_comes_after_the_loop_is_the_scripts_own(mode: Any) -> None:
    """Also where the loop was left early."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = elastic.Loader(model, optimizer, DATA, batch_size=4, epochs=1, shards=2, mode=mode)
    for inputs in loader:
        if loader.backward(loss_of(model, inputs)):
            break
    steps_by_itself(model, optimizer)
    assert loader.step == 1


@MODES
def test_sparse_gradients_are_looked_at_too(mode: Any) -> None:
    model = nn.Embedding(5, 2, sparse=True)
    loader = elastic.Loader(
        model, torch.optim.SGD(model.parameters(), lr=0.1), [0, 1, 2, 3], batch_size=4, epochs=1, mode=mode
    )
    batches = iter(loader)
    with pytest.raises(ElasticError, match="parameter weight has a gradient before"):
        a_second_loss(loader, model, None, next(batches))


@MODES
def test_models_are_copied_saved_and_forgotten_as_before(mode: Any) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = elastic.Loader(model, optimizer, DATA, batch_size=4, epochs=1, shards=2, mode=mode)
    own = weakref.ref(loader._parameters.own)
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        steps_by_itself(copied, torch.optim.SGD(copied.parameters(), lr=0.1))
    gone = weakref.ref(loader)
    del loader
    gc.collect()
    assert gone() is None
    assert own() is not None  # the model's hooks have it


def infinite(loader: elastic.Loader) -> Iterator[torch.Tensor]:
    while True:
        yield from loader


def loader_of(model: nn.Module, optimizer: torch.optim.Optimizer, mode: Any) -> elastic.Loader:
    return elastic.Loader(model, optimizer, DATA, batch_size=4, epochs=1, shards=1, mode=mode)


@MODES
def test_a_complete_training_leaves_the_model_to_a_script_that_keeps_its_iterator(mode: Any) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = loader_of(model, optimizer, mode)
    batches = infinite(loader)
    for _ in range(loader.total_steps or 0):
        plainly(loader, model, optimizer, next(batches))
    steps_by_itself(model, optimizer)
    steps_by_itself(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert loader.step == 3


@MODES
def test_the_last_gradients_are_the_global_batchs_until_they_are_used(mode: Any) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = loader_of(model, optimizer, mode)
    batches = infinite(loader)
    for _ in range(2):
        plainly(loader, model, optimizer, next(batches))
    with pytest.raises(ElasticError, match="after a backward pass of the loop's own"):
        evaluates_again(loader, model, optimizer, next(batches))


@MODES
def test_another_loaders_batches_are_its_own_also_where_an_iterator_is_kept(mode: Any) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    first, second = (loader_of(model, optimizer, mode) for _ in range(2))
    batches = infinite(first)
    plainly(first, model, optimizer, next(batches))
    for inputs in second:
        plainly(second, model, optimizer, inputs)
    assert (first.step, second.step) == (1, 3)
