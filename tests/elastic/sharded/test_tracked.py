"""What is tracked over a sharded training's optimizer goes on from a checkpoint without a run, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from hpctools import elastic
from hpctools.elastic.sharded import process_group
from hpctools.errors import ElasticError


@pytest.fixture(autouse=True)
def no_group_stays() -> Iterator[None]:
    yield
    process_group.uninstall()


def build(mesh: DeviceMesh) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Linear(6, 1)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=0.05)


class Training:
    """A script as the docs have it."""

    def __init__(self, folder: Path, name: str = "scheduler", **given: Any) -> None:
        data = [torch.sin(torch.arange(6) + 1.0 * index) for index in range(40)]
        checkpoint = elastic.Checkpoint(folder=str(folder), every_seconds=0, every_steps=2)
        self.loader = elastic.ShardedLoader(
            build, data, batch_size=4, epochs=1, shards=2, checkpoint=checkpoint, **given
        )
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.loader.optimizer, 3, gamma=0.1)
        self.loader.track(name, self.scheduler)

    def run(self, until: int = 10) -> list[tuple[int, float, float]]:
        """Train, as if killed after so many steps: what each came to, and with which learning rate."""
        loader, done = self.loader, []
        for inputs in loader:
            if loader.backward(loader.model(inputs).square().mean()):
                rate = loader.optimizer.param_groups[0]["lr"]
                loader.optimizer.step()
                loader.optimizer.zero_grad()
                self.scheduler.step()
                done.append((loader.step, loader.loss, rate))
            if (keeper := loader._shard_keeper) is not None:
                keeper.close()
            if loader.step == until:
                break
        return done


def test_a_scheduler_goes_on_where_it_was(tmp_path: Path) -> None:
    undisturbed = Training(tmp_path / "whole").run()
    Training(tmp_path / "killed").run(until=6)
    resumed = Training(tmp_path / "killed")
    assert resumed.run() == undisturbed[4:]
    assert resumed.scheduler.last_epoch == 10


def test_what_was_not_saved_stays_as_built_and_is_said(tmp_path: Path) -> None:
    """A checkpoint of a script that had less to track is not lost with that."""
    Training(tmp_path, name="another").run(until=6)
    resumed = Training(tmp_path)
    with pytest.warns(RuntimeWarning, match="the checkpoint has no state scheduler") as told:
        assert [step for step, _, _ in resumed.run()] == [5, 6, 7, 8, 9, 10]
    assert (len(told), resumed.scheduler.last_epoch) == (1, 6)


@pytest.mark.filterwarnings("error")
def test_a_scaler_in_a_sharded_training_s_state_may_be_new_to_its_checkpoint(tmp_path: Path) -> None:
    Training(tmp_path).run(until=6)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    with pytest.warns(RuntimeWarning, match="the checkpoint has no state scaler") as told:
        resumed = Training(tmp_path, state={"scaler": scaler})
    resumed.run()  # says it no more
    assert (len(told), resumed.scheduler.last_epoch, scaler.get_scale()) == (1, 10, 8.0)


def test_what_another_worker_captured_has_to_be_whole(tmp_path: Path) -> None:
    loader = Training(tmp_path).loader
    captured = {name: each for name, each in loader._capture_rest().items() if name != "state scheduler"}
    with pytest.raises(KeyError, match="state scheduler"):
        loader._load_rest(captured)


def test_a_scheduler_or_a_scaler_that_is_not_tracked_is_told(tmp_path: Path) -> None:
    training = Training(tmp_path)
    del training.loader._stateful["state scheduler"]
    with pytest.warns(RuntimeWarning, match=r"the loader has none.* loader\.track\('scheduler', scheduler\)"):
        inputs = next(iter(training.loader))
    with pytest.raises(ElasticError, match=r"give the loader state=\{'scaler'"):
        training.loader.backward(training.loader.model(inputs).mean(), torch.amp.GradScaler("cpu"))
