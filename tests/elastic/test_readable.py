"""A state that cannot be saved or moved is told before the first step, with the place of what is to blame."""

from __future__ import annotations

import threading
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import torch
from lone_training import File, Readings

from hpctools import elastic
from hpctools.elastic.batches import Batches
from hpctools.elastic.pieces import by_shards
from hpctools.elastic.readable import check_readable
from hpctools.elastic.sampling import StreamSampling
from hpctools.elastic.streams import Streams
from hpctools.errors import ElasticError


def state_with(value: object) -> dict[str, Any]:
    return {
        "model": {"weight": torch.ones(3)},
        "scheduler": {"lr_lambdas": [value, None], "last_lr": [0.1]},
        "state mine": {"count": 3},
    }


@pytest.mark.parametrize("value", [None, 3, "text", b"bytes", [1.5, {"a": torch.ones(1)}], {1, 2}])
def test_plain_values_containers_and_tensors_come_back(value: object) -> None:
    check_readable(state_with(value))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (threading.Lock(), "_thread.lock, cannot be saved or moved to another worker: cannot pickle"),
        (lambda step: 0.9, "builtins.function, cannot be saved or moved to another worker: Can't pickle"),
        (
            datetime(2026, 1, 1),
            "datetime.datetime, cannot be saved or moved to another worker: .*Unsupported",
        ),
        (Path("/"), r"pathlib.PosixPath, cannot be saved or moved to another worker: .*Unsupported"),
    ],
)
def test_what_does_not_is_named_with_its_place(value: object, said: str) -> None:
    with pytest.raises(ElasticError, match=rf"^scheduler\['lr_lambdas'\]\[0\], of type {said}"):
        check_readable(state_with(value))
    with pytest.raises(
        ElasticError, match=r"^state\['mine'\]\[7\]\['x'\], of type .*; have state_dict\(\) give"
    ):
        check_readable({"model": {}, "state mine": {7: {"x": value}}})
    with pytest.raises(ElasticError, match=r"^loss, of type "):
        check_readable({"loss": value})


class Clock:
    """Something of the user's with a state of its own."""

    def state_dict(self) -> dict[str, Any]:
        return {"since": [Path("/")]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


@pytest.mark.parametrize("saves", [True, False])
def test_a_training_that_saves_says_so_before_its_first_batch(tmp_path: Path, saves: bool) -> None:
    """One that is alone and saves nothing needs none of it."""
    model = torch.nn.Linear(2, 1)
    loader = elastic.Loader(
        model,
        torch.optim.SGD(model.parameters(), 0.1),
        torch.utils.data.TensorDataset(torch.ones(8, 2)),
        batch_size=4,
        epochs=1,
        state={"clock": Clock()},
        checkpoint=elastic.Checkpoint(folder=str(tmp_path)) if saves else None,
    )
    if saves:
        with pytest.raises(
            ElasticError, match=r"state\['clock'\]\['since'\]\[0\], of type pathlib.PosixPath"
        ):
            next(iter(loader))
        assert list(tmp_path.iterdir()) == []
    else:
        assert next(iter(loader))


class Locked(Readings):
    """A stream whose place nobody else can read."""

    def state_dict(self) -> dict[str, Any]:
        return {"place": 3, "file": Path("/")}


class Files(File):
    def shard(self, index: int, of: int) -> Readings:
        return Locked(index, of, self.length)


SAID = r"^stream\.state_dict\(\)\['file'\], of type pathlib.PosixPath, cannot be saved or moved"


def test_a_stream_s_place_that_cannot_be_read_back_is_said_before_the_first_batch(tmp_path: Path) -> None:
    """It would be in every checkpoint, and the next start would find none that it could read."""
    model = torch.nn.Linear(6, 1)
    loader = elastic.Loader(
        model,
        torch.optim.SGD(model.parameters(), 0.1),
        Files(),
        batch_size=4,
        shards=2,
        epochs=1,
        checkpoint=elastic.Checkpoint(folder=str(tmp_path), every_steps=1),
    )
    with pytest.raises(ElasticError, match=SAID):
        next(iter(loader))
    assert list(tmp_path.iterdir()) == []


def test_a_worker_says_so_in_its_batch_for_practice() -> None:
    sampling = StreamSampling(8, 2, 1, 0)
    batches = Batches(sampling, Streams(Files(), list, sampling), by_shards(sampling), 0)
    batches.rehearsal()
    batches.unchecked = True
    with pytest.raises(ElasticError, match=SAID):
        batches.rehearsal()
