"""Data sets that are read in order: every sample once an epoch, and a stream that goes on elsewhere."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any, cast

import numpy as np
import pytest
import torch
from lone_training import File, Readings, model, train
from torch.utils.data import DataLoader

from hpctools import elastic
from hpctools.elastic import batches as module
from hpctools.elastic import state
from hpctools.elastic.batches import Batches
from hpctools.elastic.pieces import Piece, by_shards
from hpctools.elastic.readable import check_readable
from hpctools.elastic.sampling import Cursor, StreamSampling
from hpctools.elastic.session import LONE
from hpctools.elastic.sources import Mark
from hpctools.elastic.streams import Streams, as_streams
from hpctools.errors import ElasticError

SHARDS = 3
SAMPLING = StreamSampling(8, SHARDS, 2, 4)


@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_every_sample_once_an_epoch_though_streams_end_at_different_times(mode: str) -> None:
    data = File()
    fed, _, _ = train(data, mode=mode)
    for epoch in range(2):
        seen = Counter(number - 1000 * epoch for each, numbers in fed if each == epoch for number in numbers)
        assert seen == Counter(data.numbers(SHARDS))


def test_gradient_is_that_of_the_mean_over_the_samples_that_there_are() -> None:
    """The last steps have fewer samples than the weights of their shards were made for."""
    trained = model().eval()
    loader = elastic.Loader(
        trained, torch.optim.SGD(trained.parameters(), lr=0.0), File(20), batch_size=8, epochs=1, shards=3
    )
    sizes: list[int] = []
    batch: list[torch.Tensor] = []
    for _, inputs in loader:
        batch.append(inputs)
        if not loader.backward(trained(inputs).square().mean()):
            continue
        whole = torch.cat(batch)
        expected = trained(whole).square().mean()
        wanted = torch.autograd.grad(expected, list(trained.parameters()))
        torch.testing.assert_close([each.grad for each in trained.parameters()], list(wanted))
        assert loader.loss == pytest.approx(expected.item())
        sizes.append(len(whole))
        batch.clear()
    assert sizes == [8, 5, 2, 1]  # 7, 3 and 6 samples in streams that give 2, 3 and 3 a step
    assert loader.total_steps is None
    assert loader.indices == []
    with pytest.raises(TypeError, match="no length"):
        len(loader)


def test_after_going_back_over_an_epochs_end_the_next_one_comes_in_the_same_pass() -> None:
    """Two epochs of four steps. After the fifth the run goes back to the third, in the loop's second pass.

    That the streams had ended once more ended the whole training.
    """
    trained = model().eval()
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    loader = elastic.Loader(trained, optimizer, File(20), batch_size=8, epochs=2, shards=3)
    saved: list[Any] = []
    seen, ends = [], []

    def boundary() -> None:
        if loader.step == 5 and saved:
            loader._load(saved.pop())

    loader._session.boundary = boundary  # type: ignore[method-assign]
    for turn in range(2):
        for _, inputs in loader:
            if loader.backward(trained(inputs).square().mean()):
                seen.append((turn, loader.step, loader.epoch))
                if len(seen) == 3:
                    saved.append(loader._capture())
        ends.append(loader.epoch)
    first, second = [(0, step, 0) for step in (1, 2, 3, 4)], [(1, step, 1) for step in (5, 6, 7, 8)]
    assert seen == [*first, (1, 5, 1), (1, 4, 0), *second]
    assert ends == [0, 1], "one process by itself has gone on to the next epoch where streams end"
    assert loader._batches.is_over


@pytest.mark.parametrize(("skip", "left"), [([5], [6, 7, 8]), ([5, 6], [7, 8]), ([4, 5], [6, 7, 8])])
def test_the_first_batch_of_an_epoch_can_be_left_out_after_going_back_before_it(
    skip: list[int], left: list[int]
) -> None:
    """Two epochs of four steps, as above. From step 5 the run goes back to step 3, where epoch 0 still is."""
    trained = model().eval()
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    settings = elastic.Checkpoint(snapshots=20, snapshot_steps=1, every_seconds=0)
    loader = elastic.Loader(
        trained, optimizer, File(20), batch_size=8, epochs=2, shards=3, checkpoint=settings
    )
    orders = [skip]
    fed: dict[int, list[int]] = {}
    seen: list[int] = []

    def boundary() -> None:
        if loader.step == 5 and orders:
            loader._roll_back(3, orders.pop())
            seen.clear()

    loader._session.boundary = boundary  # type: ignore[method-assign]
    for _ in range(2):
        for numbers, inputs in loader:
            fed.setdefault(loader.step + 1, []).extend(numbers.tolist())
            if loader.backward(trained(inputs).square().mean()):
                seen.append(loader.step)
                optimizer.step()
                optimizer.zero_grad()
    again = [step for step in (4,) if step not in skip]
    assert seen == again + left
    assert sorted(len(fed[step]) for step in left) == [1, 2, 5][: len(left)]
    assert loader.step == 8


def test_who_joins_knows_where_the_epochs_began() -> None:
    """All have to leave out the same; a state of an earlier release says nothing of it."""
    ours, others, earlier = (
        Batches(SAMPLING, streams_of(File(20)), by_shards(SAMPLING), 0) for _ in range(3)
    )
    for samples in (8, 5, 0, 8):
        ours.passed(samples)
    assert ours.cursor == Cursor(3, 1, 8)
    before = {"cursor": asdict(Cursor(2, 0, 16)), "streams": {}}
    others.load({**ours.capture(), **before})
    earlier.load(before)
    for batches in (others, earlier):
        batches.skip()
    assert others.cursor == Cursor(3, 1, 8)
    assert earlier.cursor == Cursor(3, 0, 24)


@pytest.mark.parametrize(("batch_size", "known"), [(8, {1: 2, 2: 4}), (4, {})])
def test_other_batches_make_epochs_of_other_lengths(batch_size: int, known: dict[int, int]) -> None:
    """Where a run begins from what another one has saved: what it knew is wrong here.

    Also of epochs that are over: a roll back may go to before one, and its end then comes at another step.
    """
    others = Batches(SAMPLING, streams_of(File(20)), by_shards(SAMPLING), 0)
    others.began = {1: 2, 2: 4}
    sampling = replace(SAMPLING, batch_size=batch_size)
    ours = Batches(sampling, streams_of(File(20)), by_shards(sampling), 0)
    told = others.capture()
    for shape in (told["began_of"], list(told["began_of"])):
        ours.load({**told, "began_of": shape, "cursor": asdict(Cursor(3, 1, 8))})
        assert ours.began == known


def read(streams: Streams, step: int, shard: int, mark: Mark | None = None) -> tuple[list[int], Mark | None]:
    cursor = Cursor(step, 0, step * SAMPLING.batch_size)
    low, high = SAMPLING.slice_of(cursor, shard)
    loaded = streams.load(Piece(cursor, shard, low, high, high - low), mark)
    return loaded.batch or [], loaded.mark


def streams_of(dataset: Any) -> Streams:
    return Streams(dataset, lambda samples: samples, SAMPLING)


class Watched(File):
    """Knows which streams were opened."""

    def __init__(self, length: int = 50) -> None:
        super().__init__(length)
        self.streams: list[Readings] = []

    def shard(self, index: int, of: int) -> Readings:
        self.streams.append(super().shard(index, of))
        return self.streams[-1]


def values(samples: list[Any]) -> list[tuple[int, list[float]]]:
    return [(number, inputs.tolist()) for number, inputs in samples]


def test_a_stream_that_is_taken_over_goes_on_to_the_bit() -> None:
    """From its mark without reading anything again; from an older one, or none, by reading forward."""
    here = streams_of(File())
    first, mark = read(here, 0, 2)
    later = [values(read(here, step, 2)[0]) for step in (1, 2, 3)]
    for known, opened_at in ((mark, 3), (None, 0)):
        data = Watched()
        there = streams_of(data)
        assert [values(read(there, step, 2, known)[0]) for step in (1, 2, 3)] == later
        (stream,) = data.streams
        assert stream.opened == 1
        assert known is None or known.taken == opened_at
    assert len(first) == 3


def reads(data: Watched) -> int:
    """Samples that were read of all streams, beside those that a place stands for."""
    return sum(stream.reads for stream in data.streams)


def test_a_stream_that_was_read_for_practice_goes_on_from_a_place_far_ahead() -> None:
    """A training that is resumed knows where its streams stood; what lies between may be most of an epoch."""
    elsewhere = streams_of(File(600))
    data = Watched(600)
    batches = Batches(SAMPLING, streams_of(data), by_shards(SAMPLING), 0)
    batches.rehearsal()
    practised = reads(data)
    cursor = Cursor(51, 0, 51 * SAMPLING.batch_size)
    marks = {shard: astuple(read(elsewhere, 50, shard)[1]) for shard in range(SHARDS)}
    batches.load({"cursor": asdict(cursor), "streams": marks})
    pieces = batches.plan(LONE).pieces
    assert reads(data) - practised == sum(piece.samples for piece in pieces) == 5
    assert values(batches.batch(pieces[2])) == values(read(elsewhere, 51, 2)[0])


def test_a_stream_that_comes_back_goes_on_from_where_it_was_meanwhile() -> None:
    """A worker may give a shard away in a growth and have it again in the same epoch."""
    data = Watched(600)
    here, there = streams_of(data), streams_of(File(600))
    read(here, 0, 2)
    for step in range(1, 40):
        _, mark = read(there, step, 2)
    before = reads(data)
    samples, ours = read(here, 40, 2, mark)
    assert reads(data) - before == len(samples) == 3
    assert (values(samples), ours) == (values((other := read(there, 40, 2))[0]), other[1])
    read(here, 41, 2, ours)
    assert len(data.streams) == 2, "its own place is no reason to open it again"


def test_a_stream_that_has_ended_is_not_opened_again_for_a_place_beyond_its_end() -> None:
    data = Watched()
    streams = streams_of(data)
    read(streams, 9, 1)
    assert read(streams, 12, 1, Mark(0, 33, None)) == ([], Mark(0, 39, None))
    assert len(data.streams) == 1


@pytest.mark.parametrize(
    ("made", "copied"),
    [
        (list, True),
        pytest.param(lambda samples: threading.Lock(), False, id="a lock"),
        pytest.param(lambda samples: 2 * torch.ones(1, requires_grad=True), False, id="of autograd"),
    ],
)
def test_a_batch_for_practice_is_a_copy_where_there_can_be_one(
    made: Callable[[list[Any]], Any], *, copied: bool
) -> None:
    """What cannot be copied is fed itself: it may be all that the loop is ever fed."""
    batches = Batches(SAMPLING, Streams(File(), made, SAMPLING), by_shards(SAMPLING), 0)
    piece, batch = batches.rehearsal()
    assert (batches.batch(piece) is not batch) == copied


class Counted(Readings):
    """A stream that counts in numpy's numbers."""

    def state_dict(self) -> dict[str, Any]:
        return {"place": np.int64(self._place), "kept": [np.float32(0.5)]}


