"""Exact mode of sharded models: the order in which gradients are added up, and what it asks of a training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

import pytest
import torch
from rank_threads import everywhere, linked
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from hpctools import elastic
from hpctools.elastic.group import Group
from hpctools.elastic.reduction import in_turn
from hpctools.elastic.sharded import process_group
from hpctools.elastic.sharded.in_order import InOrder
from hpctools.elastic.sharded.process_group import ShardGroup
from hpctools.errors import ElasticError

LENGTH = 24  # of a layer's gradient: so many that 1, 2, 3 and 4 ranks own the same
SHARDS, LAYERS = 7, 3
EMPTY = {0, 4}
"""Shards whose streams have ended: a lone rank is not fed them, others are, without effect."""


@pytest.fixture(autouse=True)
def no_group_stays() -> Iterator[None]:
    """torch's default group belongs to the process, not to a test."""
    yield
    process_group.uninstall()


def gradients(layer: int) -> list[torch.Tensor]:
    """Of each virtual shard: numbers of very different sizes, whose sum depends on the order, and zeros."""
    generator = torch.Generator().manual_seed(layer)
    values = torch.randn(SHARDS, LENGTH, generator=generator)
    values *= torch.logspace(-6, 6, SHARDS)[torch.randperm(SHARDS, generator=generator)][:, None]
    values[:, 0], values[:, 1] = -0.0, 0.0
    return list(values)


def bits(tensor: torch.Tensor) -> list[int]:
    return tensor.view(torch.int32).tolist()


def steps_of(group: Group) -> list[list[int]]:
    """A rank's parts of two layers after two steps, as FSDP would add up what it is given.

    One of them is reduced in two calls, as of a model with two forward methods.
    """
    shards = ShardGroup(group.rank, group.world, lambda work: work(group) is None)
    sums = InOrder(nn.Module(), shards)
    for _ in range(2):
        parts: dict[int, torch.Tensor] = {}
        sums.begin(SHARDS)
        for first in range(0, SHARDS, group.world):
            own = first + group.rank
            sums.begin_pass(counts=own not in EMPTY)
            for layer, name in ((1, "layers.1"), (0, "layers.0"), (2, "layers.0")):
                inputs = gradients(layer)[own] if own < SHARDS else torch.full((LENGTH,), torch.nan)
                output = torch.empty(LENGTH // group.world)
                sums.add(name, output, inputs)
                parts[layer] = output if layer not in parts else parts[layer].add_(output)
            sums.end_pass()
    return [bits(parts[layer]) for layer in range(LAYERS)]


@pytest.mark.parametrize("world", [2, 3, 4, 8, 12])
def test_any_number_of_ranks_adds_up_in_the_order_of_the_shards(world: int) -> None:
    """That is what FSDP of one rank does; eight and twelve are more than there are shards."""
    groups = linked(world)
    found = everywhere([lambda group=group: steps_of(group) for group in groups])
    for layer in range(LAYERS):
        counting = [each for shard, each in enumerate(gradients(layer)) if shard not in EMPTY]
        one = reduce(torch.add, counting)
        assert not torch.equal(one, reduce(torch.add, counting[::-1])), "the order must matter"
        assert [bit for parts in found for bit in parts[layer]] == bits(one)
    ours = [shard for rank in range(world) for node in in_turn(rank, world, SHARDS) for shard in range(*node)]
    assert sorted(ours) == list(range(SHARDS))


def test_a_step_that_begins_again_knows_nothing_of_before() -> None:
    (group,) = linked(1)
    sums = InOrder(nn.Module(), ShardGroup(0, 1, lambda work: work(group) is None))
    output = torch.empty(2)
    sums.begin(2)
    sums.begin_pass(counts=True)
    sums.add("", output, torch.tensor([5.0, 5.0]))
    for value in (1.0, 2.0):
        if value == 1.0:
            sums.begin(2)
        sums.add("", output, torch.full((2,), value))
        sums.end_pass()
    assert output.tolist() == [3.0, 3.0]


class Points:
    def __len__(self) -> int:
        return 28

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.sin(torch.arange(6.0) * (index + 1))


def builder(policy: MixedPrecisionPolicy) -> Callable[[DeviceMesh], tuple[nn.Module, torch.optim.Optimizer]]:
    def build(mesh: DeviceMesh) -> tuple[nn.Module, torch.optim.Optimizer]:
        model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 1))
        fully_shard(model[0], mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh)
        return model, torch.optim.AdamW(model.parameters(), lr=0.05)

    return build


def loader_for(policy: MixedPrecisionPolicy, build: Any = None, **options: Any) -> elastic.ShardedLoader:
    return elastic.ShardedLoader(
        build or builder(policy),
        Points(),
        **{"batch_size": 12, "epochs": 2, "shards": 5, "mode": "exact", **options},
    )


