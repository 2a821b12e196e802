"""Loading processes: the same batches as without, and plain errors when they break."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lone_training import File, Noisy, Readings, train
from pid_namespace import in_a_pid_namespace

from hpctools.elastic import loading as module
from hpctools.elastic.indexed import Indexed
from hpctools.elastic.loading import AHEAD, LoadingProcesses
from hpctools.elastic.loading_process import SHARED_BYTES, serve
from hpctools.elastic.nursery import NurseryError
from hpctools.elastic.own_run import RUN_DIR, WORKER
from hpctools.elastic.pieces import Piece
from hpctools.elastic.sampling import Cursor, Sampling
from hpctools.elastic.sources import Loaded, Mark
from hpctools.errors import ElasticError


@pytest.mark.parametrize("dataset", [Noisy(), File()], ids=["map", "streams"])
@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_loading_processes_change_nothing(dataset: Any, mode: str) -> None:
    fed, losses, weights = train(dataset, mode=mode)
    for count in (1, 3):
        others = train(dataset, mode=mode, num_workers=count)
        assert others[:2] == (fed, losses)
        assert all(torch.equal(*pair) for pair in zip(others[2], weights, strict=True))


class Stages(Noisy):
    """Every epoch's samples are of another stage, with what was drawn for it."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch, self.drawn = -1, torch.zeros(())

    def set_epoch(self, epoch: int) -> None:
        self.epoch, self.drawn = epoch, torch.rand(())

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        number, sample = super().__getitem__(index)
        return number + 1000 * self.epoch, sample + self.drawn


@pytest.mark.parametrize("count", [1, 3])
def test_each_epoch_is_told_wherever_samples_are_read(count: int) -> None:
    """The processes read ahead over its end, and what is done to the script's own data set is not theirs."""
    fed, losses, weights = train(Stages())
    others = train(Stages(), num_workers=count)
    assert others[:2] == (fed, losses)
    assert all(torch.equal(*pair) for pair in zip(others[2], weights, strict=True))
    numbers = [sorted(chain(*(read for passed, read in fed if passed == epoch))) for epoch in range(2)]
    assert numbers == [[*range(50)], [*range(1000, 1050)]]


def test_an_epoch_that_comes_again_is_told_again() -> None:
    """As after a roll back over its end."""
    dataset = Stages()
    source = Indexed(dataset, list, Sampling(50, 10, 2, 2, 0))
    told = []
    for epoch in (0, 0, 1, 0):
        source.load(Piece(Cursor(0, epoch, 0), 0, 0, 5, 5))
        told.append((dataset.epoch, float(dataset.drawn)))
    assert told[0] == told[1] == told[3] != told[2]
    assert [epoch for epoch, _ in told] == [0, 0, 1, 0]


def piece(number: int, step: int = 0) -> Piece:
    return Piece(Cursor(step), number, number, number + 1, 1)


class Telling:
    """Tells in which process it was asked for what."""

    is_sticky = False

    def load(self, piece: Piece, mark: Mark | None) -> Loaded:
        if piece.number == 66:
            raise ValueError("no such file")
        if piece.number == 77:
            os._exit(3)
        if piece.number == 99:
            os.kill(os.getpid(), signal.SIGKILL)
        return Loaded((os.getpid(), piece.number, mark), 1)


class Environment:
    """Tells what it knows of a run."""

    is_sticky = False

    def load(self, piece: Piece, mark: Mark | None) -> Loaded:
        return Loaded([name for name in os.environ if name in (RUN_DIR, WORKER)], 1)


def endless(first: Piece) -> Iterator[tuple[Piece, Mark | None]]:
    for number in range(first.number, 1000):
        yield piece(number, first.cursor.step), Mark(0, number, None)


@pytest.fixture
def loading() -> Iterator[LoadingProcesses]:
    started = LoadingProcesses(Telling(), endless, 2)
    yield started
    started.close()


def test_both_processes_work_ahead(loading: LoadingProcesses) -> None:
    loaded = [loading.load(piece(number)).batch for number in range(10)]
    assert [number for _, number, _ in loaded] == list(range(10))
    assert {mark for _, _, mark in loaded} == {Mark(0, number, None) for number in range(10)}
    assert len({pid for pid, _, _ in loaded}) == 2
    assert len(loading._asked) == 2 * AHEAD


