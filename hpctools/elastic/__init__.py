"""Elastic training: the library a training script imports, the node agent and the run coordinator.

`Loader` is all that a training needs, and `Checkpoint` says how it is saved; `elastic_event_detected` is for
scripts of restart mode. They are loaded on first use: the loader needs torch, and the agent, the coordinator
and hp-status do not.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpctools.elastic.checkpoint import Checkpoint
    from hpctools.elastic.loader import Loader
    from hpctools.elastic.restart.events import elastic_event_detected
    from hpctools.elastic.sharded.loader import ShardedLoader

__all__ = ["Checkpoint", "Loader", "ShardedLoader", "elastic_event_detected"]

_MODULES = {
    "Checkpoint": "checkpoint",
    "Loader": "loader",
    "ShardedLoader": "sharded.loader",
    "elastic_event_detected": "restart.events",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
