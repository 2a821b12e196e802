"""A note of who may be limited on this node, for the next agent should this one be killed."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

_log = logging.getLogger("hpctools.login")


def remembered(note: Path | None) -> Sequence[int]:
    """The numbers of people in a note; none where there is no note, or it cannot be read."""
    if note is None:
        return []
    try:
        found = json.loads(note.read_text())
    except (OSError, ValueError):
        return []
    return [uid for uid in found if isinstance(uid, int)] if isinstance(found, list) else []


def remember(note: Path | None, limited: Iterable[int]) -> None:
    """Have a note name these, in place of those whom it names.

    Where it cannot be written the log says so, and what it said before stays: no name of it is lost by that.
    """
    wanted = sorted(limited)
    if note is None or sorted(remembered(note)) == wanted:
        return
    fresh = note.with_name(f".{note.name}.new")
    try:
        note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh.write_text(json.dumps(wanted) + "\n")
        fresh.replace(note)
    except OSError as error:
        _log.error("should this agent be killed, nobody will know whom it has limited: %s", error)