@pytest.mark.parametrize(
    "policy",
    [
        MixedPrecisionPolicy(param_dtype=torch.bfloat16),
        MixedPrecisionPolicy(reduce_dtype=torch.bfloat16),
    ],
)
def test_a_layer_that_adds_up_in_another_type_is_refused(policy: MixedPrecisionPolicy) -> None:
    said = (
        r"layer 0 has parameters of torch\.float32, and their gradients are to be added up as torch\.bfloat16"
    )
    with pytest.raises(ElasticError, match=said):
        loader_for(policy)
    assert loader_for(policy, mode="fast").step == 0


def test_computing_in_another_type_is_taken() -> None:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    assert loader_for(policy).step == 0


def test_types_of_a_layer_within_are_its_own() -> None:
    """What is frozen is not added up, and another layer has a policy of its own."""

    def build(mesh: DeviceMesh) -> tuple[nn.Module, torch.optim.Optimizer]:
        model = nn.Sequential(nn.Linear(6, 5).bfloat16(), nn.Linear(5, 1))
        model[0].weight.requires_grad_(False)
        model[0].bias.requires_grad_(False)
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        fully_shard(model[0], mesh=mesh)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        return model, torch.optim.AdamW([each for each in model.parameters() if each.requires_grad])

    assert loader_for(MixedPrecisionPolicy(), build=build).step == 0


def test_fused_optimizers_of_the_cpu_are_refused() -> None:
    def build(mesh: DeviceMesh) -> tuple[nn.Module, torch.optim.Optimizer]:
        model, _ = builder(MixedPrecisionPolicy())(mesh)
        return model, torch.optim.AdamW(model.parameters(), fused=True)

    with pytest.raises(ElasticError, match=r"AdamW\(fused=True\) rounds a number by where its part begins"):
        loader_for(MixedPrecisionPolicy(), build=build)
    assert loader_for(MixedPrecisionPolicy(), build=build, mode="fast").step == 0


class Choosing(nn.Module):
    """Computes as it is told in each pass."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(6, 1), nn.Linear(6, 1)
        self.chosen = [self.one, self.other]

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return sum((each(inputs) for each in self.chosen), torch.zeros(1))


def choosing(*, by_layer: bool) -> elastic.ShardedLoader:
    def build(mesh: DeviceMesh) -> tuple[nn.Module, torch.optim.Optimizer]:
        model = Choosing()
        for each in (model.one, model.other) if by_layer else ():
            fully_shard(each, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model, torch.optim.AdamW(model.parameters(), lr=0.05)

    return loader_for(MixedPrecisionPolicy(), build=build)


@pytest.mark.parametrize("by_layer", [True, False])
def test_virtual_shards_that_train_different_parameters_are_told(by_layer: bool) -> None:
    """One rank alone could add them up, as here; of several each would add its own to the others' others."""
    loader = choosing(by_layer=by_layer)
    said = r"some virtual shards of a step gave parameter (one|other)\.\w+ a gradient, and others did not"
    with pytest.raises(ElasticError, match=said):
        one_step(loader, lambda number: choose(loader, number))
    assert loader.step == 0


def one_step(loader: elastic.ShardedLoader, before: Callable[[int], object]) -> None:
    """The passes of the first step."""
    for number, inputs in enumerate(loader):
        before(number)
        if loader.backward(loader.model(inputs).square().mean()):
            return


def choose(loader: elastic.ShardedLoader, number: int) -> None:
    model: Any = loader.model
    model.chosen = [model.one, model.other][number % 2 :]


def test_passes_of_different_sizes_are_told_before_they_are_mixed() -> None:
    """Several ranks would take that for a peer that is gone, and begin the step again for ever."""
    (group,) = linked(1)
    sums = InOrder(nn.Module(), ShardGroup(0, 1, lambda work: work(group) is None))
    sums.begin(2)
    sums.add("layers.1", torch.empty(2), torch.ones(2))
    sums.end_pass()
    with pytest.raises(ElasticError, match=r"train different parameters of layer layers\.1; let each use"):
        sums.add("layers.1", torch.empty(3), torch.ones(3))


def test_unused_parameters_may_get_zeros() -> None:
    """The remedy, where torch has it."""
    loader = choosing(by_layer=False)
    if not hasattr(loader.model, "set_reduce_scatter_unused_params"):
        pytest.skip(f"torch {torch.__version__} does not have it")
    model: Any = loader.model
    model.set_reduce_scatter_unused_params(True)
    one_step(loader, lambda number: choose(loader, number))
    assert loader.step == 1


def test_gradients_that_come_twice_in_a_pass_are_told() -> None:
    """FSDP adds each up as it comes, so with several ranks their order would be another one."""
    loader = loader_for(MixedPrecisionPolicy())

    def twice(_: int) -> None:
        loader.model(torch.ones(2, 6)).abs().mean().backward()
        loader.model.zero_grad()

    said = r"parameter \d\.\w+ got gradients twice for one virtual shard; call loader\.backward alone"
    with pytest.raises(ElasticError, match=said):
        one_step(loader, twice)


