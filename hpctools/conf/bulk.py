"""Many new accounts and people at once: the file that `sacctmgr load` reads.

One command for each account and person takes 0.3 to 0.5 s; loading the whole reference site takes under 2 s
(measured on 22.05.8). The format is that of `sacctmgr dump`; `load` without `clean` only adds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hpctools.conf.account_changes import AccountChange, AccountDifference
from hpctools.conf.account_difference import difference
from hpctools.conf.accounts import Account, AccountTree, Association
from hpctools.conf.vocabulary import ASSOCIATION_SETTINGS
from hpctools.errors import HpctoolsError
from hpctools.slurm.versions import CoordinatorWay

# For each coordinator the load waits twice for an acknowledgement that is late (0.09 s on 22.05.8); calls
# of their own need not wait for each other there.
MOST_COORDINATORS = 20

# Where the file's words differ from the commands'.
_WORDS = {"MaxTRES": "MaxTRESPerJob", "MaxWall": "MaxWallDurationPerJob", "MaxTRESMins": "MaxTRESMinsPerJob"}
_IN_MINUTES = ("MaxWall", "GrpWall")


@dataclass(frozen=True)
class AccountFile:
    """What to load, and what will be known then.

    Attributes:
        text: for `sacctmgr --immediate load file=...`; empty when no account or person is new.
        live: the account tree after it was loaded: `sync_commands` goes on from there.
    """

    text: str
    live: AccountTree


def load_file(wanted: AccountTree, live: AccountTree) -> AccountFile:
    """Return a file with the accounts and associations that are wanted and not there yet.

    The cluster, the QoS and slurmctld's TRES must be known to slurmdbd by then (`bootstrap_commands`).
    """
    found = difference(wanted, live)
    loaded = loaded_changes(found)
    return AccountFile(load_text(found) if loaded else "", _after(live, loaded, found.defaults))


def loaded_changes(
    found: AccountDifference, coordinators: CoordinatorWay = "together"
) -> tuple[AccountChange, ...]:
    """Return the changes that loading the file carries out; none when no account or person is new.

    Args:
        coordinators: `way_of_coordinators` of slurmdbd's release; a few are loaded in any case.
    """
    rows = [
        change
        for change in found.changes
        if change.action == "add" and change.kind in ("account", "association")
    ]
    added = [
        change
        for change in found.changes
        # load makes only new people coordinators.
        if (change.kind, change.action) == ("coordinator", "add") and change.name in found.new_people
    ]
    if coordinators != "loaded" and len(added) > MOST_COORDINATORS:
        return tuple(rows)
    return (*rows, *added) if rows else ()


def load_text(found: AccountDifference, loaded: Sequence[AccountChange] | None = None) -> str:
    """Return the text of the file with these of the changes, those of `loaded_changes` when None."""
    loaded = loaded_changes(found) if loaded is None else loaded
    coordinated: dict[str, list[str]] = {}
    for change in loaded:
        if change.kind == "coordinator":
            coordinated.setdefault(change.name, []).append(change.account)
    lines = [f"Cluster - {_quote(found.cluster)}"]
    for parent, rows in _by_parent(loaded).items():
        lines.append(f"Parent - {_quote(parent)}")
        lines += [_account(row) for row in rows if row.kind == "account"]
        lines += [_user(row, found.defaults, coordinated) for row in rows if row.kind == "association"]
    return "\n".join(lines) + "\n"


def coordinator_text(found: AccountDifference, added: Iterable[AccountChange]) -> str:
    """Return the text of a file that makes people coordinators; they have their default account by then."""
    coordinated: dict[str, list[str]] = {}
    for change in added:
        coordinated.setdefault(change.name, []).append(change.account)
    lines = [f"Cluster - {_quote(found.cluster)}"]
    for user, accounts in coordinated.items():
        lines.append(f"Parent - {_quote(found.defaults[user])}")
        lines.append(f"User - {_quote(user)}:Coordinator={_quote(','.join(accounts))}")
    return "\n".join(lines) + "\n"


def _by_parent(loaded: Iterable[AccountChange]) -> Mapping[str, list[AccountChange]]:
    """Accounts and people by where they belong; parents come before what is below them."""
    found: dict[str, list[AccountChange]] = {}
    for change in loaded:
        if change.kind != "coordinator":
            parent = change.account if change.kind == "association" else dict(change.settings)["Parent"]
            found.setdefault(parent, []).append(change)
    return found


def _account(change: AccountChange) -> str:
    return f"Account - {_quote(change.name)}" + "".join(_options(change.settings))


def _user(
    change: AccountChange, defaults: Mapping[str, str], coordinated: Mapping[str, Sequence[str]]
) -> str:
    options = [f":DefaultAccount={_quote(defaults[change.name])}"]
    if change.name in coordinated:
        options.append(f":Coordinator={_quote(','.join(coordinated[change.name]))}")
    return f"User - {_quote(change.name)}" + "".join([*options, *_options(change.settings)])


def _options(settings: Iterable[tuple[str, str]]) -> Iterator[str]:
    for key, value in settings:
        if key != "Parent":
            # The file has these times in minutes, where everything else speaks of seconds.
            text = str(int(value) // 60) if key in _IN_MINUTES else value
            yield f":{_WORDS.get(key, key)}={_quote(text)}"


def _quote(text: str) -> str:
    """Quote a name or a value: sacctmgr knows no escape, so that what would end the quotes is refused."""
    if not text.isprintable() or "'" in text or '"' in text:
        raise HpctoolsError(f"{text!r} cannot be told to slurmdbd", "remove quotes and line breaks from it")
    return f"'{text}'"


def _after(live: AccountTree, loaded: Sequence[AccountChange], defaults: Mapping[str, str]) -> AccountTree:
    coordinators: dict[str, tuple[str, ...]] = {}
    for change in loaded:
        if change.kind == "coordinator":
            coordinators[change.account] = (*coordinators.get(change.account, ()), change.name)
    accounts = [change for change in loaded if change.kind == "account"]
    people = [change for change in loaded if change.kind == "association"]
    new = {change.name: defaults[change.name] for change in people}
    known = (
        replace(each, coordinators=(*each.coordinators, *coordinators.pop(each.name, ())))
        for each in live.accounts
    )
    return replace(
        live,
        accounts=(*known, *(_new_account(change, coordinators.get(change.name, ())) for change in accounts)),
        associations=(*live.associations, *map(_new_association, people)),
        default_accounts={**new, **live.default_accounts},
    )


def _complete(change: AccountChange) -> dict[str, str]:
    settings = {**dict.fromkeys(ASSOCIATION_SETTINGS, ""), **dict(change.settings)}
    settings.pop("Parent", None)
    return settings


def _new_account(change: AccountChange, coordinators: tuple[str, ...]) -> Account:
    return Account(change.name, dict(change.settings)["Parent"], _complete(change), coordinators)


def _new_association(change: AccountChange) -> Association:
    return Association(change.name, change.account, _complete(change))
