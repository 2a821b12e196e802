"""What ranks have written, read where it lies: by torch itself, and without a pickle by a training."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from checkpoint_rig import read, rewrite
from shard_parts import RankOfOne, plain_after
from test_layout import cut, taken

from hpctools import elastic
from hpctools.elastic import export
from hpctools.elastic.checkpoint.manifest import FileRecord, digest_of
from hpctools.elastic.checkpoint.store import name_of
from hpctools.elastic.sharded import layout, part_files, whole
from hpctools.elastic.sharded.layout import Part
from hpctools.elastic.sharded.moving import PartSet

KEPT = elastic.Checkpoint(every_seconds=0, keep=3)
# Of three ranks the last has nothing of the scale; one tensor is larger than what is written in one piece.
VALUES = {
    "model first.weight": torch.arange(7 * 3, dtype=torch.float32).reshape(7, 3),
    "model large": torch.arange(1 << 20, dtype=torch.float32).reshape(1024, 1024),
    "model scale": torch.tensor([0.5, 0.25], dtype=torch.bfloat16),
    "model none": torch.zeros(0, 4),
    "optimizer exp_avg first.weight": torch.arange(7 * 3, dtype=torch.float32).reshape(7, 3) / 7,
}
TRAINED: dict[str, Any] = {
    "buffers": {"norm.mean": torch.tensor([1.0, 2.0])},
    "parameters": {"frozen": torch.tensor([[3, 4]])},
    "kept": {"first.weight": {"step": torch.tensor(5.0)}},
    "groups": [{"lr": 0.5, "betas": (0.9, 0.99), "params": ["first.weight", "large", "scale"]}],
    "tied": {"last.weight": "first.weight"},
}
REST: dict[str, Any] = {"state scheduler": {"last_epoch": 4}, "cursor": {"step": 4}}


class Rank(RankOfOne):
    """One of some, with its part of `VALUES`."""

    def __init__(self, place: str, rank: int, world: int, rest: dict[str, Any] = REST) -> None:
        super().__init__(place, KEPT, rank, world)
        self.rest = rest

    def _living(self) -> PartSet:
        parts = {
            name: replace(
                cut(tuple(value.shape), 0, self.rank, self.world), dtype=str(value.dtype).partition(".")[2]
            )
            for name, value in VALUES.items()
        }
        tensors = {name: taken(VALUES[name], part) for name, part in parts.items()}
        return replace(
            super()._living(), parts=parts, tensors=tensors, plain={"trained": TRAINED, "rest": self.rest}
        )


def saved(place: Path, world: int = 3, rest: dict[str, Any] = REST) -> tuple[Path, RankOfOne]:
    """What so many ranks save after step 4, and the first of them."""
    ranks = [Rank(str(place), rank, world, rest) for rank in range(world)]
    for rank in ranks:
        rank.step, rank.keeper.agreed = 4, True
        rank.keeper.boundary(4, sound=True)
    for rank in ranks:
        rank.keeper.close()
    assert [each["step"] for each in ranks[0].desk.of("saved")] == [4], ranks[0].desk.told
    return place / name_of(4), ranks[0]


def empty() -> dict[str, Any]:
    """The state of a plain process, before it has read anything."""
    state: dict[str, Any] = {
        "model": {name[6:]: torch.ones_like(each) for name, each in VALUES.items() if name[:5] == "model"},
        "optimizer": {
            "state": {"first.weight": {"exp_avg": torch.ones(7, 3), "step": torch.tensor(0.0)}},
            "param_groups": [{"lr": 0.0, "betas": (0.0, 0.0), "params": ["", "", ""]}],
        },
        "state": {"scheduler": {"last_epoch": 0}},
    }
    state["model"] |= {"norm.mean": torch.zeros(2), "frozen": torch.zeros(1, 2, dtype=torch.int64)}
    state["model"]["last.weight"] = torch.ones(7, 3)
    return state


def loaded(folder: Path) -> dict[str, Any]:
    state = empty()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch tells that it is one process
        dcp.load(state, storage_reader=dcp.FileSystemReader(folder), no_dist=True)
    return state


@pytest.mark.parametrize("world", [1, 3])
def test_torch_reads_everything_where_the_ranks_have_written_it(tmp_path: Path, world: int) -> None:
    """No process group; the same that the export gives, from the ranks' own files."""
    folder, rank = saved(tmp_path / "saved", world)
    assert rank.desk.of("warning") == []
    state = loaded(folder)
    model = {name[6:]: each for name, each in VALUES.items() if name[:5] == "model"}
    model |= {**TRAINED["buffers"], **TRAINED["parameters"], "last.weight": model["first.weight"]}
    assert state["model"].keys() == model.keys()
    for name, value in model.items():
        assert torch.equal(state["model"][name], value), name
    kept = state["optimizer"]["state"]["first.weight"]
    assert torch.equal(kept["exp_avg"], VALUES["optimizer exp_avg first.weight"])
    assert kept["step"] == 5.0
    assert state["optimizer"]["param_groups"] == TRAINED["groups"]
    assert state["state"] == {"scheduler": {"last_epoch": 4}}
    export.export(str(folder), tmp_path / "whole")
    names = [
        set(dcp.FileSystemReader(each).read_metadata().planner_data) for each in (folder, tmp_path / "whole")
    ]
    assert names[0] == names[1]
    large = 4 << 20  # once: what torch reads is what a training reads
    assert sum(each.stat().st_size for each in folder.iterdir()) < large + (1 << 16)


