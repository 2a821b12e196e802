"""A last batch that is too small for a batch norm is told when the loader is made, and not after an epoch."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

from hpctools import elastic
from hpctools.elastic.folder import RunFolder, RunStatus
from hpctools.elastic.sampling import Sampling
from hpctools.elastic.sharded import process_group
from hpctools.elastic.single_samples import smallest_block, smallest_shard
from hpctools.elastic.spec import RunSpec
from hpctools.errors import ElasticError


def data(samples: int) -> list[torch.Tensor]:
    return [torch.sin(torch.arange(3.0) + number) for number in range(samples)]


def normed() -> nn.Module:
    return nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 1))


def said_of(samples: int, model: nn.Module, **options: Any) -> list[str]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        elastic.Loader(model, optimizer, data(samples), batch_size=8, epochs=1, **options)
    return [str(each.message) for each in caught]


SINGLE = [
    (11, {"shards": 2}),
    (9, {"shards": 1}),
    (9, {"mode": "fast"}),
    (11, {"mode": "fast", "microbatch": 2}),
]


@pytest.mark.parametrize(("samples", "options"), SINGLE)
def test_a_single_sample_is_told_before_it_fails(samples: int, options: dict[str, Any]) -> None:
    (said,) = said_of(samples, normed(), **options)
    assert f"has {samples % 8} of {samples} samples" in said
    assert "the batch norm 0 fails there" in said
    assert "fewer shards" in said
    assert "torch.utils.data.Subset" in said


@pytest.mark.parametrize(
    ("samples", "options"),
    [
        (12, {"shards": 2}),
        (16, {"shards": 4}),
        (10, {"mode": "fast"}),
        (12, {"mode": "fast", "microbatch": 2}),
    ],
)
def test_enough_samples_are_nothing_to_be_said(samples: int, options: dict[str, Any]) -> None:
    assert said_of(samples, normed(), **options) == []


@pytest.mark.parametrize(
    ("samples", "options", "full"),
    [
        (16, {"mode": "fast", "microbatch": 7}, 8),
        (20, {"shards": 5}, 8),
        (7, {"mode": "fast", "microbatch": 3}, 7),
    ],
)
def test_full_batches_are_looked_at_too(samples: int, options: dict[str, Any], full: int) -> None:
    """8 samples are a microbatch of 7, and one of a single sample."""
    (said,) = said_of(samples, normed(), **options)
    assert said.startswith(f"each full batch has {full} of {samples} samples")


def practised(**options: Any) -> int:
    """How many samples the batch for practice has; batch norms need two."""
    model = normed()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = elastic.Loader(model, optimizer, data(16), batch_size=8, epochs=1, **options)
    piece, batch = loader._batches.rehearsal()
    assert (len(batch), piece.number, piece.samples, piece.is_practice) == (
        piece.high - piece.low,
        0,
        0,
        True,
    )
    return len(batch)


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({"mode": "fast", "shards": 12}, 2),
        ({"mode": "fast", "shards": 5}, 2),
        ({"mode": "fast", "shards": 2}, 4),
        ({"mode": "fast", "shards": 1, "microbatch": 3}, 3),
        ({"shards": 2}, 4),
        ({"shards": 3}, 3),
        ({"shards": 4}, 2),
    ],
)
def test_the_batch_for_practice_has_two_samples_where_a_worker_has(
    options: dict[str, Any], size: int
) -> None:
    """In fast mode any number of shards is right, and each worker of a run failed before its first step."""
    assert practised(**options) == size


def test_nothing_is_said_without_a_batch_norm_that_counts() -> None:
    assert said_of(9, nn.Linear(3, 1), shards=2) == []
    assert said_of(9, normed().eval(), shards=2) == []


def test_a_sharded_model_is_told_too() -> None:
    def build(mesh: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
        model = fully_shard(normed(), mesh=mesh)
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    try:
        with pytest.warns(UserWarning, match="the batch norm 0 fails there"):
            elastic.ShardedLoader(build, data(9), batch_size=8, epochs=1, shards=2)
    finally:
        process_group.uninstall()


@pytest.mark.parametrize(
    ("samples", "worlds", "microbatch", "smallest"),
    [(14, [1, 2], None, 3), (14, [4], None, 1), (14, [1, 2, 4], 2, 1), (16, [2], None, 4), (9, [4], None, 1)],
)
def test_blocks_of_any_number_of_workers(
    samples: int, worlds: list[int], microbatch: int | None, smallest: int
) -> None:
    assert smallest_block(worlds, microbatch, Sampling(samples, 8, 3, 1, 0).last_batch) == smallest


def test_shards_of_the_last_batch() -> None:
    assert [smallest_shard(3, size) for size in (8, 6, 5, 1)] == [2, 2, 1, 1]


def test_in_a_run_any_number_of_workers_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """12 samples are 8 and 4: one worker has enough of them, and four may not."""
    folder = RunFolder.create(
        tmp_path / "run", RunSpec("t-1", "t", "u", "", 1, 2, 2, ("true",), "/", (), "/r", "now")
    )
    folder.write_status(RunStatus(state="finished"))
    assert said_of(12, normed(), mode="fast") == []
    monkeypatch.setenv("HPCTOOLS_RUN_DIR", str(folder.path))
    model = normed()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with (
        pytest.warns(UserWarning, match="has 4 of 12 samples"),
        pytest.raises(ElasticError, match="has ended"),
    ):
        elastic.Loader(model, optimizer, data(12), batch_size=8, epochs=1, mode="fast")
