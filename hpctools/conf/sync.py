"""From the account changes to sacctmgr's calls: pure, in an order that leaves nobody without an association.

Additions come before slurm.conf switches: cluster, QoS, accounts, people, default accounts, coordinators.
What takes something away comes after: narrower lists of QoS, then what is pruned, people before accounts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TypeVar

from hpctools.conf.account_changes import AccountChange, AccountDifference, Call
from hpctools.conf.account_difference import difference
from hpctools.conf.accounts import AccountTree
from hpctools.conf.bulk import MOST_COORDINATORS, coordinator_text, load_text, loaded_changes
from hpctools.conf.vocabulary import ASSOCIATION_SETTINGS, QOS_SETTINGS, names_of
from hpctools.slurm.versions import CoordinatorWay

Command = tuple[str, ...]

_NAMES_PER_CALL = 500  # keeps argument lists far below the kernel's limit, and slurmdbd's queries short


def sync_commands(wanted: AccountTree, live: AccountTree) -> tuple[Command, ...]:
    """Return the commands that bring slurmdbd from `live` to `wanted`, without removing anything.

    Args:
        wanted: what the site wants (`compile(site, facts).accounts`).
        live: what slurmdbd knows (`parse_live`).

    Returns:
        Argument lists for `sacctmgr --immediate`; none when there is nothing to do.
    """
    found = difference(wanted, live)
    return tuple(call.argv for call in (*_additions(found, ()), *removals(found)))


def bootstrap_commands(wanted: AccountTree, live: AccountTree) -> tuple[Command, ...]:
    """Return those of the commands that should come before slurmctld's first start.

    slurmctld ignores the names of QoS in AllowQos that do not exist yet, until it is reconfigured (measured
    on 22.05.8). It must itself have registered gres/gpu, though, before limits can speak of it: the rest
    comes after.
    """
    return tuple(call.argv for call in bootstrap(difference(wanted, live)))


def bootstrap(found: AccountDifference) -> tuple[Call, ...]:
    """Return the calls that should come before slurmctld's first start: the cluster, and new QoS, bare."""
    return (*_clusters(found), *_new_qos(found))


def additions(found: AccountDifference, coordinators: CoordinatorWay = "together") -> tuple[Call, ...]:
    """Return the calls that come before slurm.conf switches; they take nothing from anybody.

    New accounts and people go in one `sacctmgr load`, whatever their number.

    Args:
        coordinators: how they are told, `way_of_coordinators` of slurmdbd's release.
    """
    loaded = loaded_changes(found, coordinators)
    calls = _additions(found, loaded, coordinators)
    if not loaded:
        return calls
    load = Call(("load", "file=/dev/stdin"), load_text(found, loaded), loaded)
    first = len(bootstrap(found))
    return (*calls[:first], load, *calls[first:])


def removals(found: AccountDifference) -> tuple[Call, ...]:
    """Return the calls that come after slurm.conf has switched."""
    late = [change for change in found.changes if change.late]
    sets = [change for change in late if change.action == "set"]
    gone = [change for change in late if change.action == "remove"]
    return (
        *_qos_sets([change for change in sets if change.kind == "qos"], ()),
        *_account_sets([change for change in sets if change.kind == "account"], found.cluster),
        *_people_sets([change for change in sets if change.kind == "association"], found.cluster),
        *_defaults([change for change in sets if change.kind == "user"], found.cluster),
        *_removed(gone, found),
    )


def _additions(
    found: AccountDifference, loaded: Sequence[AccountChange], coordinators: CoordinatorWay = "together"
) -> tuple[Call, ...]:
    done = {(change.kind, change.name, change.account) for change in loaded}
    early = [*_early(found.changes)]

    def of(kind: str, action: str) -> list[AccountChange]:
        return [
            change
            for change in early
            if change.kind == kind
            and change.action == action
            and not (action == "add" and (kind, change.name, change.account) in done)
        ]

    return (
        *bootstrap(found),
        *_qos_sets(of("qos", "set"), of("qos", "add")),
        *_new_accounts(of("account", "add"), found.cluster),
        *_account_sets(of("account", "set"), found.cluster),
        *_new_people(of("association", "add"), found.cluster),
        *_people_sets(of("association", "set"), found.cluster),
        *_defaults(of("user", "set"), found.cluster),
        *_new_coordinators(of("coordinator", "add"), found, coordinators),
    )