def train_looking_twice(loader: elastic.ShardedLoader) -> None:
    """As with an optimizer that looks at the gradients once more."""
    for inputs in loader:
        if loader.backward(loader.model(inputs).square().mean()):
            loader.model(inputs).abs().mean().backward()
            loader.optimizer.step()
            loader.optimizer.zero_grad()


def test_a_backward_pass_after_the_step_is_the_trainings_own() -> None:
    loader = loader_for(MixedPrecisionPolicy())
    train_looking_twice(loader)
    assert loader.step == 3


class Uneven:
    """Streams of which one is shorter."""

    def shard(self, index: int, of: int) -> Iterator[torch.Tensor]:
        return iter([torch.full((6,), float(index + each)) for each in range(12 if index else 3)])


def test_a_backward_pass_after_a_step_in_which_a_stream_had_ended() -> None:
    """One rank alone is not fed it, and so does fewer passes."""
    loader = elastic.ShardedLoader(
        builder(MixedPrecisionPolicy()), Uneven(), batch_size=6, epochs=1, shards=2, mode="exact"
    )
    train_looking_twice(loader)
    assert loader.step == 4


def test_no_other_mode() -> None:
    with pytest.raises(ElasticError, match="mode is 'exakt'; give 'exact' or 'fast'"):
        loader_for(MixedPrecisionPolicy(), mode="exakt")


@pytest.mark.parametrize("mode", ["exact", "fast"])
@pytest.mark.parametrize("norm_type", [2.0, float("inf")])
def test_clipping_does_what_torch_does(mode: str, norm_type: float) -> None:
    """On one worker, up to rounding; on several: tests/elastic/sharded/test_run.py."""
    loader = loader_for(MixedPrecisionPolicy(), mode=mode)
    for inputs in loader:
        if loader.backward(loader.model(inputs).square().mean()):
            break
    before = [whole(each) for each in loader.model.parameters()]
    other = [nn.Parameter(torch.zeros_like(each)) for each in before]
    for each, gradient in zip(other, before, strict=True):
        each.grad = gradient.clone()
    for limit in (1e-2, 1e3):
        norm = loader.clip_grad_norm_(limit, norm_type)
        torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(other, limit, norm_type))
        for each, expected in zip(loader.model.parameters(), other, strict=True):
            torch.testing.assert_close(whole(each), expected.grad)


@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_a_forward_pass_before_the_optimizers_step_changes_nothing(mode: str) -> None:
    """FSDP leaves the model's own layer gathered: it was neither clipped nor were its new weights used."""
    loader = loader_for(MixedPrecisionPolicy(), mode=mode)
    norms = []
    for inputs in loader:
        assert all(isinstance(each, DTensor) for each in loader.model.parameters()), (
            "as the optimizer left it"
        )
        if loader.backward(loader.model(inputs).square().mean()):
            norms.append(loader.clip_grad_norm_(1e3).item())
            with torch.no_grad():
                loader.model(inputs)
            norms.append(loader.clip_grad_norm_(1e3).item())
            loader.optimizer.step()
            loader.optimizer.zero_grad()
    assert norms[::2] == norms[1::2]
    assert min(norms) > 0


def whole(parameter: nn.Parameter) -> torch.Tensor:
    gradient = parameter.grad
    return gradient.full_tensor() if isinstance(gradient, DTensor) else torch.zeros_like(parameter)


@pytest.mark.parametrize(
    "make",
    [
        lambda parts: torch.optim.AdamW(parts, lr=3e-3, weight_decay=0.1),
        lambda parts: torch.optim.AdamW(parts, lr=3e-3, foreach=True),
        lambda parts: torch.optim.Adam(parts, lr=3e-3, amsgrad=True),
        lambda parts: torch.optim.SGD(parts, lr=3e-3, momentum=0.9, nesterov=True, weight_decay=0.1),
    ],
    ids=["AdamW", "foreach", "Adam", "SGD"],
)
def test_optimizers_round_an_element_the_same_wherever_its_part_begins(make: Any) -> None:
    """What exact mode asks of an optimizer: elements of small parts lie in no vector register, or elsewhere.

    Fused ones do not (torch 2.13: 84 of 4,000 elements differ after 20 steps of AdamW).
    """
    generator = torch.Generator().manual_seed(3)
    values = torch.randn(4000, generator=generator)
    steps = [torch.randn(4000, generator=generator) * 10.0 ** (number % 5 - 2) for number in range(20)]
    results = []
    for size in (4000, 5):
        parts = [nn.Parameter(part.clone()) for part in values.split(size)]
        optimizer = make(parts)
        for gradient in steps:
            for part, own in zip(parts, gradient.split(size), strict=True):
                part.grad = own.clone()
            optimizer.step()
        results.append(torch.cat([part.detach() for part in parts]))
    assert torch.equal(*results)
