"""Gradients, buffers and loss as one vector."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from hpctools.elastic.gradients import Buffers, FlatGradients
from hpctools.errors import ElasticError


class Counting(nn.Module):
    """A layer with a mask that never changes, a running mean, and a counter of its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)
        self.unused = nn.Linear(2, 1)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(3))
        self.register_buffer("mean", torch.zeros(1))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.mean += inputs.mean()
        self.calls += 1
        return self.layer(inputs).squeeze(1)


def step(model: nn.Module, shards: list[torch.Tensor], dtype: torch.dtype = torch.float32) -> float:
    flat = FlatGradients(model)
    total = torch.zeros(flat.length, dtype=dtype)
    samples = sum(len(shard) for shard in shards)
    flat.begin_step()
    for shard in shards:
        flat.begin_shard()
        loss = model(shard).square().mean()
        (loss * (len(shard) / samples)).backward()
        part = flat.new_vector()
        flat.capture(part, loss, len(shard) / samples, len(shard))
        total += part
    flat.begin_shard()
    return flat.apply(total, samples).loss


def test_the_sum_of_shards_is_the_mean_over_samples() -> None:
    torch.manual_seed(0)
    model, batch = Counting(), torch.randn(6, 3)
    loss = step(model, [batch[:1], batch[1:4], batch[4:]])
    found = [parameter.grad.clone() for parameter in model.layer.parameters() if parameter.grad is not None]
    model.zero_grad()
    whole = model.layer(batch).squeeze(1).square().mean()
    whole.backward()
    assert abs(loss - whole.item()) < 1e-6
    for mine, parameter in zip(found, model.layer.parameters(), strict=True):
        torch.testing.assert_close(mine, parameter.grad)


def test_a_parameter_that_no_shard_used_has_a_gradient_of_zeros() -> None:
    model = Counting()
    step(model, [torch.randn(2, 3)])
    assert all(
        torch.equal(p.grad, torch.zeros_like(p)) for p in model.unused.parameters() if p.grad is not None
    )
    assert all(p.grad is not None for p in model.unused.parameters())


def test_buffers_change_by_the_mean_of_the_shards_and_infinite_ones_stay() -> None:
    model = Counting()
    step(model, [torch.full((1, 3), 1.0), torch.full((3, 3), 5.0)])
    assert torch.equal(model.mask, nn.Transformer.generate_square_subsequent_mask(3))
    torch.testing.assert_close(model.mean, torch.tensor([0.25 * 1.0 + 0.75 * 5.0]))
    assert model.calls.item() == 1


class Hashing(nn.Module):
    """A layer with whole numbers of some dtype that change by much."""

    def __init__(self, by: int, dtype: torch.dtype = torch.int64) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)
        self.by = by
        self.register_buffer("key", torch.zeros(2, dtype=dtype))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.key += self.by
        return self.layer(inputs).squeeze(1)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("by", [2**24 + 1, -(2**24)])
def test_whole_numbers_that_change_by_more_than_can_be_added_up_are_refused(
    by: int, dtype: torch.dtype
) -> None:
    """A float32 has no 2^24 + 1: they were rounded, without a word."""
    model = Hashing(by, dtype)
    with pytest.raises(ElasticError, match=rf"buffer key \({dtype}\) changed by 16777216 in one step"):
        step(model, [torch.ones(1, 3)])


@pytest.mark.parametrize("by", [2**24 - 1, 1 - 2**24, 0])
def test_whole_numbers_that_can_be_added_up_are_exact(by: int) -> None:
    model = Hashing(by)
    step(model, [torch.ones(1, 3)])
    assert model.key.tolist() == [by, by]


class Reads(TorchDispatchMode):
    """Counts how often a number is read from a tensor, for which a GPU is waited for."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


def test_a_gpu_is_waited_for_once_in_a_step_however_many_counters_a_model_has() -> None:
    """A ResNet's 53 batch norms count their batches."""
    buffers = Buffers(nn.ModuleList(nn.BatchNorm1d(2) for _ in range(9)))
    buffers.remember()
    with Reads() as reads:
        buffers.change([torch.ones_like(each, dtype=torch.float32) for each in buffers.tensors])
    assert reads.count == 1
    assert [each.item() for each in buffers.tensors if each.dtype == torch.int64] == [1] * 9


