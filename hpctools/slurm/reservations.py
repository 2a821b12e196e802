"""What slurmdbd remembers of reservations, read with sacctmgr."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timezone
from pathlib import Path

from hpctools.errors import BudgetError
from hpctools.slurm.accounting import answer

FIELDS = ("Cluster", "Name", "Start", "End", "NodeNames", "Associations")


@dataclass(frozen=True, order=True)
class Reservation:
    """Nodes that were kept for somebody. slurmdbd has another record from each change of one on.

    Attributes:
        start, end: Unix seconds.
        nodes: a folded host list.
        accounts: whose jobs may run there, sorted; of a person who is named, all accounts of theirs. Empty
            where it keeps somebody out, or is of no nodes.
    """

    cluster: str
    name: str
    start: int
    end: int
    nodes: str
    accounts: tuple[str, ...]


def read_reservations(
    first: date, end: date, *, sacctmgr: Path | str = "sacctmgr", timeout: float = 60.0
) -> tuple[Reservation, ...]:
    """Every reservation that was known in a span of days, sorted.

    Args:
        first, end: UTC days; `end` is exclusive.
        sacctmgr: the program.
        timeout: seconds for each of two queries.

    Raises:
        UnreachableError: slurmdbd does not answer.
        CommandError: sacctmgr failed otherwise.
        BudgetError: its output is not what was asked for.
    """
    show = (str(sacctmgr), "--noheader", "--parsable2", "show")
    span = (f"start={first.isoformat()}T00:00:00", f"end={end.isoformat()}T00:00:00")
    told = answer([*show, "reservation", *span, f"format={','.join(FIELDS)}"], timeout)
    if not told.strip():
        return ()
    # A reservation names associations, which may be gone by now.
    ids = answer([*show, "association", "withdeleted", "format=Cluster,ID,Account"], timeout)
    return parse(told, ids)


def parse(told: str, associations: str) -> tuple[Reservation, ...]:
    """Reservations out of sacctmgr's output: `FIELDS`; and cluster, number and account of associations.

    Raises:
        BudgetError: a line does not have the fields that were asked for.
    """
    accounts = {(cluster, number): account for cluster, number, account in _lines(associations, 3)}
    return tuple(sorted(_reservation(values, accounts) for values in _lines(told, len(FIELDS))))


def _lines(text: str, count: int) -> Iterable[list[str]]:
    for line in filter(None, text.split("\n")):
        values = line.split("|")
        if len(values) != count:
            raise _malformed(line)
        yield values


def _reservation(values: list[str], accounts: Mapping[tuple[str, str], str]) -> Reservation:
    cluster, name, start, end, nodes, associations = values
    ids = [number for number in associations.split(",") if number]
    found = () if any(number.startswith("-") for number in ids) else ids
    whose = {account for number in found if (account := accounts.get((cluster, number)))}
    try:
        return Reservation(cluster, name, _seconds(start), _seconds(end), nodes, tuple(sorted(whose)))
    except ValueError:
        raise _malformed("|".join(values)) from None


def _seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp())


def _malformed(line: str) -> BudgetError:
    return BudgetError(
        f"sacctmgr's answer about reservations cannot be read: {line[:120]!r}",
        "check that `sacctmgr --version` is a supported Slurm release",
    )
