"""Exports of what several ranks wrote: put together, torn ones refused, from S3 and from whole runs."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from checkpoint_rig import Unwell
from s3_rig import bucket_of, serving
from shard_parts import RankOfOne
from sharded_run import WEIGHT_TOLERANCE, ShardedRun, command, lone_ledger
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from hpctools import elastic
from hpctools.elastic import export
from hpctools.elastic.checkpoint.selection import newest
from hpctools.errors import ElasticError


def loaded(folder: Path, model: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch tells that it is one process
        dcp.load({"model": model}, storage_reader=dcp.FileSystemReader(folder), no_dist=True)
    return model


class Rank(RankOfOne):
    """One of two, with other elements on each."""

    def __init__(self, place: str, rank: int) -> None:
        super().__init__(place, elastic.Checkpoint(every_seconds=0, keep=3), rank, 2)

    def _living(self) -> Any:
        living = super()._living()
        return replace(
            living, tensors={name: each + 100 * self.rank for name, each in living.tensors.items()}
        )


def save(place: str, *steps: int) -> None:
    """What two ranks save after some steps."""
    ranks = [Rank(place, rank) for rank in (0, 1)]
    for step in steps:
        for rank in ranks:
            rank.step, rank.keeper.agreed = step, True
            rank.keeper.boundary(step, sound=True)
        for rank in ranks:
            rank.keeper.close()
    assert [each["step"] for each in ranks[0].desk.of("saved")] == list(steps), ranks[0].desk.told


def tear(folder: Path) -> None:
    """Cut the last byte off the second rank's part."""
    part = folder / "shards-00001.bin"
    part.write_bytes(part.read_bytes()[:-1])


def weight_in(folder: Path) -> list[float]:
    return loaded(folder, {"weight": torch.zeros(8)})["weight"].tolist()


