"""Checkpoints of sharded trainings as torch's own, whole: what is in them, and what is refused."""

from __future__ import annotations

import subprocess
import sys
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from hpctools import elastic
from hpctools.elastic import export
from hpctools.elastic.sharded import process_group, whole

BY_STEPS = {"batch_size": 8, "epochs": 1, "shards": 2, "seed": 3}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 5)
        self.norm = nn.BatchNorm1d(5)
        self.last = nn.Linear(5, 1)
        self.tied = nn.Linear(6, 5, bias=False)
        self.tied.weight = self.first.weight

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.norm(self.first(inputs))) + self.tied(inputs))


def groups_of(model: Net) -> list[dict[str, Any]]:
    """Two groups, whose order is not that of the parameters."""
    first = [*model.last.parameters(), *model.first.parameters()]
    return [{"params": first, "lr": 0.05}, {"params": [*model.norm.parameters()], "lr": 0.01}]


def build(mesh: DeviceMesh) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = Net()
    fully_shard(model.last, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(groups_of(model))


def full(value: torch.Tensor) -> torch.Tensor:
    return (value.full_tensor() if isinstance(value, DTensor) else value).clone()


@pytest.fixture
def trained(tmp_path: Path) -> Iterator[tuple[Path, dict[str, Any], dict[str, Any]]]:
    """Checkpoints of a training of one process; model and moments as they were in the last one, of step 4."""
    settings = elastic.Checkpoint(folder=str(tmp_path / "saved"), every_seconds=0, every_steps=2)
    data = [torch.sin(torch.arange(6.0) * (number + 1)) for number in range(40)]
    loader = elastic.ShardedLoader(build, data, checkpoint=settings, **BY_STEPS)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(loader.optimizer, 0.5)
    loader.track("scheduler", scheduler)
    for inputs in loader:
        if loader.backward(loader.model(inputs).square().mean()):
            loader.optimizer.step()
            loader.optimizer.zero_grad()
            scheduler.step()
            loader._shard_keeper.close()
            if loader.step == 4:
                model = {name: full(value) for name, value in loader.model.state_dict().items()}
                moments = {
                    name: full(loader.optimizer.state[each]["exp_avg_sq"])
                    for name, each in loader.model.named_parameters()
                }
    process_group.uninstall()
    yield tmp_path / "saved", model, moments
    process_group.uninstall()


def loaded(into: dict[str, Any], folder: Path) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch tells that it is one process
        dcp.load(into, storage_reader=dcp.FileSystemReader(folder), no_dist=True)
    return into


def assert_same(values: dict[str, Any], expected: dict[str, Any]) -> None:
    assert values.keys() == expected.keys()
    assert [name for name in values if not torch.equal(values[name], expected[name])] == []


@pytest.mark.parametrize("exported", [True, False])
def test_one_plain_process_loads_model_and_optimizer(
    trained: tuple[Path, dict[str, Any], dict[str, Any]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    *,
    exported: bool,
) -> None:
    """From an export, and from the checkpoint itself."""
    saved, weights, moments = trained
    folder = tmp_path / "whole" if exported else saved / "step-000000004"
    if exported:
        assert export.main([str(saved), str(folder)]) == 0
        assert capsys.readouterr().out.startswith(f"step 4 of {saved}/step-000000004 is in {folder} (")
    model = Net()
    optimizer = torch.optim.AdamW(groups_of(model))
    empty = {"model": model.state_dict(), "optimizer": get_optimizer_state_dict(model, optimizer)}
    state = loaded(empty, folder)
    model.load_state_dict(state["model"])
    set_optimizer_state_dict(model, optimizer, state["optimizer"])
    assert_same(model.state_dict(), weights)
    assert "tied.weight" in weights
    named = model.named_parameters()
    assert_same({name: optimizer.state[each]["exp_avg_sq"] for name, each in named}, moments)
    assert {float(each["step"]) for each in optimizer.state.values()} == {4.0}
    assert [group["lr"] for group in optimizer.param_groups] == [0.05 / 16, 0.01 / 16]
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5).state_dict()
    assert loaded({"state": {"scheduler": scheduler}}, folder)["state"]["scheduler"]["last_epoch"] == 4


def test_a_folder_that_exists_is_refused_and_so_is_the_second_time(
    trained: tuple[Path, dict[str, Any], dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = [str(trained[0] / "step-000000002"), str(tmp_path / "whole")]
    assert export.main(argv) == 0
    before = sorted((path.name, path.stat().st_mtime_ns) for path in (tmp_path / "whole").iterdir())
    assert export.main(argv) == 1
    assert f"elastic: {tmp_path}/whole exists already; name a folder" in capsys.readouterr().err
    assert sorted((path.name, path.stat().st_mtime_ns) for path in (tmp_path / "whole").iterdir()) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["saved", "whole"]


def test_what_fails_leaves_nothing_and_says_why(
    trained: tuple[Path, dict[str, Any], dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(source: Path, folder: Path) -> int:
        (folder / "half").touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(whole, "write_whole", full_disk)
    with pytest.raises(export.ElasticError, match=r"cannot write .*/whole: No space left on device; free"):
        export.export(str(trained[0]), tmp_path / "whole")
    with pytest.raises(export.ElasticError, match=r"/no is no folder; make it first"):
        export.export(str(trained[0]), tmp_path / "no" / "whole")
    with pytest.raises(export.ElasticError, match=r"no whole checkpoint of a sharded model in .*/no;"):
        export.export(str(tmp_path / "no"), tmp_path / "whole")
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_few_tensors_are_in_memory_at_a_time(
    trained: tuple[Path, dict[str, Any], dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that is put together, and the one before it."""
    read, made, most = whole.WholeTensors.read, [], []

    def noted(tensors: whole.WholeTensors, name: str) -> torch.Tensor:
        memory = read(tensors, name).numpy().copy()  # lives as long as any tensor over it
        made.append(weakref.ref(memory))
        most.append(sum(each() is not None for each in made))
        return torch.from_numpy(memory)

    monkeypatch.setattr(whole.WholeTensors, "read", noted)
    export.export(str(trained[0]), tmp_path / "whole")
    assert len(most) > 12
    assert max(most) <= 2


def test_help_says_what_comes_along_and_needs_no_torch() -> None:
    code = "import sys; from hpctools.elastic import export\ntry: export.main(['--help'])\nfinally: "
    code += "assert 'torch' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert "optimizer (named as" in done.stdout
