"""Memory of a group's messages: never shared by two uses, used again by the next group."""

from __future__ import annotations

import threading

import torch
from hypothesis import given
from hypothesis import strategies as st

from hpctools.elastic import scratch
from hpctools.elastic.group import Group
from hpctools.elastic.scratch import Scratch

Wish = tuple[int, torch.dtype]
wishes = st.lists(
    st.tuples(st.integers(0, 3000), st.sampled_from([torch.float32, torch.float64, torch.uint8])), max_size=12
)


def fill(memory: Scratch, wanted: list[Wish]) -> list[torch.Tensor]:
    tensors = [memory.take(place, elements, dtype) for place, (elements, dtype) in enumerate(wanted)]
    for place, tensor in enumerate(tensors):
        tensor.fill_(place)
    return tensors


@given(wishes, wishes)
def test_each_use_has_memory_of_its_own_also_after_others(first: list[Wish], second: list[Wish]) -> None:
    before, after = Scratch(), Scratch()
    fill(before, first)
    after.inherit(before)
    for memory, wanted in ((before, first), (after, second)):
        for place, tensor in enumerate(fill(memory, wanted)):
            assert (tensor.numel(), tensor.dtype) == wanted[place]
            assert memory.take(place, *wanted[place]).data_ptr() == tensor.data_ptr()
        for place, (elements, dtype) in enumerate(wanted):
            assert (memory.take(place, elements, dtype) == place).all()


def test_the_next_group_uses_the_pages_that_were_touched() -> None:
    before, after = Group(1, 0, 3, None), Group(2, 0, 2, None)
    parts = [before.scratch(place, 1000, torch.float32) for place in range(4)]
    before.close(heir=after)
    larger = [after.scratch(place, 1500, torch.float32) for place in range(2)]
    old, new = ({part.untyped_storage().data_ptr() for part in each} for each in (parts, larger))
    assert old == new
    assert larger[0].data_ptr() == parts[0].data_ptr()


def test_memory_of_a_group_that_was_given_up_is_not_used_again() -> None:
    before, after = Group(1, 0, 2, None), Group(2, 0, 2, None)
    part = before.scratch("part", 1000, torch.float32)
    over = threading.Event()
    before.begin(lambda: 1 // 0, over.set)
    assert over.wait(10)
    before.close(heir=after)
    other = after.scratch("part", 1000, torch.float32)
    assert other.untyped_storage().data_ptr() != part.untyped_storage().data_ptr()


def test_what_is_larger_than_a_block_gets_one_of_its_own() -> None:
    memory = Scratch()
    large = memory.take("large", scratch.BLOCK_BYTES + 1, torch.uint8)
    small = memory.take("small", 16, torch.uint8)
    assert large.untyped_storage().data_ptr() != small.untyped_storage().data_ptr()


def test_memory_whose_size_changes_is_the_same_until_more_is_wanted() -> None:
    memory, cpu = Scratch(), torch.device("cpu")
    first = memory.take_at_least("layer", 1000, cpu)
    assert first.numel() == 1000
    assert memory.take_at_least("layer", 10, cpu).data_ptr() == first.data_ptr()
    larger = memory.take_at_least("layer", 5000, cpu)
    assert larger.numel() == 5000
    assert memory.take_at_least("layer", 1000, cpu).data_ptr() == larger.data_ptr()
    assert len(memory._tensors) == 1
