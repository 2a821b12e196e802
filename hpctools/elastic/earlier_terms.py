"""What the run's events tell who takes it over from another coordinator."""

from __future__ import annotations

from collections.abc import Sequence

from hpctools.elastic.folder import Event, RunFolder
from hpctools.errors import ElasticError

COMPLETED = "completed"
_SAVED = ("saved", "resumed")
_BEGUN = ("joined", "resumed")


def events_of(folder: RunFolder) -> list[Event]:
    """The run's events, oldest first; none when they cannot be read."""
    try:
        return list(folder.events())
    except ElasticError:
        return []


def has_checkpoint(events: Sequence[Event]) -> bool:
    """Whether something was saved from which all can begin again."""
    return any(each.event in _SAVED for each in events)


def is_complete(events: Sequence[Event]) -> bool:
    """Whether all have done the last step, and nobody has begun to train since."""
    marks = [each.event for each in events if each.event in (COMPLETED, *_BEGUN)]
    return marks[-1:] == [COMPLETED]
