"""Which pieces are loaded ahead of a change of the group, of map-style data and in both modes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import pytest
from lone_training import File, Noisy

from hpctools.elastic.batches import Batches
from hpctools.elastic.group import Group
from hpctools.elastic.indexed import Indexed
from hpctools.elastic.pieces import Piece, by_blocks, by_shards
from hpctools.elastic.sampling import Cursor, Sampling, StreamSampling
from hpctools.elastic.session import LONE
from hpctools.elastic.streams import Streams

SAMPLING = Sampling(samples=30, batch_size=12, shards=4, epochs=2, seed=0)
TWO, THREE = Group(1, 1, 2, None), Group(2, 2, 3, None)
Place = tuple[int, int, int, int]


class Recording:
    """Notes what it is asked to load ahead."""

    def __init__(self) -> None:
        self.noted: list[tuple[str, list[Place]]] = []

    def note(self, how: str, pieces: Iterable[Piece]) -> None:
        first = [(each.cursor.step, each.number, each.low, each.high) for each in islice(pieces, 4)]
        self.noted.append((how, first))

    def turn(self) -> None:
        self.note("turn", [])

    def foresee(self, pieces: Iterable[Piece]) -> None:
        self.note("foresee", pieces)

    def follow(self, pieces: Iterable[Piece]) -> None:
        self.note("follow", pieces)


def streams(sampling: StreamSampling) -> Streams:
    return Streams(File(), list, sampling)


def recorded(mode: str, group: Group) -> tuple[Batches, Recording]:
    """Batches of a worker that trains in a group, at step 1."""
    source = Indexed(Noisy(30), list, SAMPLING)
    cut = by_shards(SAMPLING) if mode == "exact" else by_blocks(SAMPLING, None)
    batches, recording = Batches(SAMPLING, source, cut, num_workers=0), Recording()
    batches._loading, batches._soon = recording, 4  # type: ignore[assignment]
    batches.cursor = Cursor(1, 0, 12)
    if group is not LONE:
        batches.plan(group)
    recording.noted.clear()
    return batches, recording


NOW = {"exact": [(1, 2, 18, 21), (1, 3, 21, 24)], "fast": [(1, 6, 18, 24)]}
"""What rank 1 of 2 has in step 1."""
THEN = {
    "exact": [(2, 3, 28, 30), (3, 3, 9, 12), (4, 3, 21, 24), (5, 3, 28, 30)],
    "fast": [(2, 4, 28, 30), (3, 8, 8, 12), (4, 8, 20, 24), (5, 4, 28, 30)],
}
"""What rank 2 of 3 has from step 2 on, the end of an epoch."""


@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_a_change_that_may_come_after_this_step_is_foreseen_once(mode: str) -> None:
    batches, recording = recorded(mode, TWO)
    batches.look_ahead(None, 1)
    assert recording.noted == []
    batches.look_ahead(THREE, 1)
    batches.look_ahead(THREE, 1)
    assert recording.noted == [("foresee", THEN[mode])]
    batches.passed(12)
    batches.look_ahead(THREE, 1)
    assert [how for how, _ in recording.noted] == ["foresee", "foresee"]
    assert recording.noted[1][1] == THEN[mode][1:]


@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_a_change_after_the_next_step_is_part_of_the_plan(mode: str) -> None:
    batches, recording = recorded(mode, TWO)
    batches.begins(THREE, batches.place(1))
    assert recording.noted == [("follow", (NOW[mode] + THEN[mode])[:4])]


@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_who_joins_or_has_switched_loads_what_begins_there(mode: str) -> None:
    joiner, told = recorded(mode, LONE)
    joiner.begins(THREE, Cursor(2, 0, 24))
    assert told.noted == [("follow", THEN[mode])]
    survivor, told = recorded(mode, TWO)
    survivor.passed(12)
    survivor.begins(THREE, survivor.cursor)
    assert told.noted == [("follow", THEN[mode])]
    survivor.plan(THREE)
    assert told.noted[1:] == [("turn", [])]


def test_nothing_comes_after_the_end() -> None:
    batches, recording = recorded("exact", TWO)
    batches.cursor = Cursor(5, 1, 24)
    batches.look_ahead(THREE, 1)
    assert recording.noted == [("foresee", [])]


def test_what_is_foreseen_comes_after_the_step_in_work() -> None:
    """Two processes are asked for four pieces ahead; of the step's five one is not asked for yet."""
    batches, recording = recorded("exact", TWO)
    batches._soon = 4
    batches.look_ahead(THREE, 5)
    assert recording.noted == []
    batches.look_ahead(THREE, 4)
    assert len(recording.noted) == 1


def test_a_step_that_is_left_out_is_not_in_the_plan_any_more() -> None:
    batches, recording = recorded("exact", TWO)
    batches.skip()
    assert recording.noted == [("turn", [])]


def test_streams_are_read_on_past_a_step_that_is_left_out() -> None:
    """Else those without a state would be read again from the beginning."""
    sampling = StreamSampling(batch_size=12, shards=4, epochs=2, seed=0)
    batches, recording = Batches(sampling, streams(sampling), by_shards(sampling), 0), Recording()
    batches._loading = recording  # type: ignore[assignment]
    batches.skip()
    assert recording.noted == []
    assert batches.cursor == Cursor(1, 0, 12)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_streams_are_not_loaded_ahead(num_workers: int) -> None:
    """They are told what is to come all the same, and give what they would have given."""
    sampling = StreamSampling(batch_size=12, shards=4, epochs=2, seed=0)
    told, plain = (Batches(sampling, streams(sampling), by_shards(sampling), num_workers) for _ in range(2))
    for made in (told, plain):
        made.plan(TWO)
    told.look_ahead(THREE, 0)
    told.begins(THREE, told.place(1))
    for made in (told, plain):
        made.passed(12)
    pieces = [made.plan(TWO).pieces for made in (told, plain)]
    assert pieces[0] == pieces[1]
    assert [str(told.batch(each)) for each in pieces[0]] == [str(plain.batch(each)) for each in pieces[0]]
    told.close()
    plain.close()
