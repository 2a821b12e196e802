"""Fast mode over real gloo groups; the ranks are threads of this process."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from lone_training import File, Noisy, model, train
from test_exchange import on_ranks
from test_gradients import Waves, energy
from torch import nn

from hpctools import elastic
from hpctools.elastic import fast
from hpctools.elastic.exchange import Exchanged
from hpctools.elastic.fast import FastSum, buckets_of
from hpctools.elastic.group import Group
from hpctools.elastic.pieces import Cut, Step, by_blocks
from hpctools.elastic.sampling import Cursor, Sampling
from hpctools.elastic.summing import backward_of
from hpctools.errors import ElasticError

SAMPLING = Sampling(samples=11, batch_size=11, shards=3, epochs=1, seed=0)
INPUTS = torch.sin(torch.arange(66.0)).view(11, 6)


class Wide(nn.Module):
    """Parameters of two dtypes, one that nothing uses, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = model().eval()
        self.scale = nn.Parameter(torch.ones(5, dtype=torch.float64))
        self.unused = nn.Parameter(torch.ones(3))
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.mean += inputs.mean(0)
        return self.layers(inputs) * self.scale.mean().float()


def step_of(cut: Cut, group: Group) -> Step:
    return Step(7, 3, 11, tuple(cut(Cursor(), group.rank, group.world)))


def one_step(
    group: Group, cut: Cut, trained: Wide, number: int = 7, shape: tuple[int, ...] = ()
) -> tuple[Any, Exchanged]:
    """A step of one rank, whose losses have a shape; the result is that of all."""
    summing = FastSum(trained)
    step = step_of(cut, group)
    summing.begin(Step(number, step.shards, step.size, step.pieces), group)
    for piece in step.pieces:
        summing.begin_piece()
        loss = trained(INPUTS[piece.low : piece.high]).square().mean().reshape(shape)
        summing.add(piece, loss, backward_of(loss, None), 10 + group.rank)
    summing.set_back()
    exchanged = summing.exchange(group, 10 + group.rank)
    return summing.apply(exchanged), exchanged


