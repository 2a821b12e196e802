"""Shards in S3: each rank uploads its own, and takes only what it needs."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from s3_rig import Server, bucket_of, serving
from shard_parts import RankOfOne

from hpctools.elastic.checkpoint import s3_store
from hpctools.elastic.checkpoint.manifest import Manifest
from hpctools.elastic.checkpoint.store import step_of
from hpctools.elastic.sharded.fetching import ATTEMPTS
from hpctools.elastic.sharded.layout import Part
from hpctools.elastic.sharded.moving import Wanted
from hpctools.errors import ElasticError

ROOT = "s3://training/runs/one"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """An empty bucket; `$TMPDIR` is this test's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(s3_store, "ATTEMPTS", 1)
    with serving() as server, bucket_of(server, monkeypatch):
        yield server


def save(*ranks: RankOfOne, step: int) -> None:
    """All ranks save the state after a step; rank 0 waits for the others' parts."""
    for rank in ranks:
        rank.step, rank.keeper.agreed = step, True
        rank.keeper.boundary(step, sound=True)
    for rank in ranks:
        rank.keeper.close()


def test_any_number_of_ranks_reads_what_two_wrote(server: Server, tmp_path: Path) -> None:
    """A rank downloads the indices and the shards that it wants, not all; nothing stays in $TMPDIR."""
    two = [RankOfOne(ROOT, rank=rank, world=2) for rank in (0, 1)]
    for step in (4, 9):
        save(*two, step=step)
    assert [each["step"] for each in two[0].desk.of("saved")] == [4, 9], two[0].desk.told
    one, quarter = RankOfOne(ROOT), RankOfOne(ROOT)
    assert one.keeper.newest() == 9
    whole = torch.zeros(8)
    one.keeper.read(9, Wanted({"model weight": Part((8,), "float32", (0,), (8,))}, {"model weight": whole}))
    assert torch.equal(whole, torch.full((8,), 9.0))
    server.asked.clear()
    some = torch.zeros(2)
    quarter.keeper.read(
        9, Wanted({"model weight": Part((8,), "float32", (5,), (2,))}, {"model weight": some})
    )
    assert torch.equal(some, torch.full((2,), 9.0))
    fetched = {path.rpartition("/")[2] for method, path in server.asked if method == "GET"}
    assert {"shards-00001.bin", "plain.pt"} <= fetched
    assert "shards-00000.bin" not in fetched
    assert list(tmp_path.iterdir()) == []


def wanted() -> tuple[torch.Tensor, Wanted]:
    """Half of what two ranks have saved, to be filled."""
    half = torch.zeros(4)
    return half, Wanted({"model weight": Part((8,), "float32", (4,), (4,))}, {"model weight": half})


def damaging(monkeypatch: pytest.MonkeyPatch, times: int) -> list[str]:
    """A download of the second rank's shards arrives damaged so many times; the names of what was fetched."""
    fetched, fetch = [], s3_store.S3Store.fetched

    @contextlib.contextmanager
    def damaged(store: s3_store.S3Store, name: str, manifest: Manifest) -> Iterator[Path]:
        with fetch(store, name, manifest) as folder:
            fetched.append(sorted(manifest.files))
            shards = folder / "shards-00001.bin"
            if shards.exists() and sum("shards-00001.bin" in each for each in fetched) <= times:
                shards.write_bytes(bytes(255 - each for each in shards.read_bytes()))
            yield folder

    monkeypatch.setattr(s3_store.S3Store, "fetched", damaged)
    return fetched


def test_a_damaged_download_of_a_rank_is_not_used_but_made_again(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 has compared a download of its own."""
    save(*(RankOfOne(ROOT, rank=rank, world=2) for rank in (0, 1)), step=4)
    damaging(monkeypatch, times=ATTEMPTS - 1)
    half, parts = wanted()
    RankOfOne(ROOT, rank=1, world=2).keeper.read(4, parts)
    assert torch.equal(half, torch.full((4,), 4.0))
    assert list(tmp_path.iterdir()) == []


def test_a_node_on_which_every_download_is_damaged_says_so(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(*(RankOfOne(ROOT, rank=rank, world=2) for rank in (0, 1)), step=4)
    damaging(monkeypatch, times=ATTEMPTS)
    half, parts = wanted()
    with pytest.raises(ElasticError, match=r"arrives damaged here, .*shards-00001.bin has another checksum"):
        RankOfOne(ROOT, rank=1, world=2).keeper.read(4, parts)
    assert torch.equal(half, torch.zeros(4))
    assert list(tmp_path.iterdir()) == []


def test_what_is_given_up_because_a_worker_leaves_is_no_failure_of_s3(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank = RankOfOne(ROOT, world=2)
    monkeypatch.setattr("hpctools.elastic.sharded.keeping.LOST_SECONDS", 0.0)
    monkeypatch.setattr(rank.keeper, "_make_ready", lambda _: rank.keeper.hurry())
    for step in (4, 5):
        save(rank, step=step)
    first, second = rank.desk.of("save_failed")
    assert "rank 0: a worker left or was lost while it was written (writer 1 of 2 has" in first["reason"]
    assert second["step"] == 5
    assert not rank.keeper._attempts.has_failed


def test_a_rank_whose_upload_fails_leaves_no_checkpoint_and_no_files(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run is told once, by rank 0; the other rank's own output has the reason."""
    monkeypatch.setattr("hpctools.elastic.sharded.keeping.COMMIT_SECONDS", 0.5)
    server.fails = lambda method, path, number: method == "PUT" and path.endswith("shards-00001.bin")
    two = [RankOfOne(ROOT, rank=rank, world=2) for rank in (0, 1)]
    save(*two, step=4)
    (said,), silent = (rank.desk.of("warning") for rank in two)
    assert "writer 1 of 2 has not added its part of s3://training/runs/one/step-" in said["message"]
    assert "the output of rank 1 says why" in said["message"]
    assert silent == []
    assert "failed on rank 1: cannot write the checkpoints in s3://training" in capsys.readouterr().err
    assert RankOfOne(ROOT).keeper.newest() == -1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("label", ["train-3fa9c1_1.4", "train.v2-3fa9c1_5ca1ab1e", "0.0"])
def test_what_a_run_with_a_dot_in_its_name_or_ranks_together_wrote_is_found(label: str) -> None:
    """On S3 a checkpoint's name has the label of who wrote it."""
    assert step_of(f"step-000000012.{label}") == 12