class CountedFile(File):
    def shard(self, index: int, of: int) -> Readings:
        return Counted(index, of, self.length)


def test_places_in_numpys_numbers_can_be_told_to_others() -> None:
    """Others read what they are told as they read a checkpoint, where these numbers are none."""
    batches = Batches(SAMPLING, Streams(CountedFile(), list, SAMPLING), by_shards(SAMPLING), 0)
    batches.plan(LONE)
    told = state._read(state._bytes_of({shard: astuple(mark) for shard, mark in batches._coming.items()}))
    assert told == {
        shard: (0, count, {"place": count, "kept": [0.5]}) for shard, count in enumerate((2, 3, 3))
    }


class TurningFile(File):
    """Its streams say where they are in plain numbers at first, and one of them later not."""

    def shard(self, index: int, of: int) -> Readings:
        stream = Readings(index, of, self.length)
        plain = stream.state_dict
        odd = {"places": np.arange(2)}
        stream.state_dict = lambda: odd if index == 1 and plain()["place"] > 3 else plain()  # type: ignore
        return stream


@dataclass(frozen=True)
class Pair:
    """What telling asks of a group of two."""

    number: int = 1
    rank: int = 0
    world: int = 2


def test_a_place_that_can_no_longer_be_read_back_is_not_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Others would end of it, and nobody needs it; it is said once."""
    told: list[dict[int, Any]] = []

    def share(group: Any, note: dict[int, Any]) -> dict[int, Any]:
        told.append(state._read(state._bytes_of(note)))
        return {}

    monkeypatch.setattr(module, "share", share)
    batches = Batches(SAMPLING, streams_of(TurningFile(100)), by_shards(SAMPLING), 0)
    batches.unchecked = True
    for _ in range(3):
        batches.plan(LONE)
        batches.tell(cast("Any", Pair()), 2)
        batches.passed(8)
    assert [sorted(marks) for marks in told] == [[0, 1, 2], [0, 2], [0, 2]]
    check_readable(captured := batches.capture())
    assert sorted(captured["streams"]) == [0, 2]
    said = capsys.readouterr().err
    assert said.count("elastic:") == 1
    assert "places of streams are not told" in said
    assert "stream.state_dict()['places'], of type numpy.ndarray" in said


class Large:
    """A sample of which few fit into memory."""

    alive = most = 0

    def __init__(self) -> None:
        Large.alive += 1
        Large.most = max(Large.most, Large.alive)

    def __del__(self) -> None:
        Large.alive -= 1


def test_who_takes_a_stream_over_keeps_nothing_of_what_it_reads_over() -> None:
    """A stream that cannot say where it stands is read from its beginning, late in the epoch, too."""

    class Images(File):
        def shard(self, index: int, of: int) -> Any:
            return (Large() for _ in range(100))

    assert len(read(streams_of(Images()), 30, 1)[0]) == 3
    assert Large.most <= 5
    assert read(streams_of(Images()), 60, 1)[0] == [], "that is beyond its end"


def test_a_step_that_is_done_again_reads_the_same_again() -> None:
    streams = streams_of(File())
    _, before = read(streams, 0, 0)
    samples = values(read(streams, 1, 0)[0])
    assert values(read(streams, 1, 0, before)[0]) == samples
    assert values(read(streams, 1, 0)[0]) == samples


def test_a_stream_that_has_ended_stays_so_for_who_takes_it_over() -> None:
    """Some data sets begin anew when they are iterated after their end."""
    streams = streams_of(File())
    for step in range(9):
        samples, mark = read(streams, step, 1)
    assert (samples, mark) == ([], Mark(0, 27, None))
    assert read(streams_of(File()), 9, 1, mark)[0] == []


class Plain(torch.utils.data.IterableDataset[tuple[int, torch.Tensor]]):
    """An ordinary iterable data set, with a shuffle of torch's own generator."""

    def __iter__(self) -> Iterator[tuple[int, torch.Tensor]]:
        for number in range(23):
            yield number, torch.randn(6)