def _early(changes: Iterable[AccountChange]) -> Iterator[AccountChange]:
    """What need not wait; of a list of QoS that gets narrower and wider, the part that is wider."""
    for change in changes:
        if not change.late:
            yield change
        elif change.key == "QOS" and change.action == "set" and change.after:
            both = names_of(change.before) | names_of(change.after)
            if both != names_of(change.before):
                yield replace(change, after=",".join(sorted(both)), late=False)


def _clusters(found: AccountDifference) -> Iterator[Call]:
    for change in found.changes:
        if change.kind == "cluster":
            yield Call(("add", "cluster", change.name), changes=(change,))


def _new_qos(found: AccountDifference) -> Iterator[Call]:
    """New QoS in one command, without settings: they may name each other."""
    new = tuple(change for change in found.changes if (change.kind, change.action) == ("qos", "add"))
    if new:
        yield Call(("add", "qos", f"name={','.join(change.name for change in new)}"), changes=new)


# What sacctmgr gives to a QoS that is added without settings.
_FRESH_QOS: Mapping[str, str] = {
    "Priority": "0",
    "PreemptMode": "cluster",
    "GraceTime": "0",
    "UsageFactor": "1.000000",
}


def _qos_sets(sets: Sequence[AccountChange], added: Sequence[AccountChange]) -> Iterator[Call]:
    new = [
        replace(change, action="set", key=key, before=_FRESH_QOS.get(key, ""), after=value)
        for change in added
        for key, value in change.settings
        if value != _FRESH_QOS.get(key, "")
    ]
    for target in _by_target([*new, *sets]):
        where = ("where", f"name={target[0].name}")
        yield Call(("modify", "qos", *where, "set", *_words(target)), changes=target)


def _by_target(sets: Sequence[AccountChange]) -> Iterator[tuple[AccountChange, ...]]:
    """What is set of the same QoS, account or association, in the order in which they are met first."""
    found: dict[tuple[str, str], list[AccountChange]] = {}
    for change in sets:
        found.setdefault((change.name, change.account), []).append(change)
    return (tuple(changes) for changes in found.values())


def _words(changes: Iterable[AccountChange]) -> Command:
    return tuple(_word(change) for change in changes)


def _word(change: AccountChange) -> str:
    if change.key == "Parent":
        return f"parent={change.after}"
    known = QOS_SETTINGS if change.kind == "qos" else ASSOCIATION_SETTINGS
    if change.key not in known:  # of an older history: sacctmgr says what it thinks of it
        return f"{change.key}={change.after}"
    return f"{change.key}={known[change.key].argument(change.after, change.before)}"


def _account_sets(sets: Sequence[AccountChange], cluster: str) -> Iterator[Call]:
    for changes in _by_target(sets):
        where = ("where", f"name={changes[0].name}", f"cluster={cluster}")
        yield Call(("modify", "account", *where, "set", *_words(changes)), changes=changes)


def _new_accounts(added: Sequence[AccountChange], cluster: str) -> Iterator[Call]:
    """Labs that differ in nothing but their names are added together."""
    for settings, changes in _alike(added, lambda change: change.settings):
        names = ",".join(change.name for change in changes)
        words = _new_words(settings)
        yield Call(("add", "account", f"name={names}", f"cluster={cluster}", *words), changes=changes)


def _new_people(added: Sequence[AccountChange], cluster: str) -> Iterator[Call]:
    for (account, settings), changes in _alike(added, lambda change: (change.account, change.settings)):
        names = ",".join(change.name for change in changes)
        where = (f"name={names}", f"account={account}", f"cluster={cluster}")
        yield Call(("add", "user", *where, *_new_words(settings)), changes=changes)


