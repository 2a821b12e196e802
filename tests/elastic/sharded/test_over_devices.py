"""What FSDP asks for between GPUs that reach each other; a second gloo group stands for nccl's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed
from rank_threads import everywhere
from stand_in import HOST, StandIn, accelerator

from hpctools.elastic.devices import DeviceLinks
from hpctools.elastic.group import Group, join_store, link, open_store
from hpctools.elastic.sharded.process_group import ShardGroup

c10d: Any = torch.distributed
WORLD, ROWS = 3, 4
FAR = torch.device("meta")


def over_devices(work: Callable[[ShardGroup, Group], Any]) -> tuple[list[Any], list[StandIn]]:
    """What the work returns on each rank, and the backends of the devices."""
    store, backends = open_store(HOST), []

    def rank(place: int) -> Any:
        own = store if place == 0 else join_store(HOST, store.port)
        links = DeviceLinks(accelerator(place, backends.append))
        group = link(1, place, WORLD, own, HOST, lambda: False, links)

        def run(asked: Callable[[Group], None]) -> bool:
            asked(group)
            return True

        return work(ShardGroup(place, WORLD, run), group)

    return everywhere([lambda place=place: rank(place) for place in range(WORLD)]), backends


def own(rank: int) -> torch.Tensor:
    return torch.arange(float(ROWS)).reshape(2, 2) + 10 * rank


def test_shards_are_gathered_and_gradients_scattered_over_the_devices() -> None:
    def work(shards: ShardGroup, group: Group) -> Any:
        rank = shards.rank()
        gathered, part = torch.empty(WORLD, 2, 2), torch.empty(2, 2)
        shards.all_gather_single(gathered, own(rank).t())  # not contiguous
        shards.reduce_scatter_single(part, torch.stack([own(rank) * each for each in range(WORLD)]))
        norm = torch.tensor([float(rank)])
        shards.allreduce([norm])
        return gathered, part, norm

    found, backends = over_devices(work)
    for rank, (gathered, part, norm) in enumerate(found):
        assert torch.equal(gathered, torch.stack([own(each).t() for each in range(WORLD)]))
        assert torch.equal(part, sum(own(each) for each in range(WORLD)) * rank)
        assert norm.tolist() == [3.0], "what is small is added up in the order of the ranks, over gloo"
    # The last one is the norm's: here the CPU is the device, too.
    assert [each.carried for each in backends] == [["all_gather", "reduce_scatter", "all_gather"]] * WORLD
    assert [each.reduced for each in backends] == [[1]] * WORLD, "only when they were linked"


def test_what_the_devices_fill_is_the_groups_own_memory() -> None:
    """After the group was given up they may still write to it."""

    def work(shards: ShardGroup, group: Group) -> Any:
        filled = torch.empty(WORLD, 2, 2)
        shards.all_gather_single(filled, own(shards.rank()))
        kept = [each.untyped_storage().data_ptr() for each in group._scratch._tensors.values()]
        return filled.untyped_storage().data_ptr() in kept, len(kept)

    found, _ = over_devices(work)
    assert found == [(False, 1)] * WORLD


def test_the_devices_are_given_up_and_the_pass_goes_on_with_zeros() -> None:
    def work(shards: ShardGroup, group: Group) -> Any:
        group.abandon()
        gathered = torch.ones(WORLD, 2, 2)
        shards.all_gather_single(gathered, own(shards.rank()))
        return shards.void, str(shards.error), gathered.count_nonzero().item()

    found, _ = over_devices(work)
    assert found == [(True, "the devices' group was given up", 0)] * WORLD


def test_one_rank_leaves_its_tensors_where_they_are() -> None:
    group = Group(1, 0, 1, None)
    shards = ShardGroup(0, 1, lambda asked: asked(group) is None)
    gathered, part = torch.empty(2, 2, device=FAR), torch.empty(2, 2, device=FAR)
    shards.all_gather_single(gathered, torch.empty(2, 2, device=FAR))
    shards.reduce_scatter_single(part, torch.empty(2, 2, device=FAR))  # raises where it went to the CPU
    assert not shards.void
