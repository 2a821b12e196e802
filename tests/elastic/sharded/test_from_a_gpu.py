"""A checkpoint that was written where there is a GPU, read where there is none, or another one.

There is none here: what torch writes down as a tensor's place is what it would be there, and tensors without
memory stand for those on the device.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from shard_parts import plain_after
from torch import nn

from hpctools.elastic.sharded.part_files import read_plain, write_plain
from hpctools.elastic.sharded.trained import Trained, put_together


def test_what_is_not_sharded_comes_to_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An export runs on a login node, and eight workers would all read onto the first one's GPU."""
    with monkeypatch.context() as there:
        there.setattr(torch.serialization, "location_tag", lambda storage: "cuda:0")
        write_plain(tmp_path, {**plain_after(4), "mean": torch.ones(3)})
    assert torch.equal(read_plain(tmp_path)["mean"], torch.ones(3))


@pytest.mark.parametrize(("fused", "counted_on"), [(False, "cpu"), (True, "meta")])
def test_what_the_optimizer_keeps_comes_to_where_it_is_read(fused: bool, counted_on: str) -> None:
    """A fused kernel reads the count of steps on the device, and ends the process where it is not there."""
    model = nn.Linear(3, 2, device="meta")
    optimizer = torch.optim.AdamW(model.parameters())
    mesh: Any = None
    trained = Trained(model, optimizer, mesh, dict(model.named_parameters()))
    group = {**optimizer.param_groups[0], "fused": fused, "params": ["weight", "bias"]}
    kept = {"step": torch.tensor(3.0), "scale": torch.tensor(2.0), "history": torch.zeros(4), "name": "x"}
    plain = {"buffers": {}, "parameters": {}, "kept": {"weight": kept}, "groups": [group]}
    put_together(trained, optimizer, {}, plain)
    found = optimizer.state[model.weight]
    assert (found["step"].device.type, found["history"].device.type) == (counted_on, "meta")
    assert found["scale"].device.type == "meta", "as torch's own load_state_dict puts it"
    assert found["name"] == "x"