def test_an_ordinary_iterable_is_divided_sample_by_sample() -> None:
    fed, _, _ = train(Plain())
    assert Counter(number for epoch, numbers in fed if epoch == 1 for number in numbers) == Counter(range(23))
    assert as_streams(Plain()) is not None
    assert as_streams([1, 2]) is None


class Forgetful(Plain):
    """Its state is not exact, as Hugging Face's: what its shuffle buffer holds is not in it."""

    def __init__(self) -> None:
        self.read = 0

    def __iter__(self) -> Iterator[tuple[int, torch.Tensor]]:
        buffer = list[int]()
        while self.read < 40:
            buffer.append(self.read)
            self.read += 1
            if len(buffer) > 5:
                yield buffer.pop(random.randrange(len(buffer))), torch.randn(6)

    def state_dict(self) -> dict[str, int]:
        return {"read": self.read}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.read = state["read"]


def test_an_ordinary_iterable_that_is_taken_over_is_read_again_whatever_it_says_of_its_place() -> None:
    data = as_streams(Forgetful())
    here = streams_of(data)
    _, mark = read(here, 0, 2)
    later = [values(read(here, step, 2)[0]) for step in (1, 2, 3)]
    there = streams_of(data)
    assert [values(read(there, step, 2, mark)[0]) for step in (1, 2, 3)] == later
    assert later[-1]