def test_what_was_asked_for_before_a_resize_does_not_come_later(loading: LoadingProcesses) -> None:
    loading.load(piece(0))
    loading.turn()
    assert [loading.load(piece(number, step=1)).batch[1] for number in (5, 6, 7)] == [5, 6, 7]


def test_a_piece_out_of_order_is_a_new_plan(loading: LoadingProcesses) -> None:
    """A step is begun again, or one is left out."""
    assert [loading.load(piece(number)).batch[1] for number in (3, 4, 3, 20, 21)] == [3, 4, 3, 20, 21]


class Noting:
    """Notes what it loads, and holds up what it was told to until a file is there."""

    is_sticky = False

    def __init__(self, folder: Path, held: tuple[int, ...] = ()) -> None:
        self.notes, self.gate, self._held = folder / "notes", folder / "gate", held
        self.notes.touch()

    def load(self, piece: Piece, mark: Mark | None) -> Loaded:
        note(self.notes, piece.number)
        if piece.number in self._held:
            await_(self.gate.exists)
        return Loaded(piece.number, 1)

    @property
    def noted(self) -> list[int]:
        return [int(line) for line in self.notes.read_text().split()]


class NotingStream(Noting):
    is_sticky = True


def is_without_repetition(noted: list[int]) -> bool:
    return len(noted) == len(set(noted))


def note(file: Path, number: int) -> None:
    with file.open("a") as lines:
        lines.write(f"{number}\n")


