"""The fixed tree: whoever adds up what, the expression is the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctools.elastic.reduction import Ladder, Node, block, children, cover, in_turn, total

SHARDS = st.integers(1, 40)
WORLD = st.integers(1, 12)


def added(left: str, right: str) -> str:
    return f"({left}+{right})"


def climb(within: Node, shards: int) -> dict[Node, str]:
    """What one process has when it has done its shards one after the other, as the loader does it."""
    ladder, sums = Ladder(cover(within, shards)), {}
    for shard in range(*within):
        sums[(shard, shard + 1)] = str(shard)
        for parent in ladder.push(shard):
            left, right = children(parent)
            sums[parent] = added(sums.pop(left), sums.pop(right))
    return sums


@given(SHARDS, WORLD)
def test_blocks_partition_the_shards_evenly(shards: int, world: int) -> None:
    blocks = [block(rank, world, shards) for rank in range(world)]
    assert [shard for low, high in blocks for shard in range(low, high)] == list(range(shards))
    sizes = [high - low for low, high in blocks]
    assert max(sizes) - min(sizes) <= 1
    assert sizes[0] >= 1


@given(SHARDS, WORLD)
def test_sum_is_the_same_expression_for_any_number_of_processes(shards: int, world: int) -> None:
    one = climb((0, shards), shards)
    assert list(one) == [(0, shards)]
    parts: dict[Node, str] = {}
    for rank in range(world):
        parts |= climb(block(rank, world, shards), shards)
    assert total((0, shards), parts, added) == one[(0, shards)]


@given(SHARDS, WORLD)
def test_shards_in_turn_come_to_the_same_expression(shards: int, world: int) -> None:
    parts: dict[Node, str] = {}
    for rank in range(world):
        nodes = in_turn(rank, world, shards)
        ladder, own = Ladder(nodes), dict[Node, str]()
        for shard in range(rank, shards, world):
            own[(shard, shard + 1)] = str(shard)
            for parent in ladder.push(shard):
                left, right = children(parent)
                own[parent] = added(own.pop(left), own.pop(right))
        assert tuple(own) == nodes
        parts |= own
    assert total((0, shards), parts, added) == climb((0, shards), shards)[(0, shards)]


@given(SHARDS, WORLD, st.data())
def test_process_ends_with_its_cover_and_never_holds_many_vectors(
    shards: int, world: int, data: st.DataObject
) -> None:
    within = block(data.draw(st.integers(0, world - 1)), world, shards)
    assert sorted(climb(within, shards)) == sorted(cover(within, shards))
    ladder = Ladder(cover(within, shards))
    for shard in range(*within):
        ladder.push(shard)
        assert len(ladder.open) <= 2 * shards.bit_length()


def test_expression_of_five_shards() -> None:
    assert climb((0, 5), 5) == {(0, 5): "(((0+1)+2)+(3+4))"}


def test_missing_part_is_an_error() -> None:
    with pytest.raises(KeyError) as caught:
        total((0, 2), {(0, 1): "0"}, added)
    assert caught.value.args == ((1, 2),)