class HuggingFaces:
    """What `datasets.Dataset` has: map-style, and a `shard` that is asked the other way round."""

    def __len__(self) -> int:
        return 23

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        if not 0 <= index < 23:
            raise IndexError(index)
        return index, torch.full((6,), float(index))

    def shard(self, num_shards: int, index: int, contiguous: bool = True) -> object:
        raise ValueError("index should be in [0, num_shards-1]")


class HuggingFacesIterable(Plain):
    """What `datasets.IterableDataset` has."""

    def shard(self, num_shards: int, index: int, contiguous: bool = True) -> object:
        raise ValueError("index should be in [0, num_shards-1]")


@pytest.mark.parametrize("data", [iter([]), File(0)])
def test_a_data_set_without_samples_is_said_and_not_a_training_of_no_steps(data: Any) -> None:
    with pytest.raises(ElasticError, match=r"the data set's streams are all empty; give it samples"):
        train(data)


class Counting(Plain):
    """One that knows its length."""

    def __len__(self) -> int:
        return 23


def test_an_iterable_data_set_with_a_length_is_no_map() -> None:
    fed, _, _ = train(Counting(), epochs=1)
    assert Counter(number for _, numbers in fed for number in numbers) == Counter(range(23))


class Shuffled(torch.utils.data.IterableDataset[tuple[int, torch.Tensor]]):
    """Shuffles as data sets do that are read in order: all of it, or as much as a buffer holds."""

    def __init__(self, by: str) -> None:
        self.by = by

    def __iter__(self) -> Iterator[tuple[int, torch.Tensor]]:
        order, buffer = list(range(23)), list[int]()
        if self.by == "random":
            random.shuffle(order)
        elif self.by == "torch":
            order = torch.randperm(23).tolist()
        for number in order:
            buffer.append(number)
            if self.by != "a buffer" or len(buffer) > 5:
                yield self.sample(buffer.pop(random.randrange(len(buffer))))
        while buffer:
            yield self.sample(buffer.pop())

    def sample(self, number: int) -> tuple[int, torch.Tensor]:
        return number, torch.randn(6)