def await_(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.fixture
def started() -> Iterator[Callable[[Noting], LoadingProcesses]]:
    made: list[LoadingProcesses] = []

    def start(source: Noting) -> LoadingProcesses:
        made.append(LoadingProcesses(source, endless, 2))
        return made[-1]

    yield start
    for each in made:
        each.close()


Start = Callable[[Noting], LoadingProcesses]


def test_what_a_new_plan_wants_too_is_not_loaded_again(started: Start, tmp_path: Path) -> None:
    """Whatever has come, is being loaded or waits for its turn."""
    source = Noting(tmp_path, held=(2,))
    loading = started(source)
    loading.load(piece(0))
    loading.turn()
    assert loading.load(piece(1)).batch == 1
    loading.turn()
    source.gate.touch()
    assert [loading.load(piece(number)).batch for number in range(2, 12)] == [*range(2, 12)]
    assert is_without_repetition(source.noted)


def test_the_first_piece_of_a_new_plan_is_not_asked_for_again(started: Start, tmp_path: Path) -> None:
    """Though all that may be asked for ahead was in the old one, too."""
    source = Noting(tmp_path)
    loading = started(source)
    loading.load(piece(0))
    loading.turn()
    assert [loading.load(piece(number)).batch for number in range(1, 12)] == [*range(1, 12)]
    assert set(loading._asked) == {piece(number) for number in range(12, 12 + 2 * AHEAD)}
    assert is_without_repetition(source.noted)


def test_what_a_new_plan_does_not_want_is_skipped(started: Start, tmp_path: Path) -> None:
    source = Noting(tmp_path, held=(1, 2))
    loading = started(source)
    loading.load(piece(0))
    await_(lambda: set(source.noted) >= {1, 2})
    loading.follow(piece(number) for number in range(40, 90))
    source.gate.touch()
    assert loading.load(piece(40)).batch == 40
    assert set(range(1, 40)) & set(source.noted) == {1, 2}, "both were being loaded"
    assert set(loading._asked) == {piece(number) for number in range(41, 41 + 2 * AHEAD)}
    loading.turn()
    assert loading.load(piece(1)).batch == 1, "it comes again"


def test_what_is_foreseen_is_loaded_beside_the_plan_and_kept_for_the_next(
    started: Start, tmp_path: Path
) -> None:
    """One by each process; the plan itself is asked for as far ahead as always."""
    source = Noting(tmp_path)
    loading = started(source)
    loading.load(piece(0))
    loading.foresee(piece(number) for number in range(50, 60))
    await_(lambda: set(source.noted) >= {50, 51})
    assert [loading.load(piece(number)).batch for number in range(1, 6)] == [*range(1, 6)]
    assert set(loading._asked) == {piece(number) for number in (6, 7, 8, 9, 50, 51)}
    await_(lambda: {6, 7, 8, 9} <= set(source.noted))
    loading.turn()
    assert [loading.load(piece(number)).batch for number in range(50, 60)] == [*range(50, 60)]
    assert is_without_repetition(source.noted)
    assert set(loading._asked) == {piece(number) for number in range(60, 60 + 2 * AHEAD)}


def test_a_foresight_takes_the_place_of_the_one_before_it(started: Start, tmp_path: Path) -> None:
    source = Noting(tmp_path)
    loading = started(source)
    loading.load(piece(0))
    loading.foresee([piece(50), piece(51)])
    loading.foresee([piece(51), piece(52), piece(53)])
    assert set(loading._asked) == {piece(number) for number in (1, 2, 3, 4, 51, 52)}
    await_(lambda: set(source.noted) >= {1, 2, 3, 4, 51, 52})
    assert source.noted.count(51) == 1


def test_what_is_foreseen_and_in_the_plan_counts_once(started: Start, tmp_path: Path) -> None:
    source = Noting(tmp_path)
    loading = started(source)
    loading.load(piece(0))
    loading.foresee([piece(3), piece(6)])
    assert [loading.load(piece(number)).batch for number in range(1, 20)] == [*range(1, 20)]
    assert len(loading._asked) == 2 * AHEAD
    assert is_without_repetition(source.noted)


def test_a_plan_may_end_with_what_was_foreseen(tmp_path: Path) -> None:
    """As after a batch for practice, when the step that was foreseen is that of the group in force."""
    loading = LoadingProcesses(Noting(tmp_path), lambda first: iter([(first, None)]), 2)
    try:
        loading.load(piece(0))
        loading.foresee([piece(1)])
        assert loading.load(piece(1)).batch == 1
        loading.foresee([piece(2)])
        assert loading.load(piece(2)).batch == 2
        assert loading._foreseen == set()
    finally:
        loading.close()


def test_what_has_come_is_not_skipped_under_a_number_that_another_one_has_by_now(
    started: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SKIPPED", 8)
    source = Noting(tmp_path)
    loading = started(source)
    for number in range(40):
        loading.load(piece(number))
        loading.foresee([piece(500)])  # loaded first, and kept
    await_(lambda: piece(500) in loading._asked and 500 in source.noted)
    assert [loading.load(piece(number)).batch for number in range(40, 44)] == [40, 41, 42, 43]
    before = list(loading._skipped)
    while piece(500) not in loading._arrived:
        loading._receive(loading._asked[piece(500)].server)
    loading.foresee([])
    assert list(loading._skipped) == before
    assert [loading.load(piece(number)).batch for number in range(44, 60)] == [*range(44, 60)]


class NotingLarge(Noting):
    """Of which two at once do not fit into a socket."""

    def load(self, piece: Piece, mark: Mark | None) -> Loaded:
        loaded = super().load(piece, mark)
        return Loaded((loaded.batch, bytes(SHARED_BYTES // 2)), 1)


def test_what_nobody_reads_yet_keeps_nobody_from_loading(started: Start, tmp_path: Path) -> None:
    """Four that are not wanted any more, and then two that will be: the training reads nothing meanwhile."""
    source = NotingLarge(tmp_path)
    loading = started(source)
    loading.load(piece(0))
    await_(lambda: set(source.noted) == {0, 1, 2, 3, 4})
    loading.follow(piece(number) for number in range(50, 60))
    await_(lambda: set(source.noted) == {0, 1, 2, 3, 4, 50, 51, 52, 53})
    assert [loading.load(piece(number)).batch[0] for number in range(50, 60)] == [*range(50, 60)]


def test_streams_are_not_read_out_of_their_order(started: Start, tmp_path: Path) -> None:
    source = NotingStream(tmp_path)
    loading = started(source)
    loading.load(piece(0))
    loading.foresee([piece(50)])
    loading.follow(piece(number) for number in range(50, 60))
    assert set(loading._asked) == {piece(number) for number in (1, 2, 3, 4)}
    await_(lambda: set(source.noted) >= {1, 2, 3, 4})
    loading.turn()
    assert loading.load(piece(2)).batch == 2
    assert source.noted.count(2) == 1, "it is what comes next of its stream"
    loading.turn()
    assert loading.load(piece(2)).batch == 2
    assert source.noted.count(2) == 2, "a stream that was read on goes back to where the plan begins"


def test_what_was_foreseen_is_made_again_when_its_maker_is_killed(started: Start, tmp_path: Path) -> None:
    source = Noting(tmp_path, held=(50, 51))
    loading = started(source)
    loading.load(piece(0))
    loading.foresee([piece(50), piece(51)])
    await_(lambda: set(source.noted) >= {50, 51})
    for child in multiprocessing.active_children():
        for process in loaders_of(child.pid):
            os.kill(process, signal.SIGKILL)
    source.gate.touch()
    loading.turn()
    assert [loading.load(piece(number)).batch for number in (50, 51, 52)] == [50, 51, 52]


def loaders_of(nursery: int | None) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{nursery}/task/{nursery}/children").read_text().split()]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("load"), st.integers(1, 5)),
            st.tuples(st.just("turn"), st.integers(0, 30)),
            st.tuples(st.just("foresee"), st.integers(0, 30)),
            st.tuples(st.just("follow"), st.integers(0, 30)),
        ),
        max_size=25,
    )
)
def test_whatever_is_foreseen_and_turned_to_batches_are_those_of_their_pieces(
    done: list[tuple[str, int]],
) -> None:
    loading = LoadingProcesses(Telling(), endless, 2)
    try:
        place = 100
        for what, number in done:
            if what == "foresee":
                loading.foresee(piece(100 + number + each) for each in range(5))
            elif what == "follow":
                loading.follow(piece(100 + number + each) for each in range(40))
            elif what == "turn":
                loading.turn()
                place = 100 + number
            else:
                for _ in range(number):
                    assert loading.load(piece(place)).batch[1] == place
                    place += 1
        assert len(loading._asked) <= 2 * AHEAD + 2
    finally:
        loading.close()


def test_the_data_sets_error_comes_back_as_it_is(loading: LoadingProcesses) -> None:
    with pytest.raises(ValueError, match=r"in loading process [01]") as caught:
        loading.load(piece(66))
    assert "no such file" in str(caught.value)


def test_the_processes_end_with_the_training() -> None:
    before = set(multiprocessing.active_children())
    train(Noisy(9), epochs=1, num_workers=2)
    assert set(multiprocessing.active_children()) == before


def test_what_is_killed_again_and_again_is_said(loading: LoadingProcesses) -> None:
    """Not for ever: a sample may be larger than the memory, or a library fail for it."""
    with pytest.raises(ElasticError, match=r"process [01] was ended by SIGKILL 4 times, .* short of memory"):
        loading.load(piece(99))


def test_a_process_that_ends_by_itself_is_the_scripts_fault(loading: LoadingProcesses) -> None:
    with pytest.raises(ElasticError, match=r"process [01] has ended \(exit code 3\); see its last words"):
        loading.load(piece(77))


def test_some_that_are_killed_now_and_then_are_replaced_for_ever(
    loading: LoadingProcesses, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "CALM_BATCHES", 10)
    killed = set()
    for number in range(100, 280):
        pid, *said = loading.load(piece(number)).batch
        assert said == [number, Mark(0, number, None)]
        if number % 30 == 11:
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
    assert len(killed) == 6
    assert (
        len(re.findall("process [01] was ended by SIGKILL; another one takes", capfd.readouterr().err)) == 6
    )


class Large:
    """Makes batches that go through shared memory, which the receiver asks their maker for."""

    is_sticky = False

    def load(self, piece: Piece, mark: Mark | None) -> Loaded:
        return Loaded((os.getpid(), torch.full((SHARED_BYTES,), float(piece.number))), 1)


def test_what_was_made_and_is_lost_with_its_maker_is_made_again() -> None:
    loading = LoadingProcesses(Large(), endless, 2)
    try:
        for number in range(40):
            pid, batch = loading.load(piece(number)).batch
            assert torch.equal(batch, torch.full((SHARED_BYTES,), float(number)))
            if number in (3, 20):
                os.kill(pid, signal.SIGKILL)
    finally:
        loading.close()


def kill_ourselves_once(marker: Path) -> None:
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)


class Dying(Noisy):
    """Kills who loads some of the samples, each once."""

    def __init__(self, markers: Path) -> None:
        super().__init__()
        self.markers = markers

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        if index in (7, 8, 33):
            kill_ourselves_once(self.markers / str(index))
        return super().__getitem__(index)


class DyingReadings(Readings):
    """A stream that does the same, and tells where it goes on."""

    markers: Path

    def load_state_dict(self, state: dict[str, int]) -> None:
        super().load_state_dict(state)
        with (self.markers / "places").open("a") as file:
            print(self._place, file=file)

    def __next__(self) -> tuple[int, torch.Tensor]:
        number, inputs = super().__next__()
        if number in (22, 32, 1036):
            kill_ourselves_once(self.markers / str(number))
        return number, inputs


class DyingFile(File):
    """A data set of such streams."""

    def __init__(self, markers: Path) -> None:
        super().__init__()
        self.markers = markers

    def shard(self, index: int, of: int) -> Readings:
        stream = DyingReadings(index, of, self.length)
        stream.markers = self.markers
        return stream


class DyingWhole:
    """The samples one after the other, as of an IterableDataset."""

    def __init__(self, markers: Path) -> None:
        self.samples = Dying(markers)

    def __iter__(self) -> Iterator[tuple[int, torch.Tensor]]:
        yield from (self.samples[each] for each in range(self.samples.length))


@pytest.mark.parametrize("dataset", [Dying, DyingFile, DyingWhole])
@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_killed_processes_change_nothing(dataset: Any, mode: str, tmp_path: Path) -> None:
    """No sample comes twice, none is lost, and all numbers are the same."""
    undisturbed, markers = tmp_path / "undisturbed", tmp_path / "markers"
    for each in (undisturbed, markers):
        each.mkdir()
    (markers / "places").touch()
    for number in (7, 8, 22, 32, 33, 1036):
        (undisturbed / str(number)).touch()
    fed, losses, weights = train(dataset(undisturbed), mode=mode)
    others = train(dataset(markers), mode=mode, num_workers=2)
    assert others[:2] == (fed, losses)
    assert all(torch.equal(*pair) for pair in zip(others[2], weights, strict=True))
    assert len(list(markers.iterdir())) == 4
    if dataset is DyingFile:
        places = [int(place) for place in (markers / "places").read_text().split()]
        assert len(places) >= 3, "streams go on from where they stood"
        assert min(places) > 0


def nursery_is_killed() -> None:
    """In a process of its own, which may be ended by it."""
    loading = LoadingProcesses(Telling(), endless, 2)
    loading.load(piece(0))
    loading._nursery._process.kill()
    loading._nursery._process.join()
    try:
        for number in range(1, 10):
            loading.load(piece(number))
    except NurseryError as error:
        print(error)
    loading.close()


def test_who_forks_them_is_killed(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """A worker ends in the same way, and is started again for that; a training by itself is told why."""
    context = multiprocessing.get_context("fork")
    codes = []
    for _ in ("alone", "a worker"):
        process = context.Process(target=nursery_is_killed)
        process.start()
        process.join(60)
        codes.append(process.exitcode)
        monkeypatch.setenv("HPCTOOLS_RUN_DIR", "/r")
    told = capfd.readouterr()
    assert codes == [0, -signal.SIGKILL]
    assert "forks loading processes has ended (exit code -9), and all of them" in told.out
    assert "with it; -9: the node may be short of memory" in told.err
    assert "this worker ends, and is started again" in told.err


def test_loading_processes_are_no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a data set starts in them is none either."""
    monkeypatch.setenv("HPCTOOLS_RUN_DIR", "/r")
    monkeypatch.setenv("HPCTOOLS_WORKER", "b0.0.0")
    loading = LoadingProcesses(Environment(), endless, 1)
    try:
        assert loading.load(piece(0)).batch == []
    finally:
        loading.close()
    assert os.environ["HPCTOOLS_RUN_DIR"] == "/r"


ALONE = """
from lone_training import Noisy, train
assert len(train(Noisy(9), epochs=1, num_workers=2)[1]) == 2
print("trained")
"""


def test_a_training_that_is_process_1_of_its_container_has_loading_processes_too() -> None:
    """As `docker run IMAGE python train.py` without an init."""
    done = in_a_pid_namespace([sys.executable, "-c", ALONE])
    assert (done.returncode, done.stdout, done.stderr) == (0, "trained\n", "")


def test_a_loading_process_whose_training_has_ended_ends() -> None:
    ended = subprocess.Popen(["true"])
    assert ended.wait(10) == 0
    with pytest.raises(SystemExit, match=rf"started this one \({ended.pid}\) has ended"):
        serve(ended.pid, None, Telling(), None, 0)  # type: ignore[arg-type]