@pytest.mark.parametrize("microbatch", [None, 2])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_uneven_blocks_give_the_mean_over_all_samples(
    world: int, microbatch: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """11 samples on 2 or 3 ranks; several buckets; gradients, loss and buffers are those of one big batch."""
    monkeypatch.setattr(fast, "FIRST_BUCKET_BYTES", 16)
    monkeypatch.setattr(fast, "BUCKET_BYTES", 100)
    first = Wide()

    def work(group: Group) -> Any:
        trained = copy.deepcopy(first)
        shape = () if microbatch is None else (1,)
        totals, exchanged = one_step(group, by_blocks(SAMPLING, microbatch), trained, shape=shape)
        return totals, exchanged.agreed, [each.grad for each in trained.parameters()], trained.mean

    whole = copy.deepcopy(first)
    loss = whole(INPUTS).square().mean()
    loss.backward()
    expected = [torch.zeros_like(p) if p.grad is None else p.grad for p in whole.parameters()]
    for totals, agreed, gradients, mean in on_ranks(world, work):
        torch.testing.assert_close(gradients, expected)
        torch.testing.assert_close(mean, whole.mean)
        assert totals.loss == pytest.approx(loss.item())
        assert (totals.samples, agreed) == (11, 10)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_complex_gradients_are_added_up_as_they_are(world: int) -> None:
    """A bucket of their own; the buffer's changes ride with the tail."""
    first, inputs = Waves(), torch.sin(torch.arange(44.0)).view(11, 4)

    def work(group: Group) -> Any:
        trained = copy.deepcopy(first)
        summing, step = FastSum(trained), step_of(by_blocks(SAMPLING, 2), group)
        summing.begin(step, group)
        for piece in step.pieces:
            summing.begin_piece()
            loss = energy(trained, inputs[piece.low : piece.high])
            summing.add(piece, loss, backward_of(loss, None), 1)
        summing.set_back()
        summing.apply(summing.exchange(group, 1))
        return [each.grad.clone() for each in trained.parameters() if each.grad is not None], trained.mean

    whole = copy.deepcopy(first)
    energy(whole, inputs).backward()
    expected = [torch.zeros_like(p) if p.grad is None else p.grad for p in whole.parameters()]
    for gradients, mean in on_ranks(world, work):
        torch.testing.assert_close(gradients, expected)
        torch.testing.assert_close(mean, whole.mean)


@pytest.mark.parametrize(("scale", "bulk", "small"), [(torch.float32, 1, 0), (torch.float64, 2, 1)])
def test_agreement_needs_no_collective_of_its_own(
    scale: torch.dtype, bulk: int, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It rides behind the first bucket, but where that is of another dtype: float64 when anything is."""
    calls: list[str] = []

    def work(group: Group) -> int:
        trained = Wide()
        trained.scale = nn.Parameter(trained.scale.detach().to(scale))
        for name in ("all_reduce", "all_reduce_bulk"):
            monkeypatch.setattr(group, name, counted(name, getattr(group, name)))
        return one_step(group, by_blocks(SAMPLING, None), trained)[1].agreed

    def counted(name: str, reduce: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
        def call(tensor: torch.Tensor) -> Any:
            calls.append(name)
            return reduce(tensor)

        return call

    assert on_ranks(2, work) == [10, 10]
    assert (calls.count("all_reduce_bulk"), calls.count("all_reduce")) == (2 * bulk, 2 * (small + bulk))


def test_a_rank_without_samples_stays_in_step() -> None:
    """One sample on two ranks."""
    sampling = Sampling(1, 8, 3, 1, 0)
    first = Wide()

    def work(group: Group) -> Any:
        trained = copy.deepcopy(first)
        totals, _ = one_step(group, by_blocks(sampling, None), trained)
        return totals.samples, [each.grad for each in trained.parameters()]

    (samples, gradients), (others, same) = on_ranks(2, work)
    assert (samples, others) == (1, 1)
    torch.testing.assert_close(gradients, same, rtol=0, atol=0)


def test_ranks_in_different_steps_do_not_mix() -> None:
    def work(group: Group) -> str:
        with pytest.raises(RuntimeError) as caught:
            one_step(group, by_blocks(SAMPLING, None), Wide(), number=7 + group.rank)
        return str(caught.value)

    assert sorted(on_ranks(2, work)) == [
        "rank 0 is in step 7, we are in step 8",
        "rank 1 is in step 8, we are in step 7",
    ]


def test_a_peer_that_is_gone_breaks_the_step_and_it_can_be_done_again() -> None:
    """The error comes in the exchange; the step, begun again alone, is right."""

    def work(group: Group) -> Any:
        trained = Wide()
        if group.rank == 1:
            return None  # its connections close with the group
        with pytest.raises(RuntimeError):
            one_step(group, by_blocks(SAMPLING, None), trained)
        totals, _ = one_step(Group(2, 0, 1, None), by_blocks(SAMPLING, None), trained)
        return totals

    totals, _ = on_ranks(2, work)
    assert totals.samples == 11


def test_a_gradient_that_is_completed_twice_is_said() -> None:
    """As reentrant activation checkpointing does: the first one is not whole."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 6)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            from torch.utils.checkpoint import checkpoint

            inner: Callable[[torch.Tensor], torch.Tensor] = self.layer
            inputs = checkpoint(inner, inputs.requires_grad_(), use_reentrant=True)
            return checkpoint(inner, inputs, use_reentrant=True)

    def work(group: Group) -> None:
        trained = Twice()
        summing = FastSum(trained)
        step = step_of(by_blocks(SAMPLING, None), group)
        summing.begin(step, group)
        loss = trained(INPUTS.clone()).mean()
        with pytest.raises(ElasticError, match=r"completed twice .* use_reentrant=False"):
            summing.add(step.pieces[0], loss, backward_of(loss, None), 0)

    on_ranks(2, work)


def test_buckets_go_from_the_last_layer_to_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast, "FIRST_BUCKET_BYTES", 40)
    monkeypatch.setattr(fast, "BUCKET_BYTES", 80)
    parameters = [torch.zeros(10), torch.zeros(10), torch.zeros(2, dtype=torch.float64), torch.zeros(10)]
    assert [bucket.parameters for bucket in buckets_of(parameters)] == [(3,), (1, 0), (2,)]
    assert [bucket.elements for bucket in buckets_of(parameters)] == [10, 20, 2]


def test_fast_mode_alone_is_an_ordinary_training() -> None:
    """One process: one batch a step, the same gradients as the loop without the loader."""
    fed, losses, _ = train(Noisy(20), mode="fast", epochs=1)
    assert [len(numbers) for _, numbers in fed] == [8, 8, 4]
    pieces, same, _ = train(Noisy(20), mode="fast", microbatch=3, epochs=1)
    assert [len(numbers) for _, numbers in pieces] == [3, 3, 2, 3, 3, 2, 3, 1]
    assert [i for _, numbers in pieces for i in numbers] == [i for _, numbers in fed for i in numbers]
    assert len(same) == len(losses) == 3


def first_step(dataset: Any, at_each_turn: Callable[[torch.optim.Optimizer], object]) -> list[torch.Tensor]:
    """The gradients of a step that is fed in several pieces."""
    trained = model()
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    pieces = {} if isinstance(dataset, File) else {"microbatch": 3}
    loader = elastic.Loader(
        trained, optimizer, dataset, batch_size=8, epochs=1, shards=3, mode="fast", **pieces
    )
    for _, inputs in loader:
        at_each_turn(optimizer)
        if loader.backward(trained(inputs).square().mean()):
            break
    return [each.grad.clone() for each in trained.parameters() if each.grad is not None]


@pytest.mark.parametrize("dataset", [Noisy(20), File()])
@pytest.mark.parametrize("to_none", [True, False])
def test_a_loop_may_begin_each_turn_with_zero_grad(dataset: Any, to_none: bool) -> None:
    expected = first_step(dataset, lambda optimizer: None)
    found = first_step(dataset, lambda optimizer: optimizer.zero_grad(set_to_none=to_none))
    assert len(found) == 4
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_a_backward_pass_that_fails_half_done_is_not_done_twice() -> None:
    """What it has added to the step's gradients, loss and samples would count twice."""
    trained = model()
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    loader = elastic.Loader(trained, optimizer, Noisy(20), batch_size=8, epochs=1, mode="fast", microbatch=3)

    def train_and_catch() -> None:
        for turn, (_, inputs) in enumerate(loader):
            outputs = trained(inputs)
            if turn == 1:
                trained[0].weight.register_hook(out_of_memory)
            with contextlib.suppress(MemoryError):
                loader.backward(outputs.square().mean())

    with pytest.raises(ElasticError, match=r"a backward pass failed .*; let the error end the program"):
        train_and_catch()


def out_of_memory(_: torch.Tensor) -> torch.Tensor:
    raise MemoryError
