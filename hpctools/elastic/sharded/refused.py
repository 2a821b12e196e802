"""What a sharded loader is given and cannot do."""

from __future__ import annotations

from hpctools.elastic.checkpoint.settings import Checkpoint
from hpctools.errors import ElasticError


def check_mode(mode: str) -> None:
    """Raises ElasticError unless it is a mode."""
    if mode not in ("exact", "fast"):
        raise ElasticError(f"elastic.ShardedLoader: mode is {mode!r}", "give 'exact' or 'fast'")


def without_snapshots(settings: Checkpoint) -> Checkpoint:
    """The same settings; raises ElasticError where they ask for snapshots."""
    if settings.snapshots:
        raise ElasticError(
            f"elastic.ShardedLoader makes no snapshots, and checkpoint asks for {settings.snapshots}",
            "leave snapshots out of checkpoint, and give elastic.ShardedLoader copy_steps=: copies of each "
            "worker's shards, in its own memory and a neighbour's",
        )
    return settings
