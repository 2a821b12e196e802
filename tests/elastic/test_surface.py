"""What hpctools.elastic promises to training scripts: names, signatures and attributes, and nothing else."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

from hpctools import elastic, errors
from hpctools.elastic.sharded import process_group

SHARED = (
    "batch_size: int, epochs: int, seed: int = 0, shards: int = 12, {}state: Mapping[str, Stateful] | None = "
    "None, collate: Callable[[list[Any]], Any] = <function default_collate>, num_workers: int = 0, "
)
SIGNATURES = {
    "Checkpoint": "(folder: str = , every_seconds: float = 600.0, every_steps: int = 0, keep: int = 2, "
    "resume_from: str = , snapshots: int = 0, snapshot_steps: int = 10) -> None",
    "Loader": "(model: nn.Module, optimizer: torch.optim.Optimizer, dataset: AnyDataset, *, "
    + SHARED.format("scheduler: Stateful | None = None, ")
    + "mode: Literal[exact, fast] = exact, microbatch: int | None = None, "
    "checkpoint: Checkpoint | None = None, threads: int | None = 1) -> None",
    "ShardedLoader": "(build: Build, dataset: AnyDataset, *, "
    + SHARED.format("")
    + "checkpoint: Checkpoint | None = None, copy_steps: int = 0, mode: Literal[exact, fast] = fast, "
    "device: Literal[cpu, cuda] = cpu, threads: int | None = 1) -> None",
    "ElasticError": "(message: str, remedy: str = ) -> None",
    "UnreachableError": "(message: str, remedy: str = ) -> None",
    "Stateful": "(*args, **kwargs)",
    "elastic_event_detected": "(sig: int = <Signals.SIGUSR1: 10>) -> bool",
}
LOADER = {
    "backward": "(loss: torch.Tensor, scaler: torch.amp.GradScaler | None = None) -> bool",
    "report": "(**numbers: float) -> None",
    **dict.fromkeys(["step", "total_steps", "epoch", "replays", "loss", "indices", "scale_config"]),
    **dict.fromkeys(["rank", "world_size", "generation", "reduce_backend"]),
}
SHARDED = {
    **LOADER,
    **dict.fromkeys(["model", "optimizer"]),
    "track": "(name: str, state: Stateful) -> None",
    "clip_grad_norm_": "(max_norm: float, norm_type: float = 2.0) -> torch.Tensor",
}
FIELDS = ["folder", "every_seconds", "every_steps", "keep", "resume_from", "snapshots", "snapshot_steps"]
CHECKPOINT = dict.fromkeys(FIELDS)
STATEFUL = {
    "state_dict": "(self) -> dict[str, Any]",
    "load_state_dict": "(self, state: dict[str, Any], /) -> Any",
}


def signature(of: Any) -> str:
    return re.sub(r"[\"']| at 0x\w+", "", str(inspect.signature(of)))


def attributes(made: object) -> dict[str, str | None]:
    """All without an underscore, inherited ones too; of methods the signature."""
    names = {*dir(type(made)), *dir(made)}
    values = {name: getattr(made, name) for name in names if not name.startswith("_")}
    return {name: signature(value) if inspect.ismethod(value) else None for name, value in values.items()}


def build(mesh: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = fully_shard(nn.Linear(1, 1), mesh=mesh)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def test_names_and_signatures() -> None:
    assert {name: signature(getattr(elastic, name)) for name in elastic.__all__} == SIGNATURES
    assert {name: signature(getattr(elastic.Stateful, name)) for name in STATEFUL} == STATEFUL


def test_nothing_else_is_shown() -> None:
    """Also when the modules behind it are loaded, and in a help page or a completion."""
    assert importlib.import_module("hpctools.elastic.sharded.loader")
    assert sorted(SIGNATURES) == dir(elastic) == elastic.__all__


def test_what_is_raised_is_what_the_toolkit_raises_everywhere() -> None:
    assert (elastic.ElasticError, elastic.UnreachableError) == (errors.ElasticError, errors.UnreachableError)


@pytest.mark.parametrize("name", ["Loader", "ShardedLoader", "Checkpoint"])
def test_every_argument_and_every_public_method_is_documented(name: str) -> None:
    """Each argument by name under Args, alone or with others; what is raised under Raises."""
    of = getattr(elastic, name)
    _, _, args = inspect.getdoc(of).partition("Args:")
    args, _, raises = args.partition("Raises:")
    told = {each for line in re.findall(r"^ {4}(\w+(?:, \w+)*):", args, re.M) for each in line.split(", ")}
    assert told == set(inspect.signature(of).parameters)
    assert "ElasticError: " in raises
    public = [value for each, value in inspect.getmembers(of) if not each.startswith("_")]
    shown = [each for each in public if inspect.isfunction(each) or isinstance(each, property)]
    assert all(each.__doc__ for each in shown)


@pytest.mark.parametrize("name", ["Loader", "ShardedLoader", "Checkpoint", "elastic_event_detected"])
def test_what_it_is_made_after_is_said(name: str) -> None:
    """The field's own interfaces, by name: a reader knows these."""
    assert re.search(r"^Sources?: \S", inspect.getdoc(getattr(elastic, name)) or "", re.M)


def test_public_attributes() -> None:
    """Also of instances: what a constructor sets without an underscore is promised, too."""
    model = nn.Linear(1, 1)
    loader = elastic.Loader(model, torch.optim.SGD(model.parameters()), [1, 2], batch_size=2, epochs=1)
    assert attributes(loader) == LOADER
    assert attributes(elastic.Checkpoint()) == CHECKPOINT
    try:
        assert attributes(elastic.ShardedLoader(build, [1, 2], batch_size=2, epochs=1)) == SHARDED
    finally:
        process_group.uninstall()
