"""Copies of shards outlive that what waits for the next generation is moved to a disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from test_loader import loader_for, no_group_stays

from hpctools.elastic.group import Group
from hpctools.elastic.sharded import room
from hpctools.elastic.sharded.copies import copy_of
from hpctools.elastic.sharded.shards import Shards
from hpctools.elastic.sharded.trained import local, sharded_tensors

__all__ = ["no_group_stays"]


def trained() -> Any:
    """Two steps were done."""
    loader: Any = loader_for()
    inputs = iter(loader)
    while loader.step < 2:
        if loader.backward(loader.model(next(inputs)).square().mean()):
            loader.optimizer.step()
            loader.optimizer.zero_grad()
    return loader


def recover(shards: Shards, number: int, *, torn: bool) -> dict[str, torch.Tensor]:
    """Somebody was lost, and perhaps what we have is of no use; returns what all go on with."""
    shards.torn = torn
    assert shards.move(None, Group(number, 0, 1, None), lambda group, work: work())
    return {name: local(each).clone() for name, each in sharded_tensors(shards.trained).items()}


def test_copies_that_a_recovery_took_are_whole_after_another_one_without_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three workers are lost, one after the other, the second one before a step was done."""
    shards: Shards = trained()._shards
    living = shards.living()
    assert living is not None
    shards.copies.keep((copy_of(living),))
    expected = {name: each.clone() for name, each in living.tensors.items()}
    recover(shards, 2, torn=True)
    disk = room.Waiting(room.LOCAL, tmp_path)
    monkeypatch.setattr(room, "choose", lambda new, old, memory, places: disk)
    recover(shards, 3, torn=False)
    shards.settled()
    found = recover(shards, 4, torn=True)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