def _new_words(settings: Iterable[tuple[str, str]]) -> Command:
    sets = (AccountChange("account", "set", "", key=key, after=value) for key, value in settings)
    return _words(sets)


def _people_sets(sets: Sequence[AccountChange], cluster: str) -> Iterator[Call]:
    """People of one account for whom the same is set are told together."""
    groups = list(_by_target(sets))
    for (account, words), members in _alike(groups, lambda group: (group[0].account, _words(group))):
        names = ",".join(group[0].name for group in members)
        where = ("where", f"name={names}", f"account={account}", f"cluster={cluster}")
        changes = tuple(change for group in members for change in group)
        yield Call(("modify", "user", *where, "set", *words), changes=changes)


def _defaults(sets: Sequence[AccountChange], cluster: str) -> Iterator[Call]:
    for account, changes in _alike(sets, lambda change: change.after):
        names = ",".join(change.name for change in changes)
        where = ("where", f"name={names}", f"cluster={cluster}")
        yield Call(("modify", "user", *where, "set", f"DefaultAccount={account}"), changes=changes)


def _new_coordinators(
    added: Sequence[AccountChange], found: AccountDifference, way: CoordinatorWay
) -> Iterator[Call]:
    filed = [change for change in added if way == "afterwards" and found.defaults.get(change.name)]
    if len(filed) > MOST_COORDINATORS:
        yield Call(("load", "file=/dev/stdin"), coordinator_text(found, filed), tuple(filed))
        added = [change for change in added if change not in filed]
    for account, changes in _alike(added, lambda change: change.account):
        names = ",".join(change.name for change in changes)
        argv = ("add", "coordinator", f"account={account}", f"names={names}")
        yield Call(argv, changes=changes, together=way == "together")


def _removed(gone: Sequence[AccountChange], found: AccountDifference) -> Iterator[Call]:
    def of(kind: str) -> list[AccountChange]:
        return [change for change in gone if change.kind == kind]

    only = (f"cluster={found.cluster}",) if found.shared else ()
    for accounts, changes in _alike(of("coordinator"), lambda change: _accounts_of(change, found)):
        names = ",".join(change.name for change in changes)
        whom = (f"account={','.join(accounts)}", f"names={names}")
        yield Call(("delete", "coordinator", *whom), changes=changes)
    yield from _removed_people(of("association"), found)
    # All that can go has nothing below that stays, so that they may go together.
    for _, changes in _alike(of("account"), lambda change: None):
        names = ",".join(change.name for change in changes)
        yield Call(("delete", "account", "where", f"name={names}", *only), changes=changes)
    for _, changes in _alike(of("qos"), lambda change: None):
        names = ",".join(change.name for change in changes)
        yield Call(("delete", "qos", "where", f"name={names}"), changes=changes)


def _removed_people(gone: Sequence[AccountChange], found: AccountDifference) -> Iterator[Call]:
    """Who leaves altogether goes last, and apart: 22.05 refuses default accounts in one call with others."""

    def is_last(change: AccountChange) -> bool:
        return (change.name, change.account) in found.last

    ordered = sorted(gone, key=is_last)
    for (account, _), changes in _alike(ordered, lambda change: (change.account, is_last(change))):
        names = ",".join(change.name for change in changes)
        where = (f"name={names}", f"account={account}", f"cluster={found.cluster}")
        yield Call(("delete", "user", "where", *where), changes=changes)


def _accounts_of(change: AccountChange, found: AccountDifference) -> tuple[str, ...]:
    """The account that loses a coordinator, and those below it."""
    return (change.account, *found.inherited.get((change.name, change.account), ()))


Each = TypeVar("Each")
Key = TypeVar("Key")


def _alike(items: Iterable[Each], key: Callable[[Each], Key]) -> Iterator[tuple[Key, tuple[Each, ...]]]:
    """Gather neighbours that can be told together, a few hundred at a time."""
    for shared, group in groupby(items, key=key):
        members = tuple(group)
        for start in range(0, len(members), _NAMES_PER_CALL):
            yield shared, members[start : start + _NAMES_PER_CALL]
