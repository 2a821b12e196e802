"""What becomes of a change whose process was killed."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from hpctools.conf.apply import fileset
from hpctools.conf.apply.cluster import Daemons
from hpctools.conf.apply.generations import Generations
from hpctools.conf.apply.history import History
from hpctools.conf.apply.record import Phase, Record, Side
from hpctools.conf.apply.steps import told
from hpctools.errors import HpctoolsError


def settled(record: Record, in_force: Side, now: float) -> Record:
    """The record of a killed change, by which of its files are in force.

    Nothing is taken back: the files are whole, old or new, and the next change goes on from there. What is
    owed is to load them; a step too many does no harm, one too few would.
    """
    if record.phase is Phase.DONE:
        return replace(record, result="applied", in_force="after", owed=(), ended=now)
    return replace(
        record,
        result="interrupted",
        reason=f"its process ended while it was in phase {record.phase.value!r}",
        in_force=in_force,
        drained=(),
        ended=now,
    )


def recover(history: History, generations: Generations, daemons: Daemons) -> Record | None:
    """Close the record of a killed change, whose lock we hold; return the last change.

    Raises:
        HpctoolsError: the state cannot be read or written; a drained node cannot be resumed.
    """
    last = history.last()
    if last is None or not last.open:
        return last
    if last.drained:
        daemons.resume(last.drained)  # the plan names those that slurmctld refuses
    history.make_room(last.number)
    return history.update(settled(last, in_force(history, generations, last), time.time()))


def in_force(history: History, generations: Generations, record: Record) -> Side:
    """Which of a change's file sets the folder has."""
    after = history.files(record.number, "after")
    before = history.files(record.number, "before")
    present = fileset.read(generations.folder, {*before, *after})
    return "before" if fileset.differing(present, after) else "after"


def as_closed(history: History, generations: Generations, record: Record) -> Record:
    """A record as the next change will close it, for those who only look.

    A change that is under way looks like a killed one: ask the lock.
    """
    return settled(record, in_force(history, generations, record), record.began) if record.open else record


def closed_records(history: History, folder: Path | None = None) -> list[Record]:
    """All changes, the oldest first, as the next change will find them; only the last one can be open.

    Args:
        folder: the configuration folder; what the last change says when None.
    """
    records = history.records()
    if records:
        generations = Generations(folder or Path(records[-1].folder))
        records[-1] = as_closed(history, generations, records[-1])
    return records


def unfinished(history: History, generations: Generations) -> Record | None:
    """A killed change that nobody has gone on from yet, for those who only look; None when there is none.

    Its `owed` says what is written but not loaded. A change that is under way looks the same: ask the lock.
    """
    last = history.last()
    if last is None:
        return None
    last = as_closed(history, generations, last)
    return last if last.owed or last.result == "interrupted" else None


def unfinished_warnings(history: History, generations: Generations) -> tuple[str, ...]:
    """What a plan must say of a change that was killed or failed: what is written and not loaded yet.

    Empty for those who may not read the history.
    """
    try:
        found = unfinished(history, generations)
    except (HpctoolsError, OSError):
        return ()
    if found is None or not found.owed:
        return ()
    owed = ", ".join(told(step) for step in found.owed)
    return (
        f"change {found.number} was not completed ({found.reason}); the next apply does what it owes: {owed}",
    )
