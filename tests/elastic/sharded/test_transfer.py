"""Parts over real gloo: from any number of ranks to any other, straight, relayed, and out of files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rank_threads import everywhere, linked
from test_layout import VERSION, parts_of, tensors_of

from hpctools.elastic.group import Group
from hpctools.elastic.sharded import collectives, moving, part_files
from hpctools.elastic.sharded.copies import Copies, copy_of, exchange_copies, keepers
from hpctools.elastic.sharded.layout import Part, Version
from hpctools.elastic.sharded.moving import Carried, PartSet, Wanted

SHAPES = {"weight": (130, 150), "bias": (7,), "moment": (130, 150)}
PLAIN = {"step": torch.tensor(3.0), "names": ["weight", "bias"], "rest": {"cursor": 5}}


def held_by(rank: int, world: int) -> PartSet:
    parts = parts_of(SHAPES, 0, rank, world)
    return PartSet(VERSION, parts, tensors_of(SHAPES, parts), PLAIN)


def rooms_for(rank: int, world: int) -> Wanted:
    parts = parts_of(SHAPES, 0, rank, world)
    return Wanted(parts, {name: torch.zeros(part.sizes) for name, part in parts.items()})


def assert_filled(wanted: Wanted) -> None:
    for name, expected in tensors_of(SHAPES, wanted.parts).items():
        assert torch.equal(wanted.tensors[name], expected), name


def carry(group: Group, held: list[PartSet], wanted: Wanted) -> Carried:
    surveys = moving.survey(group, held, -1)
    return moving.carry(group, surveys, moving.choose_source(surveys), held, wanted)


@pytest.mark.parametrize(("old", "new"), [(2, 4), (1, 3), (3, 2), (4, 1)])
def test_parts_and_plain_state_come_to_all(old: int, new: int) -> None:
    """Grow over the new group (joiners hold nothing), shrink over the old one (leavers want nothing)."""
    everyone = linked(max(old, new))
    wanted = [rooms_for(rank, new) if rank < new else Wanted({}, {}) for rank in range(len(everyone))]
    held = [[held_by(rank, old)] if rank < old else [] for rank in range(len(everyone))]
    done = everywhere(
        [lambda g=group: carry(g, held[g.rank], wanted[g.rank]) for group in everyone]  # type: ignore[misc]
    )
    for rank in range(new):
        assert_filled(wanted[rank])
        assert (done[rank].plain is not None) == (rank >= old)
    for carried in done[old:new]:
        assert carried.plain["names"] == PLAIN["names"]
        assert torch.equal(carried.plain["step"], torch.tensor(3.0))
    total = sum(part.bytes for parts in wanted for part in parts.parts.values())
    assert sum(each.moved.received + each.moved.kept for each in done) == total, "each byte once"


def test_leavers_and_joiners_at_once() -> None:
    """Old ranks 1 and 2 leave while two join: their parts are taken along by rank 0, who has all then."""
    old, new = linked(3), linked(3, number=2)
    change = moving.Change((0, -1, -1), 3)
    given = everywhere([lambda g=g: moving.relay(g, change, held_by(g.rank, 3)) for g in old])  # type: ignore[misc]
    assert [len(each) for each in given] == [2, 0, 0]
    held = [[held_by(0, 3), *given[0]], [], []]
    wanted = [rooms_for(rank, 3) for rank in range(3)]
    everywhere([lambda g=g: carry(g, held[g.rank], wanted[g.rank]) for g in new])  # type: ignore[misc]
    for each in wanted:
        assert_filled(each)


def test_census_tells_who_goes_where() -> None:
    old = linked(3)
    new = {0: Group(2, 0, 4, None), 2: Group(2, 1, 4, None)}
    changes = everywhere([lambda g=g: moving.census(g, new.get(g.rank)) for g in old])  # type: ignore[misc]
    assert set(changes) == {moving.Change((0, -1, 1), 4)}
    assert (changes[0].leaving, changes[0].staying, changes[0].joiners) == ([1], [0, 2], 2)


@pytest.mark.parametrize(("old", "new"), [(1, 3), (3, 2), (2, 2)])
def test_files_of_any_number_of_ranks_are_read_by_any_other(tmp_path: Path, old: int, new: int) -> None:
    for rank in range(old):
        held = held_by(rank, old)
        part_files.write_parts(tmp_path, rank, held.parts, held.tensors, lambda: None)
    part_files.write_plain(tmp_path, PLAIN)
    for rank in range(new):
        wanted = rooms_for(rank, new)
        part_files.read_parts(tmp_path, wanted)
        assert_filled(wanted)
    plain = part_files.read_plain(tmp_path)
    assert plain["rest"] == {"cursor": 5}
    examples: dict[str, Part] = part_files.examples_in(tmp_path)
    assert {name: part.shape for name, part in examples.items()} == SHAPES


def test_collectives_are_those_of_torch() -> None:
    groups = linked(3)
    inputs = [torch.arange(6.0) * (rank + 1) for rank in range(3)]

    def all_of(group: Group) -> dict[str, Any]:
        own = inputs[group.rank]
        gathered, scattered = torch.zeros(18), torch.zeros(2)
        collectives.all_gather(group, gathered, own)
        collectives.reduce_scatter(group, scattered, own)
        results: dict[str, Any] = {"gathered": gathered, "scattered": scattered}
        for operation in ("SUM", "AVG", "PRODUCT", "MIN", "MAX"):
            results[operation] = own.clone()
            collectives.all_reduce(group, results[operation], own, operation)
        results["root"] = own.clone()
        collectives.broadcast(group, results["root"], own, 1)
        results["messages"] = collectives.exchange_bytes(group, bytes(range(group.rank + 1)))
        return results

    stacked = torch.stack(inputs)
    for rank, got in enumerate(everywhere([lambda g=g: all_of(g) for g in groups])):  # type: ignore[misc]
        assert torch.equal(got["gathered"], stacked.flatten())
        assert torch.equal(got["scattered"], stacked.sum(0)[2 * rank : 2 * rank + 2])
        assert torch.equal(got["SUM"], stacked.sum(0))
        assert torch.equal(got["AVG"], stacked.mean(0))
        assert torch.equal(got["PRODUCT"], stacked.prod(0))
        assert torch.equal(got["MIN"], stacked.amin(0))
        assert torch.equal(got["MAX"], stacked.amax(0))
        assert torch.equal(got["root"], inputs[1])
        assert got["messages"] == [b"\0", b"\0\1", b"\0\1\2"]


@pytest.mark.parametrize(
    ("nodes", "lost"),
    [
        *[("ab", "0"), ("ab", "1"), ("abc", "0"), ("abc", "1"), ("abc", "2"), ("aaa", "1")],
        *[("aabb", "01"), ("aabb", "23"), ("abab", "02"), ("aabbcc", "23"), ("aabcc", "34")],
    ],
)
def test_any_worker_and_any_node_may_be_lost_when_there_are_copies(nodes: str, lost: str) -> None:
    """The others have all parts, and the unsharded state, and give them to who is left."""
    world, gone = len(nodes), {int(rank) for rank in lost}
    made = everywhere(
        [
            lambda g=g: exchange_copies(g, copy_of(held_by(g.rank, world)), nodes[g.rank])  # type: ignore[misc]
            for g in linked(world)
        ]
    )
    held = [list(each) for rank, each in enumerate(made) if rank not in gone]
    wanted = [rooms_for(rank, len(held)) for rank in range(len(held))]
    everywhere([lambda g=g: carry(g, held[g.rank], wanted[g.rank]) for g in linked(len(held), number=2)])  # type: ignore[misc]
    for each in wanted:
        assert_filled(each)


@given(st.lists(st.sampled_from("abcde"), min_size=2, max_size=12))
def test_copies_are_kept_on_other_nodes_as_far_as_there_are_any(nodes: list[str]) -> None:
    """By everybody once; by as many elsewhere as there can be, when each keeps those of one."""
    behind, fullest = keepers(nodes), max(map(nodes.count, nodes))
    assert sorted(behind) == list(range(len(nodes)))
    assert all(keeper != rank for rank, keeper in enumerate(behind))
    elsewhere = sum(nodes[keeper] != nodes[rank] for rank, keeper in enumerate(behind))
    assert elsewhere == min(len(nodes), 2 * (len(nodes) - fullest))


def test_copies_are_kept_until_everybody_has_the_next_ones() -> None:
    copies = Copies(5)
    assert [step for step in range(12) if copies.is_due(step, 2)] == [5, 10]
    assert not copies.is_due(5, 1), "nobody to give them to"
    first, second = (replace(held_by(0, 2), version=Version(step, 1)) for step in (5, 10))
    copies.keep((first,))
    copies.keep((second,))
    assert copies.held == (second, first)
    copies.settled()
    assert copies.held == (second,)
    copies.forget_after(9)
    assert copies.held == ()


def test_what_rank_0_found_in_storage_comes_to_all() -> None:
    def shared(group: Group) -> list[int]:
        surveys = moving.survey(group, [], 5 + group.rank, looks=group.rank == 0)
        assert [(each.known, each.looks) for each in surveys] == [(5, True), (6, False)]
        newest = 4 if group.rank == 0 else moving.NOWHERE
        return [each.checkpoint for each in moving.share_newest(group, surveys, newest)]

    assert everywhere([lambda g=g: shared(g) for g in linked(2)]) == [[4, -1]] * 2  # type: ignore[misc]
