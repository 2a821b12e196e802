"""What the run's events tell who takes it over from another coordinator."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

from hpctools.elastic.actions import RestartAll, RollBack
from hpctools.elastic.checkpoint.place import meant_by, place_of, settings_of, sources
from hpctools.elastic.checkpoint.reading import persistently
from hpctools.elastic.checkpoint.selection import candidates
from hpctools.elastic.folder import Event, RunFolder
from hpctools.elastic.spec import RunSpec
from hpctools.errors import ElasticError

COMPLETED = "completed"
BEGINS_AGAIN = "it begins again with what was saved last"
BEGINS_ANEW = "nothing was saved yet, and it begins again at step 0"
"""How the warnings end that tell so."""
_SAVED = ("saved", "resumed")
_BEGUN = ("joined", "resumed")


def events_of(folder: RunFolder) -> list[Event]:
    """The run's events, oldest first; none when they cannot be read."""
    try:
        return list(folder.events())
    except ElasticError:
        return []


def has_checkpoint(events: Sequence[Event]) -> bool:
    """Whether something was saved from which all can begin again, for all that a roll back made void."""
    return last_saved(events) is not None


def begun_again(events: Iterable[Event]) -> int:
    """How often all have begun again for want of state since something was saved."""
    count = 0
    for each in events:
        if each.event == "saved" and not each.detail.get("rolled_back"):
            count = 0
        elif each.event == "warning":
            count += str(each.detail.get("message", "")).endswith((BEGINS_AGAIN, BEGINS_ANEW))
    return count


def last_saved(events: Sequence[Event]) -> str | None:
    """Where the last of what `has_checkpoint` means lies; None: there is nothing."""
    saved = None
    for each in events:
        if each.event == "action" and each.detail.get("action") == RollBack.__name__:
            saved = None  # what was before it may be void, which storage knows
        elif each.event in _SAVED and not each.detail.get("rolled_back"):
            saved = str(each.detail.get("where", ""))
    return saved


def last_generation(events: Iterable[Event]) -> int:
    """The last generation in which somebody is known to have joined; 0: none.

    The status knows of those, too, in which nobody did, but it is written later.
    """
    joined = [each.detail.get("generation") for each in events if each.event == "joined"]
    return max((number for number in joined if isinstance(number, int)), default=0)


def has_saved(events: Iterable[Event]) -> bool:
    """Whether anything was ever saved, or the run began from what another one had saved."""
    return any(each.event in _SAVED for each in events)


def save_seconds(events: Iterable[Event]) -> float:
    """How long the last save took; 0: nothing was saved yet, or that is not told."""
    took = [each.detail.get("seconds") for each in events if each.event == "saved"]
    return next((float(each) for each in reversed(took) if isinstance(each, int | float)), 0.0)


def left_out(events: Iterable[Event]) -> set[int]:
    """Numbers of the steps whose batches earlier coordinators have had left out."""
    found: set[int] = set()
    for each in (event.detail for event in events if event.event == "action"):
        if each.get("action") == RestartAll.__name__:
            found.update(map(int, each.get("skip") or ()))
        elif each.get("action") == RollBack.__name__ and each.get("skip") and each.get("blamed") is not None:
            found.add(int(each["blamed"]))
    return found


def something_saved(folder: RunFolder, spec: RunSpec) -> bool:
    """Whether there is a checkpoint where the run saves, or where it began from.

    One that cannot be read counts: the workers look again, and none of them begins without it. Takes as long
    as storage does, so it is for a thread.

    Raises:
        ElasticError: a place cannot be read, for some seconds.
    """
    return persistently(lambda: any(_has_one(place) for place in _places(folder, spec)))


def _places(folder: RunFolder, spec: RunSpec) -> list[str]:
    settings = settings_of(spec, None)
    places = sources(place_of(folder, settings), settings)
    with contextlib.suppress(ElasticError, OSError):  # its program may have saved elsewhere, and events tell
        places += meant_by(str(folder.path))
    return list(dict.fromkeys(places))


def _has_one(place: str) -> bool:
    seen = candidates(place)
    return bool(seen.usable or seen.unread)


def is_complete(events: Sequence[Event]) -> bool:
    """Whether all have done the last step, and nobody has begun to train since."""
    marks = [each.event for each in events if each.event in (COMPLETED, *_BEGUN)]
    return marks[-1:] == [COMPLETED]