def test_a_training_reads_nothing_of_the_pickles_around_the_values(tmp_path: Path) -> None:
    """A stranger who can write there could otherwise run code in it (decision 0022)."""
    folder, rank = saved(tmp_path, 1)
    parts, places, archives = json.loads((folder / "shards-00000.json").read_bytes())
    assert set(places) == set(archives) == set(VALUES) - {"model none"}
    values = (folder / "shards-00000.bin").read_bytes()
    bare = bytearray(b"\xff" * len(values))
    for name, part in layout.decode_parts(parts).items():
        if part.bytes:
            bare[places[name] : places[name] + part.bytes] = values[places[name] : places[name] + part.bytes]
    rewrite(folder, "shards-00000.bin", bytes(bare))
    whole_tensors = part_files.WholeTensors(folder)
    for name, value in VALUES.items():
        assert torch.equal(whole_tensors.read(name), value), name
    assert rank.keeper.newest() == 4


@pytest.mark.parametrize("file", [".metadata", "__0_0.distcp"])
def test_what_only_torch_reads_is_checked_like_the_rest(tmp_path: Path, file: str) -> None:
    for step in (3, 7):
        RankOfOne(str(tmp_path)).save_after(step)
    data = (tmp_path / name_of(7) / file).read_bytes()
    (tmp_path / name_of(7) / file).write_bytes(bytes([data[0] ^ 1]) + data[1:])
    rank = RankOfOne(str(tmp_path))
    assert rank.keeper.newest() == 3
    (warning,) = rank.desk.of("warning")
    assert f"{name_of(7)} is not used: {file} has another checksum" in warning["message"]


def test_a_state_that_torch_has_no_names_for_is_saved_all_the_same(tmp_path: Path) -> None:
    """Two of its names are the same with torch's dots between them."""
    folder, rank = saved(tmp_path, 2, {"state one": {"a": {"b": 1}, "a.b": 2}, "cursor": {}})
    (warning,) = rank.desk.of("warning")
    assert "torch itself cannot read the checkpoints, only a training can: duplicated" in warning["message"]
    assert RankOfOne(str(tmp_path)).keeper.newest() == 4
    assert not (folder / ".metadata").exists()


def test_no_other_loader_takes_it_for_its_own(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    step, told = read(tmp_path)
    assert step is None
    assert [each.partition("is not used: ")[2] for each in told] == [
        "it is of a sharded model; read it with elastic.ShardedLoader"
    ]


def bare_parts(
    folder: Path,
    rank: int,
    parts: dict[str, Part],
    tensors: dict[str, torch.Tensor],
    go_on: Callable[[], None],
) -> dict[str, FileRecord]:
    """What earlier releases wrote: nothing but the values, in multiples of 64 bytes."""
    data, places = b"", {}
    for name, tensor in tensors.items():
        places[name] = len(data)
        bare = tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        data += bare + b"\0" * (-len(bare) % 64)
    files = {
        f"shards-{rank:05d}.bin": data,
        f"shards-{rank:05d}.json": json.dumps([layout.encode_parts(parts), places]).encode(),
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return {name: FileRecord(len(content), digest_of(content)) for name, content in files.items()}


def test_a_checkpoint_of_an_earlier_release_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a training, and by the export."""
    with monkeypatch.context() as earlier:
        earlier.setattr(part_files, "write_parts", bare_parts)
        earlier.setattr(whole, "describe", lambda store, stage, parts, plain, refused: parts)
        folder, _ = saved(tmp_path / "saved")
        RankOfOne(str(tmp_path / "own")).save_after(7)
    assert sorted(each.name for each in folder.iterdir()) == [
        "COMMITTED",
        "manifest.json",
        "plain.pt",
        *(f"shards-{rank:05d}.{kind}" for rank in range(3) for kind in ("bin", "json")),
    ]
    export.export(str(folder), tmp_path / "whole")
    assert torch.equal(loaded(tmp_path / "whole")["model"]["large"], VALUES["model large"])
    rank = RankOfOne(str(tmp_path / "own"))
    assert rank.keeper.newest() == 7
    assert torch.equal(rank.filled_from(7), torch.full((4,), 7.0))
    assert plain_after(7) == part_files.read_plain(tmp_path / "own" / name_of(7))
