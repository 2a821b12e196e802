"""An average of a sharded model's weights, kept as docs/elastic-sharded.md says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from test_loader import Net, loader_for, local_weights, no_group_stays, written
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from hpctools import elastic
from hpctools.elastic.sharded import process_group

__all__ = ["no_group_stays"]


class Averaged(Net):
    def __init__(self) -> None:
        super().__init__()
        self.average = Net().requires_grad_(requires_grad=False)

    @torch.no_grad()
    def take_in(self) -> None:
        """After a step."""
        own = [each for each in self.parameters() if each.requires_grad]
        for average, parameter in zip(self.average.parameters(), own, strict=True):
            average.lerp_(parameter, 0.1)


def build(mesh: DeviceMesh) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = Averaged()
    fully_shard(model.average, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=0.05)


def train(loader: Any, until: int = 6) -> list[list[float]]:
    for _ in range(2):
        for inputs in loader:
            if loader.backward(loader.model(inputs).square().mean()):
                loader.optimizer.step()
                loader.optimizer.zero_grad()
                loader.model.take_in()
                written(loader)
            if loader.step == until:
                return local_weights(loader)
    return local_weights(loader)


def test_it_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    expected = train(loader_for(build))
    process_group.uninstall()
    settings = elastic.Checkpoint(folder=str(tmp_path), every_seconds=0, every_steps=2)
    train(loader_for(build, checkpoint=settings), until=5)
    process_group.uninstall()
    again = loader_for(build, checkpoint=settings)
    assert again.step == 4
    assert train(again) == expected