def test_a_torn_part_is_refused_by_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of several checkpoints the newest whole one is taken, and what is wrong with a newer one said."""
    save(str(tmp_path / "saved"), 4, 9)
    torn = tmp_path / "saved" / "step-000000009"
    tear(torn)
    left = (torn / "shards-00001.bin").stat().st_size
    why = f"checkpoint {torn} is not used: shards-00001.bin has {left} bytes instead of {left + 1}"
    assert export.main([str(torn), str(tmp_path / "whole")]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"elastic: there is no whole checkpoint of a sharded model in {torn} ({why});")
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]
    assert export.main([str(tmp_path / "saved"), str(tmp_path / "whole")]) == 0
    assert capsys.readouterr().err == f"elastic: {why}\n"
    assert weight_in(tmp_path / "whole") == [4.0] * 4 + [104.0] * 4


def test_no_older_one_is_exported_because_the_newest_cannot_be_read_just_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save(str(tmp_path / "saved"), 4, 9)
    for file in ("manifest.json", "shards-00001.bin"):
        with monkeypatch.context() as patched:
            Unwell(patched).refuse(f"step-000000009/{file}")
            assert export.main([str(tmp_path / "saved"), str(tmp_path / "whole")]) == 1
            said = capsys.readouterr().err
            assert said.startswith("elastic: cannot read ")
            assert f"{tmp_path}/saved/step-000000009/{file}" in said
            assert "or name the checkpoint (step-...) that is to be exported" in said
            assert [path.name for path in tmp_path.iterdir()] == ["saved"]
            assert export.main([str(tmp_path / "saved" / "step-000000004"), str(tmp_path / "whole")]) == 0
        shutil.rmtree(tmp_path / "whole")


def test_what_is_not_sharded_is_no_work_for_it(tmp_path: Path) -> None:
    model = torch.nn.Linear(1, 1)
    settings = elastic.Checkpoint(folder=str(tmp_path / "saved"), every_seconds=0, every_steps=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = elastic.Loader(
        model, optimizer, [torch.ones(1)] * 4, batch_size=2, epochs=1, shards=1, checkpoint=settings
    )
    for inputs in loader:
        assert loader.backward(model(inputs).mean())
        optimizer.step()
    assert newest(str(tmp_path / "saved")) is not None
    with pytest.raises(
        export.ElasticError, match=r"is not sharded, and torch\.distributed\.checkpoint\.load reads"
    ):
        export.export(str(tmp_path / "saved"), tmp_path / "whole")


def test_from_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All is downloaded through $TMPDIR, and nothing stays there; what was downloaded is torch's, too."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    with serving() as server, bucket_of(server, monkeypatch):
        save("s3://training/runs/one", 5)
        export.export("s3://training/runs/one/", tmp_path / "whole")
        found = newest("s3://training/runs/one")
        assert found is not None
        with found.store.fetched(found.name, found.manifest) as folder:
            assert weight_in(folder) == [5.0] * 4 + [105.0] * 4
    assert weight_in(tmp_path / "whole") == [5.0] * 4 + [105.0] * 4
    assert list((tmp_path / "tmp").iterdir()) == []


def empty_model(folder: Path) -> dict[str, torch.Tensor]:
    """Room for all of the model that a checkpoint has."""
    described = dcp.FileSystemReader(folder).read_metadata().state_dict_metadata
    return {
        name.removeprefix("model."): torch.zeros(each.size, dtype=each.properties.dtype)
        for name, each in described.items()
        if name.startswith("model.")
    }


def read_all(folder: Path) -> dict[str, torch.Tensor]:
    """Every tensor, by the name that torch gives it."""
    reader = dcp.FileSystemReader(folder)
    described = reader.read_metadata().state_dict_metadata
    state = {
        name: torch.zeros(each.size, dtype=each.properties.dtype)
        for name, each in described.items()
        if isinstance(each, TensorStorageMetadata)
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.load(state, storage_reader=reader, no_dist=True)
    return state


@pytest.mark.timeout(360)
def test_a_run_of_two_workers_is_exported_as_one_of_one(tmp_path: Path) -> None:
    """Step 35 of 36, from the run's folder; equal up to rounding, as the trainings are. What two have written
    and what the export makes of it are the same to torch: every tensor, moments included.
    """
    with ShardedRun(tmp_path, command(tmp_path / "out", "--save-every", "35"), (2, 2)) as run:
        assert run.end() == 0
    (tmp_path / "lone").mkdir()
    lone_ledger(tmp_path / "lone", "--save-every", "35", "--folder", str(tmp_path / "one"))
    for source, name in ((run.folder.path, "of two"), (tmp_path / "one", "of one")):
        assert " step-000000035 is in" in export.export(str(source), tmp_path / name).replace(
            "/step", " step"
        )
    two, one = (loaded(tmp_path / name, empty_model(tmp_path / name)) for name in ("of two", "of one"))
    assert two.keys() == one.keys()
    assert {"first.weight", "layers.1.norm.running_mean", "scale"} <= two.keys()
    (written,) = run.folder.path.glob("checkpoints/step-000000035")
    assert (saved := read_all(written)).keys() == (exported := read_all(tmp_path / "of two")).keys()
    assert {"model.first.weight", "optimizer.state.first.weight.exp_avg"} <= saved.keys()
    assert [name for name, value in saved.items() if not torch.equal(value, exported[name])] == []
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=WEIGHT_TOLERANCE, atol=WEIGHT_TOLERANCE)


def test_what_a_run_removes_while_it_is_exported_is_no_matter_of_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was compared with its checksums a moment ago."""
    save(str(tmp_path / "saved"), 4)
    problem = export._problem

    def removing(found: Any, files: Path) -> str | None:
        said = problem(found, files)
        (files / "plain.pt").unlink()
        return said

    monkeypatch.setattr(export, "_problem", removing)
    with pytest.raises(ElasticError, match=r"cannot read .*/step-000000004/plain\.pt.*; export again"):
        export.export(str(tmp_path / "saved"), tmp_path / "whole")
