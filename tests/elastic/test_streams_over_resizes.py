"""Loading processes of streams: over a resize none of those that stay is read again."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
from lone_training import File, Readings

from hpctools.elastic.batches import Batches
from hpctools.elastic.pieces import by_shards
from hpctools.elastic.sampling import Cursor, StreamSampling
from hpctools.elastic.streams import Streams

SHARDS = 4
SAMPLING = StreamSampling(8, SHARDS, 2, 4)


@dataclass(frozen=True)
class Seat:
    """A worker's place in a group."""

    number: int
    rank: int
    world: int


class NotedReadings(Readings):
    """A stream that notes what is read of it, and cannot say where it is."""

    state_dict = load_state_dict = property()  # type: ignore[assignment]

    def __init__(self, notes: Path, shard: int, of: int) -> None:
        super().__init__(shard, of, 2000)
        self._notes = notes

    def __next__(self) -> Any:
        number, inputs = super().__next__()
        with self._notes.open("a") as lines:
            lines.write(f"{number}\n")
        return number, inputs


class NotedFile(File):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.notes = folder / "notes"
        self.notes.touch()

    def shard(self, index: int, of: int) -> Readings:
        return NotedReadings(self.notes, index, of)

    @property
    def noted(self) -> list[int]:
        return [int(line) for line in self.notes.read_text().split()]


Start = Callable[[Any, int], Batches]


@pytest.fixture
def started() -> Iterator[Start]:
    made: list[Batches] = []

    def start(dataset: Any, processes: int) -> Batches:
        source = Streams(dataset, lambda samples: [number for number, _ in samples], SAMPLING)
        made.append(Batches(SAMPLING, source, by_shards(SAMPLING), processes))
        return made[-1]

    yield start
    for each in made:
        each.close()


def fed(batches: Batches, seat: Seat) -> list[list[int]]:
    """What a worker is fed in the next step; the step is not passed."""
    step = batches.plan(cast("Any", seat))
    return [batches.batch(piece) for piece in step.pieces if piece.samples]


def trained(batches: Batches, seat: Seat, steps: int) -> list[list[list[int]]]:
    taken = []
    for _ in range(steps):
        taken.append(fed(batches, seat))
        batches.passed(8)
    return taken


@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("worlds", [(2, 1), (1, 2), (4, 2), (4, 1, 2, 4), (1, 4, 1)])
def test_what_stays_is_not_read_again(
    worlds: tuple[int, ...], processes: int, started: Start, tmp_path: Path
) -> None:
    """All that was read ahead of the change is in the new plan, sooner or later."""
    data = NotedFile(tmp_path)
    batches, plain = started(data, processes), started(File(2000), 0)
    seats = [Seat(number, 0, world) for number, world in enumerate(worlds)]
    for seat in seats:
        assert trained(batches, seat, 3) == trained(plain, seat, 3)
        assert len(batches._loading._asked) >= 2 * processes  # type: ignore[attr-defined]
    batches.close()
    stay = SHARDS // max(worlds)  # rank 0 has these all the time
    read = [number for number in data.noted if number % SHARDS < stay]
    assert len(read) == len(set(read))


@pytest.mark.parametrize("seed", range(6))
def test_batches_are_the_same_whatever_comes_between(seed: int, started: Start) -> None:
    """Resizes, steps that are done again or left out, and states from elsewhere."""
    chosen = random.Random(seed)
    batches, plain = started(File(400), chosen.randint(1, 3)), started(File(400), 0)
    seat = Seat(0, 0, 2)
    kept = [plain.capture()]
    for number in range(1, 40):
        what = chosen.choice(["resize", "resize", "again", "skip", "back", "on", "on"])
        if what == "resize":
            world = chosen.randint(1, SHARDS)
            seat = Seat(number, chosen.choice([0, chosen.randrange(world)]), world)
        elif what == "again":
            seat = replace(seat, number=number)
        for each in (batches, plain):
            if what == "skip":
                each.skip()
            elif what == "back":
                each.load(kept[len(kept) // 2])
        assert fed(batches, seat) == fed(plain, seat), (number, what)
        if chosen.random() < 0.9:  # else the step is done again
            for each in (batches, plain):
                each.passed(8)
            kept.append(plain.capture())
        assert batches.cursor == plain.cursor
    assert batches.cursor != Cursor()
