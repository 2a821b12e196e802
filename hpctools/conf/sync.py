"""From the wanted and the live account tree to sacctmgr's commands: pure, additive, nothing when they agree.

Nothing is ever deleted here: accounts and people that the site no longer names keep what they have. Settings
that the site manages are set, and cleared when the site does not want them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from hpctools.conf.accounts import Account, AccountTree, Association, Settings
from hpctools.conf.vocabulary import ASSOCIATION_SETTINGS, QOS_SETTINGS, Setting

Command = tuple[str, ...]

_NAMES_PER_COMMAND = 500  # keeps argument lists far below the kernel's limit


def sync_commands(wanted: AccountTree, live: AccountTree) -> tuple[Command, ...]:
    """Return the commands that bring slurmdbd from `live` to `wanted`, in an order that can be carried out.

    Args:
        wanted: what the site wants (`compile(site, facts).accounts`).
        live: what slurmdbd knows (`parse_live`).

    Returns:
        Argument lists for `sacctmgr --immediate`; none when there is nothing to do.
    """
    steps = (_clusters, _new_qos, _qos, _accounts, _associations, _default_accounts, _coordinators)
    return tuple(command for step in steps for command in step(wanted, live))


def bootstrap_commands(wanted: AccountTree, live: AccountTree) -> tuple[Command, ...]:
    """Return those of the commands that should come before slurmctld's first start.

    slurmctld ignores the names of QoS in AllowQos that do not exist yet, until it is reconfigured (measured
    on 22.05.8). It must itself have registered gres/gpu, though, before limits can speak of it: the rest
    comes after.
    """
    return (*_clusters(wanted, live), *_new_qos(wanted, live))


def _clusters(wanted: AccountTree, live: AccountTree) -> Iterator[Command]:
    for name in wanted.clusters:
        if name not in live.clusters:
            yield ("add", "cluster", name)


def _new_qos(wanted: AccountTree, live: AccountTree) -> Iterator[Command]:
    """New QoS in one command, without settings: they may name each other."""
    known = {qos.name for qos in live.qos}
    new = [qos.name for qos in wanted.qos if qos.name not in known]
    if new:
        yield ("add", "qos", ",".join(new))


# What sacctmgr gives to a QoS that is added without settings.
_FRESH_QOS: Settings = {
    "Priority": "0",
    "PreemptMode": "cluster",
    "GraceTime": "0",
    "UsageFactor": "1.000000",
}


def _qos(wanted: AccountTree, live: AccountTree) -> Iterator[Command]:
    known = {qos.name: qos.settings for qos in live.qos}
    for qos in wanted.qos:
        changes = _changes(qos.settings, known.get(qos.name, _FRESH_QOS), QOS_SETTINGS)
        if changes:
            yield ("modify", "qos", "where", f"name={qos.name}", "set", *changes)


def _accounts(wanted: AccountTree, live: AccountTree) -> Iterator[Command]:
    """Parents come first; labs that differ in nothing but their names are added together."""
    known = {account.name: account for account in live.accounts}
    new = [account for account in wanted.accounts if account.name not in known]
    where = _where(wanted)
    for parent, changes, names in _grouped((a.parent, _changes(a.settings, {}, _ASSOC), a.name) for a in new):
        yield ("add", "account", ",".join(names), *where, f"parent={parent}", *changes)
    for account in wanted.accounts:
        if account.name in known:
            changes = _account_changes(account, known[account.name])
            if changes:
                yield ("modify", "account", "where", f"name={account.name}", *where, "set", *changes)


_ASSOC = ASSOCIATION_SETTINGS


def _where(tree: AccountTree) -> tuple[str, ...]:
    return (f"cluster={','.join(tree.clusters)}",)


def _account_changes(wanted: Account, live: Account) -> tuple[str, ...]:
    moved = () if wanted.parent == live.parent else (f"parent={wanted.parent}",)
    return (*moved, *_changes(wanted.settings, live.settings, _ASSOC))


def _associations(wanted: AccountTree, live: AccountTree) -> Iterator[Command]:
    """A new person's default account comes first: sacctmgr makes the first account the default."""
    known = {(row.user, row.account): row.settings for row in live.associations}
    new = [row for row in wanted.associations if (row.user, row.account) not in known]
    for by_default in (True, False):
        rows = (row for row in new if (wanted.default_accounts.get(row.user) == row.account) == by_default)
        yield from _additions(wanted, rows)
    changed = (
        (row.account, _changes(row.settings, known[row.user, row.account], _ASSOC), row.user)
        for row in wanted.associations
        if (row.user, row.account) in known
    )
    for account, changes, users in _grouped(item for item in changed if item[1]):
        names = ",".join(users)
        place = (f"name={names}", f"account={account}", *_where(wanted))
        yield ("modify", "user", "where", *place, "set", *changes)


def _additions(wanted: AccountTree, rows: Iterable[Association]) -> Iterator[Command]:
    keyed = ((row.account, _changes(row.settings, {}, _ASSOC), row.user) for row in rows)
    for account, changes, users in _grouped(keyed):
        yield ("add", "user", f"name={','.join(users)}", f"account={account}", *_where(wanted), *changes)


def _default_accounts(wanted: AccountTree, live: AccountTree) -> Iterator[Command]:
    """Only for people who were there before: new ones get theirs when they are added."""
    moved = (
        (account, (), user)
        for user, account in wanted.default_accounts.items()
        if live.default_accounts.get(user, account) != account
    )
    for account, _, users in _grouped(moved):
        place = (f"name={','.join(users)}", *_where(wanted))
        yield ("modify", "user", "where", *place, "set", f"DefaultAccount={account}")


def _coordinators(wanted: AccountTree, live: AccountTree) -> Iterator[Command]:
    known = {account.name: account.coordinators for account in live.accounts}
    for account in wanted.accounts:
        new = [user for user in account.coordinators if user not in known.get(account.name, ())]
        if new:
            yield ("add", "coordinator", f"account={account.name}", f"names={','.join(new)}")


def _changes(wanted: Settings, live: Settings, known: Mapping[str, Setting]) -> tuple[str, ...]:
    """Spell what must be set to come from `live` to `wanted`."""
    return tuple(
        f"{key}={known[key].argument(value, live.get(key, ''))}"
        for key, value in wanted.items()
        if value != live.get(key, "")
    )


_Keyed = tuple[str, tuple[str, ...], str]


def _grouped(items: Iterable[_Keyed]) -> Iterator[tuple[str, tuple[str, ...], list[str]]]:
    """Gather neighbours' names that share a place and the changes, a few hundred at a time."""
    for (place, changes), group in groupby(items, key=lambda item: item[:2]):
        names = [item[2] for item in group]
        for start in range(0, len(names), _NAMES_PER_COMMAND):
            yield place, changes, names[start : start + _NAMES_PER_COMMAND]
