"""Sums over virtual shards that come out the same, to the bit, on any number of processes.

Floating-point addition is not associative, so the order is fixed: a binary tree over the shards
0..shards-1, split in the middle. A process that holds a block of neighbouring shards adds up the subtrees
that lie wholly within its block; only the tops travel, and whoever owns a segment of the result finishes
the tree. Which process added what does not change the expression.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

Value = TypeVar("Value")
Node = tuple[int, int]
"""The shards low <= s < high."""

Share = Callable[[int, int, int], tuple[Node, ...]]
"""Of rank, world and shards: the nodes of the tree that the rank adds up. Together they cover it."""


def block(rank: int, world: int, shards: int) -> Node:
    """The neighbouring shards of one process; sizes differ by one at most, and rank 0 has one if any has.

    Args:
        rank: 0 <= rank < world.
        shards: how many there are in this step; may be fewer than processes, then some blocks are empty.
    """
    return -(-rank * shards // world), -(-(rank + 1) * shards // world)


def neighbours(rank: int, world: int, shards: int) -> tuple[Node, ...]:
    """A block of neighbouring shards: few nodes, so that little travels."""
    return cover(block(rank, world, shards), shards)


def in_turn(rank: int, world: int, shards: int) -> tuple[Node, ...]:
    """Every world-th shard: the n-th ones of all ranks are neighbours, in the order of the ranks."""
    if world == 1:
        return cover((0, shards), shards)
    return tuple((shard, shard + 1) for shard in range(rank, shards, world))


def children(node: Node) -> tuple[Node, Node]:
    """The two halves of a node that holds more than one shard; the left one is the larger."""
    low, high = node
    middle = (low + high + 1) // 2
    return (low, middle), (middle, high)


def cover(within: Node, shards: int) -> tuple[Node, ...]:
    """The largest nodes of the tree over all shards that lie within a block, in order of the shards."""
    return tuple(_covering((0, shards), within))


def _covering(node: Node, within: Node) -> Iterator[Node]:
    low, high = max(node[0], within[0]), min(node[1], within[1])
    if low >= high:
        return
    if (low, high) == node:
        yield node
        return
    for child in children(node):
        yield from _covering(child, within)


def total(node: Node, known: Mapping[Node, Value], add: Callable[[Value, Value], Value]) -> Value:
    """The value of a node from values of nodes that cover it.

    Args:
        known: values of nodes below it, for example those of `cover` for every process.
        add: left and right to their sum; may reuse the left one's memory.

    Raises:
        KeyError: the known nodes do not cover it.
    """
    if node in known:
        return known[node]
    if node[1] - node[0] <= 1:
        raise KeyError(node)
    left, right = children(node)
    return add(total(left, known, add), total(right, known, add))


class Ladder:
    """Which sums can be made as a rank's shards are done one after the other.

    Keeps no values: says which two neighbouring nodes are to be added, so that only a few buffers are
    alive at a time.

    Args:
        tops: the nodes that are to come out, by which the shards are done in their order.
    """

    def __init__(self, tops: tuple[Node, ...]) -> None:
        self._parents = dict(_parents(tops))
        self.open: list[Node] = []

    def push(self, shard: int) -> list[Node]:
        """A shard is done; returns the nodes that its arrival completes, smallest first.

        Each returned node is the sum of the last two open ones, and takes their place.
        """
        self.open.append((shard, shard + 1))
        completed = []
        while (parent := self._parents.get(self.open[-1])) is not None and parent[1] == self.open[-1][1]:
            self.open[-2:] = [parent]
            completed.append(parent)
        return completed


def _parents(tops: tuple[Node, ...]) -> Iterator[tuple[Node, Node]]:
    for top in tops:
        if top[1] - top[0] > 1:
            halves = children(top)
            yield from ((half, top) for half in halves)
            yield from _parents(halves)