def test_beside_doubles_there_is_room_for_larger_whole_numbers() -> None:
    model = Hashing(2**52 + 1)
    model.layer.double()
    step(model, [torch.ones(1, 3, dtype=torch.float64)], torch.float64)
    assert model.key.tolist() == [2**52 + 1] * 2


class Watching(Counting):
    """A layer with the least value that it has seen, as torch.ao's observers have it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("least", torch.full((1,), math.inf))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.least.copy_(torch.minimum(self.least, inputs.min()))
        return super().forward(inputs)


@pytest.mark.parametrize(("first", "mean"), [([1.0, 5.0], 4.0), ([0.0, 0.0], 0.0)])
def test_a_buffer_that_was_infinite_has_the_mean_of_what_the_shards_make_of_it(
    first: list[float], mean: float
) -> None:
    model = Watching()
    step(model, [torch.full((1, 3), first[0]), torch.full((3, 3), first[1])])
    assert model.least.item() == mean
    step(model, [torch.full((1, 3), -2.0), torch.full((3, 3), 9.0)])
    assert model.least.item() == mean + (-2.0 - mean) * 0.25


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_narrow_buffer_becomes_what_one_shard_makes_of_it(dtype: torch.dtype) -> None:
    """A difference in its own dtype is rounded to another number, and may be too large for it."""
    model = Watching().to(dtype)
    for value in (1.0, 0.001, 60000.0, -60000.0, 0.5):
        gradients = FlatGradients(model)
        gradients.begin_step()
        model.mean.fill_(value)
        expected = model.mean.clone()
        vector = gradients.new_vector()
        gradients.capture(vector, torch.zeros(()), 1.0, 1)
        gradients.begin_shard()
        gradients.apply(vector, 1)
        assert torch.equal(model.mean, expected)


class Waves(nn.Module):
    """Complex parameters and a complex buffer, after an odd number of real ones."""

    def __init__(self, dtype: torch.dtype = torch.complex64) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.shift = nn.Parameter(torch.randn(3, dtype=dtype.to_real()))
        self.filter = nn.Parameter(torch.randn(4, 3, dtype=dtype))
        self.unused = nn.Parameter(torch.randn(2, dtype=dtype))
        self.register_buffer("mean", torch.zeros(3, dtype=dtype))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        turned = inputs.to(self.filter.dtype) @ self.filter + self.shift
        self.mean += turned.detach().mean(0)
        return turned


def energy(model: Waves, inputs: torch.Tensor) -> torch.Tensor:
    """A real loss of complex outputs; conjugated, so that gradients come back lazily conjugated, too."""
    turned = model(inputs)
    return (turned * (turned.conj() + 1j)).abs().mean()


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_parameters_and_buffers_keep_their_imaginary_parts(dtype: torch.dtype) -> None:
    model, whole = Waves(dtype), Waves(dtype)
    batch = torch.randn(6, 4)
    flat = FlatGradients(model)
    assert flat.dtype == dtype.to_real()
    total = torch.zeros(flat.length, dtype=flat.dtype)
    flat.begin_step()
    for shard in (batch[:2], batch[2:]):
        flat.begin_shard()
        loss = energy(model, shard)
        (loss * (len(shard) / 6)).backward()
        part = flat.new_vector()
        flat.capture(part, loss, len(shard) / 6, len(shard))
        total += part
    flat.begin_shard()
    flat.apply(total, 6)
    energy(whole, batch).backward()
    whole.unused.grad = torch.zeros_like(whole.unused)
    for mine, other in zip(model.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad)
    assert bool(model.filter.grad.imag.abs().sum() > 0)  # type: ignore[union-attr]
    torch.testing.assert_close(model.mean, whole.mean)
