"""Elastic training: the library a training script imports, the node agent and the run coordinator.

`Loader` is all that a training needs, `ShardedLoader` takes its place for a model that is sharded, and
`Checkpoint` says how both are saved. `Stateful` is what they take as `state`; what they raise is an
`ElasticError` (the training cannot go on as it is: the message says what to do) or an `UnreachableError` (the
run's coordinator does not answer). `elastic_event_detected` is for scripts of restart mode. What a data set
has to have is in `hpctools.elastic.training` (`MapDataset`, `StreamDataset`).

Nothing else here is for training scripts. All is loaded on first use: the loaders need torch, and the agent,
the coordinator and hp-status do not.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpctools.elastic.checkpoint import Checkpoint
    from hpctools.elastic.loader import Loader
    from hpctools.elastic.restart.events import elastic_event_detected
    from hpctools.elastic.sharded.loader import ShardedLoader
    from hpctools.elastic.training import Stateful
    from hpctools.errors import ElasticError, UnreachableError

__all__ = [
    "Checkpoint",
    "ElasticError",
    "Loader",
    "ShardedLoader",
    "Stateful",
    "UnreachableError",
    "elastic_event_detected",
]

_MODULES = {
    "Checkpoint": "hpctools.elastic.checkpoint",
    "ElasticError": "hpctools.errors",
    "Loader": "hpctools.elastic.loader",
    "ShardedLoader": "hpctools.elastic.sharded.loader",
    "Stateful": "hpctools.elastic.training",
    "UnreachableError": "hpctools.errors",
    "elastic_event_detected": "hpctools.elastic.restart.events",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
