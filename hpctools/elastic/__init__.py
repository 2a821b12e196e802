"""Elastic training: the library a training script imports, the node agent and the run coordinator.

`Loader` is all that a training needs, and `Checkpoint` says how it is saved. They are loaded on first use:
the loader needs torch, and the agent, the coordinator and hp-status do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpctools.elastic.checkpoint import Checkpoint
    from hpctools.elastic.loader import Loader

__all__ = ["Checkpoint", "Loader"]


def __getattr__(name: str) -> object:
    if name == "Loader":
        from hpctools.elastic.loader import Loader

        return Loader
    if name == "Checkpoint":
        from hpctools.elastic.checkpoint import Checkpoint

        return Checkpoint
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
