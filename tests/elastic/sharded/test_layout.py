"""What has to travel to whom: every wanted byte once, from whoever holds it, for any sizes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hpctools.elastic.sharded.layout import (
    Part,
    Parts,
    Survey,
    Version,
    furthest_whole,
    holders_of,
    pieces,
)
from hpctools.elastic.sharded.moving import UNREADABLE, asks_storage, choose_source, left_out, lost
from hpctools.elastic.sharded.transfer import copy_pieces

VERSION = Version(3, 1)
Shapes = dict[str, tuple[int, ...]]
shapes = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple),
    min_size=1,
)
dimensions = st.integers(0, 2)


def cut(shape: tuple[int, ...], dimension: int, rank: int, world: int) -> Part:
    """A rank's part, as FSDP cuts: equal parts from the beginning, the last ones smaller or empty."""
    dimension = min(dimension, len(shape) - 1)
    size = -(-shape[dimension] // world)
    low = min(rank * size, shape[dimension])
    high = min(low + size, shape[dimension])
    offsets = tuple(low if each == dimension else 0 for each in range(len(shape)))
    sizes = tuple(high - low if each == dimension else full for each, full in enumerate(shape))
    return Part(shape, "float32", offsets, sizes)


def parts_of(shapes: Shapes, dimension: int, rank: int, world: int) -> dict[str, Part]:
    return {name: cut(shape, dimension, rank, world) for name, shape in shapes.items()}


def surveys_of(shapes: Shapes, dimension: int, world: int, version: Version = VERSION) -> list[Survey]:
    parts = [parts_of(shapes, dimension, rank, world) for rank in range(world)]
    return [Survey(((version, each),), (version,)) for each in parts]


def whole(shapes: Shapes) -> dict[str, torch.Tensor]:
    """Tensors whose every element is another number."""
    return {
        name: torch.arange(math.prod(shape), dtype=torch.float32).reshape(shape) + 1
        for name, shape in shapes.items()
    }


def taken(tensor: torch.Tensor, part: Part) -> torch.Tensor:
    for dimension, (offset, size) in enumerate(zip(part.offsets, part.sizes, strict=True)):
        tensor = tensor.narrow(dimension, offset, size)
    return tensor


def tensors_of(shapes: Shapes, parts: Parts) -> dict[str, torch.Tensor]:
    values = whole(shapes)
    return {name: taken(values[name], part).clone() for name, part in parts.items()}


@given(shapes, st.integers(1, 7), st.integers(1, 7), dimensions, dimensions)
def test_any_sizes_any_dimension(shapes: Shapes, old: int, new: int, before: int, after: int) -> None:
    """Every rank gets exactly its part of every tensor, each element written once."""
    surveys = surveys_of(shapes, before, old)
    held = [tensors_of(shapes, survey.held[0][1]) for survey in surveys]
    wanted = [parts_of(shapes, after, rank, new) for rank in range(new)]
    plan = pieces(holders_of(VERSION, surveys), wanted)
    for rank, parts in enumerate(wanted):
        rooms = {name: torch.zeros(part.sizes) for name, part in parts.items()}
        ours = [each for each in plan if each.target == rank]
        size = copy_pieces(ours, lambda piece: held[piece.source][piece.name], rooms)
        assert size == sum(part.bytes for part in parts.values())
        for name, expected in tensors_of(shapes, parts).items():
            assert torch.equal(rooms[name], expected)


@given(shapes, st.integers(1, 6), dimensions)
def test_nothing_moves_when_nothing_changes(shapes: Shapes, world: int, dimension: int) -> None:
    surveys = surveys_of(shapes, dimension, world)
    plan = pieces(holders_of(VERSION, surveys), [survey.held[0][1] for survey in surveys])
    assert all(each.source == each.target for each in plan)


@given(shapes, st.integers(2, 6), st.data())
def test_copies_make_good_for_a_lost_rank(shapes: Shapes, world: int, data: st.DataObject) -> None:
    """With each rank's parts at its neighbour, too, any one may go; without, not if it held something."""
    lost = data.draw(st.integers(0, world - 1))
    alone = surveys_of(shapes, 0, world)
    twice = [
        Survey((*survey.held, alone[rank - 1].held[0]), survey.plain) for rank, survey in enumerate(alone)
    ]
    left = [each for rank, each in enumerate(twice) if rank != lost]
    assert furthest_whole(left) == VERSION
    wanted = [parts_of(shapes, 0, rank, world - 1) for rank in range(world - 1)]
    plan = pieces(holders_of(VERSION, left), wanted)
    assert sum(math.prod(each.sizes) for each in plan) == sum(map(math.prod, shapes.values()))
    held_something = any(part.elements for part in alone[lost].held[0][1].values())
    bare = [each for rank, each in enumerate(alone) if rank != lost]
    assert (furthest_whole(bare) is None) == held_something


@given(shapes, st.integers(1, 5))
def test_survey_survives_the_wire(shapes: Shapes, world: int) -> None:
    for survey in surveys_of(shapes, 0, world):
        told = replace(survey, checkpoint=7, known=8, looks=True, reached=9)
        assert Survey.decode(told.encode()) == told


def test_the_furthest_whole_state_counts() -> None:
    """Rank 1 is a step ahead alone: the state before it is whole, the one ahead is not."""
    shapes: Shapes = {"a": (4, 2)}
    behind, ahead = surveys_of(shapes, 0, 2), surveys_of(shapes, 0, 2, Version(4, 1))
    both = Survey((ahead[1].held[0], behind[1].held[0]), (*ahead[1].plain, *behind[1].plain))
    assert furthest_whole([behind[0], both]) == Version(3, 1)
    assert furthest_whole([ahead[0], both]) == Version(4, 1)


def test_parts_of_different_cuts_are_not_mixed() -> None:
    """Same step, cut in two generations: only one cut by itself is a whole."""
    shapes: Shapes = {"a": (4, 2)}
    first, second = surveys_of(shapes, 0, 2), surveys_of(shapes, 0, 4, Version(3, 2))
    assert furthest_whole([first[0], second[3]]) is None


def test_source_is_memory_before_a_checkpoint_of_the_same_step() -> None:
    surveys = surveys_of({"a": (4,)}, 0, 2)
    for saved, expected in ((2, VERSION), (3, VERSION), (4, None)):
        source = choose_source([replace(surveys[0], checkpoint=saved), surveys[1]])
        assert source.version == expected
        assert source.checkpoint == (saved if expected is None else -1)


def test_lost_shards_without_a_checkpoint_end_the_run() -> None:
    surveys = [replace(each, reached=3) for each in surveys_of({"a": (4,)}, 0, 2)]
    assert choose_source(surveys[:1]).is_beginning
    assert "shards of the model went with a worker" in str(lost(surveys[:1]))
    assert choose_source([replace(surveys[0], checkpoint=1)]).checkpoint == 1
    assert choose_source([Survey(), Survey()]).name == "beginning", "nobody ever had a state"


def test_nobody_begins_anew_at_another_place_in_the_data() -> None:
    """A state of which nothing sound is left is none that never was; at step 0 fresh values are the state."""
    newcomer = Survey()
    for surveys in ([Survey(reached=3), Survey(reached=3)], [newcomer, Survey(reached=1)]):
        assert choose_source(surveys).is_beginning
        assert "no worker has sound shards of the model any more" in str(lost(surveys))
        assert choose_source([replace(surveys[0], checkpoint=2), *surveys[1:]]).checkpoint == 2
    at_first = surveys_of({"a": (4,)}, 0, 2, Version(0, 1))
    for surveys in ([at_first[0], newcomer], [newcomer, newcomer]):
        assert choose_source(surveys).name == "beginning", "one was lost in the first step, or before"
        assert lost(surveys) is None


def test_behind_batches_that_are_left_out_is_the_beginning_too_and_newcomers_hear_of_them() -> None:
    """Who holds half of a state at step 2 has done none: its batches were left out."""
    waiting = replace(surveys_of({"a": (4,)}, 0, 2, Version(2, 1))[0], skipped=(1, 2))
    surveys = [Survey.decode(each.encode()) for each in (waiting, Survey(skipped=(7,)), Survey())]
    assert surveys[0] == waiting
    assert choose_source(surveys).is_beginning
    assert lost(surveys) is None
    assert left_out(surveys) == {1, 2, 7}
    assert lost([replace(waiting, reached=3), Survey()]) is not None, "it did the third"


def test_storage_is_asked_only_for_what_the_workers_lack() -> None:
    """Nothing whole, or a checkpoint known of to one of them that may be of a later step."""
    first, second = surveys_of({"a": (4,)}, 0, 2)
    looking = replace(first, looks=True)
    assert not asks_storage([looking, replace(second, known=3)])
    assert asks_storage([looking, replace(second, known=4)])
    assert not asks_storage([first, replace(second, known=4)]), "rank 0 joins nothing new"
    assert asks_storage([looking]), "a part is missing"


def test_storage_that_cannot_be_read_matters_when_nothing_is_whole() -> None:
    first, second = surveys_of({"a": (4,)}, 0, 2)
    unread = replace(first, checkpoint=UNREADABLE)
    assert choose_source([unread, second]).version == VERSION
    for surveys in ([unread], [Survey(checkpoint=UNREADABLE), Survey()]):
        with pytest.raises(RuntimeError, match="rank 0 cannot read the checkpoints"):
            choose_source(surveys)
