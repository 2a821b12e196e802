"""The ring of copies, where one of them cannot be made."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest
import torch

from hpctools.elastic.checkpoint.copies import HostCopy
from hpctools.elastic.checkpoint.snapshots import Snapshots


def state(step: int, **more: Any) -> dict[str, Any]:
    return {"weights": torch.full((2,), float(step)), "step": step, **more}


def full(count: int) -> Snapshots:
    snapshots = Snapshots(count, 1)
    for step in range(1, count + 1):
        snapshots.consider(step, partial(state, step))
    return snapshots


def assert_kept(snapshots: Snapshots, steps: range) -> None:
    for step in reversed(steps):
        found = snapshots.go_back(step)
        assert found is not None
        assert (found["step"], found["weights"].tolist()) == (step, [step, step])
    assert snapshots.go_back(steps.start - 1) is None


@pytest.mark.parametrize("count", [1, 2])
def test_a_state_that_cannot_be_copied_costs_none_of_those_that_were(count: int) -> None:
    snapshots = full(count)
    for step in range(count + 1, count + 4):
        with pytest.raises(TypeError, match="lock"):
            snapshots.consider(step, partial(state, step, lock=threading.Lock()))
    assert_kept(snapshots, range(1, count + 1))


def test_without_memory_for_a_copy_those_before_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise RuntimeError("out of memory")

    snapshots = full(2)
    with monkeypatch.context() as without:
        without.setattr(HostCopy, "_room_for", none)
        for step in (3, 4):
            with pytest.raises(RuntimeError, match="out of memory"):
                snapshots.consider(step, partial(state, step))
    assert_kept(snapshots, range(1, 3))


def test_the_oldest_copy_gives_way_to_the_newest() -> None:
    snapshots = full(2)
    snapshots.consider(3, partial(state, 3))
    assert_kept(snapshots, range(2, 4))
