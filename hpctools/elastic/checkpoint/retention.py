"""Which checkpoints stay."""

from __future__ import annotations

from hpctools.elastic.checkpoint.selection import Found, survey
from hpctools.elastic.checkpoint.store import Store


def prune(store: Store, keep: int) -> list[str]:
    """Remove all but the newest `keep` checkpoints, and those of what was rolled back.

    Only a committed checkpoint with all its files in their sizes counts as kept, and nothing is removed
    without one: the only whole checkpoint stays.

    Returns:
        Names of the removed ones.

    Raises:
        ElasticError: the store cannot be read, or something cannot be removed.
    """
    seen = survey(store)
    kept = [found for found in seen.usable if is_complete(found)][:keep]
    if not kept:
        return []
    oldest = kept[-1].manifest.step
    old = [found.name for found in seen.usable if found not in kept and found.manifest.step <= oldest]
    removed = [*(old if len(kept) == keep else []), *seen.rolled_back]
    for name in removed:
        store.remove(name)
    return removed


def is_complete(found: Found) -> bool:
    """Whether all files are there, as large as they were written; their content is not read."""
    sizes = found.store.sizes(found.name)
    return all(sizes.get(name) == record.bytes for name, record in found.manifest.files.items())
