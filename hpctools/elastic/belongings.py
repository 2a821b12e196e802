"""What the loop works with and has not given to the loader: it would not move to workers that join.

A worker that joins begins such an object anew. It then has another learning rate than the others, or another
scale of the gradients that are added to theirs, and nothing says so.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from itertools import islice
from types import ModuleType
from typing import Any

import torch

from hpctools.elastic.training import Stateful
from hpctools.errors import ElasticError

DEPTH = 6
"""How far from what was given: a wrapper's attributes, a SequentialLR's list, the schedulers in it."""
MOST = 10_000
"""Objects that are looked at in each depth."""
ODD = 1_000_003
"""Added to a scaler's interval: no script's own differ by so much."""
_LEAVES = (str, bytes, int, float, complex, torch.Tensor, type, ModuleType, type(None))
_MARKS = ("_wrapped_by_lr_sched", "_with_counter")  # of an optimizer's `step`: of a scheduler, older torch's


def check_scaler(scaler: Any, given: Iterable[Stateful]) -> None:
    """Make sure that a gradient scaler is in what moves; one that is switched off has nothing to move.

    Args:
        given: what the loader was given as `state`: the scaler, objects that have it in their attributes, or
            whose `state_dict()` has its state.

    Raises:
        ElasticError: it is in none of them.
    """
    given = list(given)
    if not getattr(scaler, "is_enabled", lambda: True)() or _reaches(given, scaler) or _saves(given, scaler):
        return
    raise ElasticError(
        "loader.backward was given a gradient scaler that does not move with the training's state: a worker "
        "that joins, or a training that goes on from a checkpoint, would begin with another scale",
        "give the loader state={'scaler': scaler}",
    )


def check_scheduler(optimizer: torch.optim.Optimizer, given: Iterable[object]) -> None:
    """Warn of a torch scheduler over an optimizer that is not in what moves.

    No error: torch only tells that the optimizer has had one, and an object of the user's may hide it. Of a
    ReduceLROnPlateau torch tells nothing.

    Args:
        given: what the loader was given as `scheduler` and `state`, or objects that have it in their
            attributes.
    """
    if not any(hasattr(optimizer.step, mark) for mark in _MARKS):
        return
    if not _reaches([each for each in given if each is not optimizer], optimizer):
        warnings.warn(
            "a scheduler was made over the optimizer, and the loader has none: where it is in use, a worker "
            "that joins, or a training that goes on from a checkpoint, would begin it anew; give "
            "elastic.Loader scheduler=scheduler or state={'scheduler': scheduler}, and have an "
            "elastic.ShardedLoader do loader.track('scheduler', scheduler). One that is not in use any more "
            "(of a search for a learning rate) needs nothing",
            RuntimeWarning,
            stacklevel=5,  # the training's own loop
        )


def _reaches(given: Iterable[object], wanted: object) -> bool:
    """Whether an object is one of those given, or in their containers and attributes."""
    level, seen = list(given), set[int]()
    for _ in range(DEPTH):
        if any(each is wanted for each in level):
            return True
        fresh = [each for each in level if id(each) not in seen and not isinstance(each, _LEAVES)]
        seen |= {id(each) for each in fresh}
        level = list(islice((part for each in fresh for part in _parts(each)), MOST))
    return False


def _saves(given: Iterable[Stateful], scaler: Any) -> bool:
    """Whether the scaler's state is in that of an object that hides it, such as in a closure or in slots.

    Another scaler's state may be the same: so this one's is another for a moment.
    """
    if not hasattr(scaler, "set_growth_interval"):
        return False  # not torch's, nor made from it
    interval = scaler.get_growth_interval()
    scaler.set_growth_interval(interval + ODD)
    try:
        wanted = scaler.state_dict()
        return any(_has(each.state_dict(), wanted) for each in given)
    finally:
        scaler.set_growth_interval(interval)


def _has(value: object, wanted: dict[str, Any]) -> bool:
    if isinstance(value, Mapping):
        same = value.keys() == wanted.keys() and all(value[name] == each for name, each in wanted.items())
        return same or any(_has(each, wanted) for each in value.values())
    return isinstance(value, (list, tuple)) and any(_has(each, wanted) for each in value)


def _parts(value: Any) -> Iterable[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, (list, tuple)) else list(getattr(value, "__dict__", {}).values())
