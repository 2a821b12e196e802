"""Reservations for accounts that go: pure.

slurmctld keeps such a reservation until it reads its files or its state anew, and deletes it then without a
word (tried on 22.05.8); a preflight that meets it in the saved state refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from hpctools.conf.account_changes import AccountDifference

_NONE = "(null)"

Reservations = Mapping[str, frozenset[str]]
"""The accounts that each reservation names, with a `-` in front where it keeps them out."""


def read_reservations(text: str) -> Reservations:
    """Parse `scontrol --oneliner show reservation`."""
    found = {}
    for line in text.splitlines():
        words: dict[str, str] = {}
        for key, _, value in (word.partition("=") for word in line.split()):
            words.setdefault(key, value)  # people's own words come last
        accounts = words.get("Accounts", _NONE).replace(_NONE, "").split(",")
        if "ReservationName" in words:
            found[words["ReservationName"]] = frozenset(accounts) - {""}
    return found


def stranded(found: AccountDifference, there: Reservations) -> Iterator[str]:
    """A line for each reservation that names accounts which are removed."""
    gone = {each.name for each in found.changes if (each.kind, each.action) == ("account", "remove")}
    for name, accounts in sorted(there.items()):
        going = {each for each in accounts if each.removeprefix("-") in gone}
        if going:
            yield _told(name, going, accounts - going)


def _told(name: str, going: Set[str], staying: Set[str]) -> str:
    accounts = ", ".join(sorted(each.removeprefix("-") for each in going))
    update = f"scontrol update reservationname={name} accounts={','.join(sorted(staying)) or 'OTHERS'}"
    return (
        f"reservation {name} names {accounts}, which goes: Slurm deletes the reservation when it reads its "
        f"files again, and the next apply may be refused for it; change it first ({update}), or delete it "
        f"(scontrol delete reservationname={name})"
    )
