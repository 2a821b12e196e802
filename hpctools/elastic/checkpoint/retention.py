"""Which checkpoints stay."""

from __future__ import annotations

from hpctools.elastic.checkpoint.selection import Found, survey
from hpctools.elastic.checkpoint.store import Store


def prune(store: Store, keep: int, step: int | None = None) -> list[str]:
    """Remove all but the newest `keep` checkpoints, and those of what was rolled back.

    Only a committed checkpoint with all its files in their sizes counts as kept, and nothing is removed
    without one: the only whole checkpoint stays.

    Args:
        step: of the checkpoint that was committed just now, which stays: later ones, in whose place it came,
            may be damaged inside.

    Returns:
        Names of the removed ones.

    Raises:
        ElasticError: the store cannot be read, or something cannot be removed.
    """
    seen = survey(store)
    kept = [found for found in seen.usable if is_complete(found)][:keep]
    if not kept:
        return []
    old = [found.name for found in seen.usable if _is_old(found, kept, step)]
    removed = [*(old if len(kept) == keep else []), *seen.rolled_back]
    for name in removed:
        store.remove(name)
    return removed


def _is_old(found: Found, kept: list[Found], step: int | None) -> bool:
    own = found.manifest.step
    return found not in kept and own <= kept[-1].manifest.step and own != step


def is_complete(found: Found) -> bool:
    """Whether all files are there, as large as they were written; their content is not read."""
    sizes = found.store.sizes(found.name)
    return all(sizes.get(name) == record.bytes for name, record in found.manifest.files.items())