class ShuffledFiles(File):
    """Shuffles where it divides."""

    def shard(self, index: int, of: int) -> Any:
        order = list(range(23))
        random.shuffle(order)
        return [(number, torch.ones(6)) for number in order[index::of]]


@pytest.mark.parametrize("processes", [0, 2])
@pytest.mark.parametrize(
    "data", [Shuffled("random"), Shuffled("torch"), Shuffled("a buffer"), ShuffledFiles()]
)
def test_a_data_set_that_shuffles_gives_every_sample_once(data: Any, processes: int) -> None:
    """By the generators of torch and `random`, each epoch in another order."""
    fed, _, _ = train(data, num_workers=processes)
    orders = [[number for each, numbers in fed if each == epoch for number in numbers] for epoch in range(2)]
    assert [Counter(order) for order in orders] == [Counter(range(23))] * 2
    assert orders[0] != orders[1]


def test_what_cannot_be_read_more_than_once_is_said() -> None:
    """A generator is iterable, and each virtual shard has to iterate it by itself."""
    with pytest.raises(ElasticError, match=r"generator cannot be read by each virtual shard: cannot pickle"):
        train((sample for sample in Plain()), epochs=1)


def test_what_another_library_calls_shard_is_not_taken_for_ours() -> None:
    assert as_streams(HuggingFaces()) is None
    fed, _, _ = train(HuggingFacesIterable())
    assert Counter(number for epoch, numbers in fed if epoch == 1 for number in numbers) == Counter(range(23))
    assert as_streams(file := File()) is file


def test_a_data_loader_in_a_data_set_s_place_is_said() -> None:
    """Each of its batches would be taken for a sample; without batches it gives samples."""
    samples = [torch.zeros(6)] * 8
    with pytest.raises(ElasticError, match=r"gives batches and not samples; give its data set"):
        as_streams(DataLoader(samples, batch_size=4))
    assert as_streams(DataLoader(samples, batch_size=None)) is not None


def test_what_is_no_data_set_is_said() -> None:
    with pytest.raises(ElasticError, match="int is no data set; give it"):
        train(7)


def test_more_streams_than_samples_in_a_batch_are_said() -> None:
    with pytest.raises(ElasticError, match="9 shards cannot share batches of 8 samples; give shards=8"):
        train(File(), shards=9)
