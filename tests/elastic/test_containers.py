"""What a state's containers and values are when they have been moved, and saved and read."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler

from hpctools.elastic.checkpoint.structure import join, packed, split, unpacked
from hpctools.elastic.sharded.copies import deep_copied
from hpctools.elastic.state import _bytes_of, _read, _with_tensors, _without_tensors


class Pair(NamedTuple):
    low: float
    high: float


def saved(state: Any) -> Any:
    tensors, skeleton = split(state)
    return join(unpacked(packed(skeleton)), tensors)


def moved(state: Any) -> Any:
    tensors: list[torch.Tensor] = []
    skeleton = _read(_bytes_of(_without_tensors(state, tensors)))
    return _with_tensors(skeleton, iter(tensors))


WAYS = pytest.mark.parametrize("way", [saved, moved, deep_copied])


@WAYS
def test_each_value_comes_back_as_what_it_was(way: Callable[[Any], Any]) -> None:
    state = {
        "lr": np.float64(0.25), "step": np.int64(3), "on": np.bool_(True), "counts": Counter({5: 2}),
        "ordered": OrderedDict(a=1), "pair": Pair(0.5, 1.5), "nested": [({"x": np.float32(0.5)},)],
        "plain": (1, 2.0, "three", None, [True]),
    }  # fmt: skip
    found = way(state)
    assert found == {
        "lr": 0.25, "step": 3, "on": True, "counts": Counter({5: 2}), "ordered": {"a": 1}, "pair": (0.5, 1.5),
        "nested": [({"x": 0.5},)], "plain": (1, 2.0, "three", None, [True]),
    }  # fmt: skip
    assert {name: type(found[name]) for name in ("lr", "step", "on", "counts")} == {
        "lr": float, "step": int, "on": bool, "counts": Counter,
    }  # fmt: skip
    assert way({"tensor": torch.arange(3)})["tensor"].tolist() == [0, 1, 2]


def _lambda(optimizer: torch.optim.Optimizer) -> Any:
    return lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 * (1 + np.cos(math.pi * step / 9)))


def _milestones(optimizer: torch.optim.Optimizer) -> Any:
    warm, steps = lr_scheduler.LinearLR(optimizer, 0.1), lr_scheduler.MultiStepLR(optimizer, [1, 3])
    return lr_scheduler.SequentialLR(optimizer, [warm, steps], [3])


@WAYS
@pytest.mark.parametrize("kind", [_lambda, _milestones])
def test_a_scheduler_goes_on_as_it_would_have(
    way: Callable[[Any], Any], kind: Callable[[torch.optim.Optimizer], Any]
) -> None:
    def rates(goes_over_at: int | None) -> list[float]:
        weight = torch.nn.Parameter(torch.zeros(1))
        optimizer = torch.optim.SGD([weight], lr=0.1)
        scheduler, found = kind(optimizer), []
        for step in range(9):
            if step == goes_over_at:
                state = way({"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()})
                optimizer = torch.optim.SGD([weight], lr=0.1)
                scheduler = kind(optimizer)
                optimizer.load_state_dict(state["optimizer"])
                scheduler.load_state_dict(state["scheduler"])
            optimizer.step()
            scheduler.step()
            found.append(float(optimizer.param_groups[0]["lr"]))
        return found

    assert rates(2) == rates(None)
