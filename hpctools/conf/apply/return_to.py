"""An earlier configuration, from the history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hpctools.conf.accounts import AccountTree
from hpctools.conf.apply.history import FACTS, SITE, History
from hpctools.conf.apply.record import Record
from hpctools.conf.bundle import Bundle, File
from hpctools.errors import ApplyError


def chosen(records: Sequence[Record], number: int | None) -> Record:
    """The change whose configuration is to come back.

    Args:
        records: all changes, the oldest first.
        number: of the change; when None the one before that which is in force now.

    Raises:
        ApplyError: there is none, or its configuration was never in force.
    """
    if not records:
        raise ApplyError("nothing has been applied yet, so there is nothing to go back to")
    if number is None:
        return _before_the_last(records)
    found = next((record for record in records if record.number == number), None)
    if found is None:
        raise ApplyError(
            f"there is no change {number}", f"there are {records[0].number} to {records[-1].number}"
        )
    if found.in_force != "after":
        raise ApplyError(f"change {number} was {found.result or 'killed'}: its files were never in force")
    return found


def _before_the_last(records: Sequence[Record]) -> Record:
    """Going back twice goes further back, not forth again."""
    *earlier, now = trail(records)
    if not earlier:
        raise ApplyError(f"there is nothing before change {now.number}", "see `hpctools history`")
    return earlier[-1]


def trail(records: Sequence[Record]) -> list[Record]:
    """The changes whose configurations lie behind each other; the last one's is in force.

    What somebody went back from is no part of it: going back once more must not bring that up.

    Args:
        records: all changes, the oldest first.
    """
    found: list[Record] = []
    for record in (each for each in records if each.in_force == "after"):
        made = _made_by(records, record)
        if made in found:
            del found[found.index(made) + 1 :]
        else:
            found.append(made)
    return found


def _made_by(records: Sequence[Record], record: Record) -> Record:
    """The change that made a configuration: a rollback only brings it back."""
    by_number = {each.number: each for each in records}
    while record.back_to in by_number:
        record = by_number[record.back_to]
    return record


def configuration(history: History, record: Record, present: Callable[[], AccountTree]) -> Bundle:
    """The files and the accounts that a change left.

    Args:
        present: reads the accounts as they are: they stay where the history has none of then.

    Raises:
        ApplyError: there were no files then.
    """
    files = history.files(record.number, "after")
    if "slurm.conf" not in files:
        raise ApplyError(f"there was no slurm.conf at change {record.number}: nothing to go back to")
    texts = tuple(
        File(name, file.content.decode("utf-8", "surrogateescape"), file.mode) for name, file in files.items()
    )
    accounts = _accounts(history, record) or present()
    return Bundle(texts, replace(accounts, clusters=(record.cluster,)))


def _accounts(history: History, record: Record) -> AccountTree | None:
    """The accounts as of a change: those of the last one until then that told any."""
    for number in reversed(history.numbers()):
        if number <= record.number:
            found = history.accounts(number, "after")
            if found is not None:
                return found
    return None


def documents(history: History, record: Record) -> Mapping[str, str]:
    """The site file and the facts of a change, or of the nearest that has them: change 0 has none.

    Raises:
        ApplyError: no change has any.
    """
    numbers = sorted(history.numbers(), key=lambda number: (abs(number - record.number), number))
    for number in numbers:
        site = history.document(number, SITE)
        if site is not None:
            return {SITE: site, FACTS: history.document(number, FACTS) or "{}\n"}
    raise ApplyError("no change in the history has a site file", "see `hpctools history`")
