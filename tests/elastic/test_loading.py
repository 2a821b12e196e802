"""Loading processes: the same batches as without, and plain errors when they break."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from lone_training import File, Noisy, train
from pid_namespace import in_a_pid_namespace

from hpctools.elastic.loading import AHEAD, Loaded, LoadingProcesses, Mark, _serve
from hpctools.elastic.pieces import Piece
from hpctools.elastic.sampling import Cursor
from hpctools.errors import ElasticError


@pytest.mark.parametrize("dataset", [Noisy(), File()], ids=["map", "streams"])
@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_loading_processes_change_nothing(dataset: Any, mode: str) -> None:
    fed, losses, weights = train(dataset, mode=mode)
    for count in (1, 3):
        others = train(dataset, mode=mode, num_workers=count)
        assert others[:2] == (fed, losses)
        assert all(torch.equal(*pair) for pair in zip(others[2], weights, strict=True))


def piece(number: int, step: int = 0) -> Piece:
    return Piece(Cursor(step), number, number, number + 1, 1)


class Telling:
    """Tells in which process it was asked for what."""

    is_sticky = False

    def load(self, piece: Piece, mark: Mark | None) -> Loaded:
        if piece.number == 66:
            raise ValueError("no such file")
        if piece.number == 99:
            os.kill(os.getpid(), signal.SIGKILL)
        return Loaded((os.getpid(), piece.number, mark), 1)


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
    loading.forget()
    assert [loading.load(piece(number, step=1)).batch[1] for number in (5, 6, 7)] == [5, 6, 7]


def test_a_piece_out_of_order_is_a_new_plan(loading: LoadingProcesses) -> None:
    """A step is begun again, or one is left out."""
    assert [loading.load(piece(number)).batch[1] for number in (3, 4, 3, 20, 21)] == [3, 4, 3, 20, 21]


def test_the_data_sets_error_comes_back_as_it_is(loading: LoadingProcesses) -> None:
    with pytest.raises(ValueError, match=r"in loading process [01]") as caught:
        loading.load(piece(66))
    assert "no such file" in str(caught.value)


def test_the_processes_end_with_the_training() -> None:
    before = set(multiprocessing.active_children())
    train(Noisy(9), epochs=1, num_workers=2)
    assert set(multiprocessing.active_children()) == before


def test_a_killed_process_is_said(loading: LoadingProcesses) -> None:
    with pytest.raises(ElasticError, match=r"loading process [01] has ended \(exit code -9\)"):
        loading.load(piece(99))


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
        _serve(ended.pid, None, Telling(), None, 0)  # type: ignore[arg-type]
