"""What torch leaves behind: gradients that FSDP does not add up, and a hook for tracebacks at each resize."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from test_in_order import loader_for, one_step
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

from hpctools.elastic.sharded import process_group
from hpctools.elastic.sharded.process_group import ShardGroup
from hpctools.errors import ElasticError


@pytest.fixture(autouse=True)
def no_group_stays() -> Iterator[None]:
    """torch's default group belongs to the process, not to a test."""
    yield
    process_group.uninstall()


class Again(nn.Module):
    """A layer that is called twice, its activations checkpointed."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.twice, self.last, self._reentrant = nn.Linear(6, 6), nn.Linear(6, 1), reentrant

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = inputs.clone().requires_grad_(True)
        for _ in range(2):
            hidden = checkpoint(self.twice, hidden, use_reentrant=self._reentrant)
        return self.last(hidden)


@pytest.mark.parametrize("mode", ["exact", "fast"])
@pytest.mark.parametrize("reentrant", [True, False])
def test_gradients_that_fsdp_forgets_are_told(mode: str, *, reentrant: bool) -> None:
    """The training went on without them, or with those of another step, and without a word."""

    def build(mesh: DeviceMesh) -> tuple[nn.Module, torch.optim.Optimizer]:
        model = Again(reentrant=reentrant)
        fully_shard(model.twice, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model, torch.optim.AdamW(model.parameters(), lr=0.05)

    loader = loader_for(MixedPrecisionPolicy(), build=build, mode=mode)
    if not reentrant:
        one_step(loader, lambda _: None)
        assert loader.step == 1
        return
    with pytest.raises(ElasticError, match=r"has not added up the gradients of parameter twice\.weight"):
        one_step(loader, lambda _: None)


@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_gradients_that_are_not_to_be_added_up_are_told(mode: str) -> None:
    loader = loader_for(MixedPrecisionPolicy(), mode=mode)
    model: Any = loader.model
    model.set_requires_gradient_sync(False)
    with pytest.raises(ElasticError, match=r"leave out set_requires_gradient_sync\(False\)"):
        one_step(loader, lambda _: None)


def test_a_traceback_after_many_resizes_names_one_rank_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch puts its rank before each line, each time that a group is made."""
    monkeypatch.setattr(sys, "excepthook", before := sys.__excepthook__)
    for rank in (0, 1, 0, 1):
        process_group.install(ShardGroup(rank, 2, None), "cpu")
    sys.excepthook(ValueError, ValueError("no such corpus"), None)
    assert capsys.readouterr().err == "[rank1]: ValueError: no such corpus\n"
    process_group.uninstall()
    assert sys.excepthook is before
