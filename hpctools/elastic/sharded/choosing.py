"""Which checkpoint of a sharded training is read: rank 0 chooses the newest whole one, the others find it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from hpctools.elastic.checkpoint.manifest import damage
from hpctools.elastic.checkpoint.reading import Unreadable, briefly, persistently, understood
from hpctools.elastic.checkpoint.restore import LOOKS
from hpctools.elastic.checkpoint.selection import Found, candidates
from hpctools.elastic.sharded import part_files
from hpctools.errors import ElasticError


def newest_whole(
    places: Sequence[str], limit: int | None, warn: Callable[[str], None], *, patiently: bool = True
) -> Found | None:
    """The newest whole checkpoint of the first place that has one; None: none has. For rank 0.

    Args:
        limit: only one of at most so many steps.
        warn: told of each that is torn, damaged or not of a sharded model, with the reason.
        patiently: whether what cannot be read is tried again for longer than two seconds.

    Raises:
        ElasticError: a place, or what may be a newer one, cannot be read, for as long.
    """
    told: dict[str, None] = {}

    def look() -> Found | None:
        for _ in range(LOOKS):  # what was listed may be gone when it is read, for something newer
            before = len(told)
            found = next(_whole(places, limit, told), None)
            if found is not None or len(told) == before:
                break
        return found

    try:
        return persistently(look) if patiently else briefly(look)
    finally:
        for reason in told:
            warn(reason)


def of_step(places: Sequence[str], step: int) -> Found:
    """The checkpoint of this step that rank 0 has chosen. For the others.

    Raises:
        ElasticError: it is not to be seen here, or one of that step, or a place, cannot be read, for some
            seconds: a node may show for some what its file system knew before.
    """

    def look() -> Found:
        found = _of_step(places, step)
        if found is None:
            where = " or ".join(places)
            raise Unreadable(
                f"rank 0 found a checkpoint of step {step} in {where}, and we do not see it",
                "give a folder that all nodes share",
            )
        return found

    return persistently(look)


def _whole(places: Sequence[str], limit: int | None, told: dict[str, None]) -> Iterator[Found]:
    for place in places:
        seen = candidates(place)
        told |= dict.fromkeys(seen.rejected)
        for found in seen.in_turn(limit):
            if (problem := _problem(found)) is None:
                yield found
            else:
                told[f"checkpoint {found.where} is not used: {problem}"] = None


def _of_step(places: Sequence[str], step: int) -> Found | None:
    same: list[Found] = []
    for place in places:
        seen = candidates(place)
        seen.check_read(step, step)  # it may be the one that rank 0 took of several
        same += [found for found in seen.usable if found.manifest.step == step]
    return next((found for found in same if len(same) == 1 or _problem(found) is None), None)


def _problem(found: Found) -> str | None:
    """Why a checkpoint is of no use; None when every rank can read its part of it."""
    if "sharded_over" not in found.manifest.training:
        return "it is of a model that is not sharded"
    try:
        with found.store.fetched(found.name, found.manifest) as folder, understood():
            problem = damage(folder, found.manifest.files)
            if problem is None:
                part_files.check(folder)
    except Unreadable:
        raise
    except ElasticError as error:
        return str(error)
    return problem
