"""Reading a state back: the newest checkpoint whose every file is as it was written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hpctools.elastic.checkpoint.manifest import damage
from hpctools.elastic.checkpoint.reading import Unreadable, persistently, understood
from hpctools.elastic.checkpoint.selection import Found, candidates
from hpctools.elastic.checkpoint.tensors import read_state
from hpctools.errors import ElasticError

LOOKS = 4


@dataclass(frozen=True)
class Restored:
    """A state that was read.

    Attributes:
        state: in tensors of our own on the CPU.
        found: the checkpoint it is from.
    """

    state: Any
    found: Found


def newest_state(place: str, warn: Callable[[str], None], most_steps: int | None = None) -> Restored | None:
    """The state of the newest whole checkpoint of a folder or address; None: there is none.

    Args:
        warn: told of each newer one that is torn or damaged, with the reason.
        most_steps: only one of at most so many completed steps.

    Raises:
        ElasticError: the place cannot be read, or a newer one there, which may be whole, for some seconds.
    """
    told: set[str] = set()
    try:
        return persistently(lambda: _newest(place, told, most_steps))
    finally:
        for reason in sorted(told):
            warn(reason)


def _newest(place: str, told: set[str], most_steps: int | None) -> Restored | None:
    for _ in range(LOOKS):  # what was listed may be gone when it is read, because there is something newer
        before = len(told)
        restored = _look(place, told, most_steps)
        if restored is not None or len(told) == before:
            break
    return restored


def _look(place: str, told: set[str], most_steps: int | None) -> Restored | None:
    seen = candidates(place)
    told.update(seen.rejected)
    for found in seen.in_turn(most_steps):
        try:
            return Restored(_verified(found), found)
        except Unreadable:
            raise
        except ElasticError as error:
            told.add(f"checkpoint {found.where} is not used: {error}")
    return None


def _verified(found: Found) -> Any:
    if "sharded_over" in found.manifest.training:
        raise ElasticError("it is of a sharded model", "read it with elastic.ShardedLoader")
    with found.store.fetched(found.name, found.manifest) as folder, understood():
        problem = damage(folder, found.manifest.files)
        if problem is not None:
            raise ElasticError(problem)
        return read_state(folder)
