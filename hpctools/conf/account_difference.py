"""From the wanted and the live account tree to all that separates them: pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace

from hpctools.conf.account_changes import AccountChange, AccountDifference, Action, Kept
from hpctools.conf.accounts import Account, AccountTree, Association, Qos, Settings, above
from hpctools.conf.pruning import Item, people_below, pruned
from hpctools.conf.renames import closed, keeping_renamed
from hpctools.conf.vocabulary import ASSOCIATION_SETTINGS, QOS_SETTINGS, Setting, names_of, parse_tres
from hpctools.slurm.types import Job


def difference(
    wanted: AccountTree,
    live: AccountTree,
    *,
    prune: bool = False,
    busy: Sequence[Job] = (),
    prunable: Set[Item] | None = None,
) -> AccountDifference:
    """Return all that separates slurmdbd from what is wanted.

    Args:
        wanted: what the site wants (`compile(site, facts).accounts`), or an earlier live tree.
        live: what slurmdbd knows (`read_live`).
        prune: also remove what the site does not name.
        busy: the jobs in the queue; what they need is kept.
        prunable: what may be removed at most; all of it when None.

    Returns:
        Changes in an order in which they can be carried out, and what is kept.
    """
    cluster = wanted.clusters[0]
    removals, kept = pruned(wanted, live, prune=prune, busy=busy, prunable=prunable)
    gone = {change.name for change in removals if change.kind == "qos"}
    target = keeping_renamed(wanted, live, gone)
    changes = [
        *_clusters(target, live),
        *_qos(target, live),
        *_accounts(target, live),
        *_associations(target, live),
        *_default_accounts(target, live),
        *_coordinators(target, live, removals),
        *closed(target, live, {(change.kind, change.name) for change in removals}, busy),
        *removals,
    ]
    changes, later = _without_held(changes, live)
    new = {change.name for change in changes if (change.kind, change.action) == ("association", "add")}
    return AccountDifference(
        cluster,
        tuple(changes),
        (*kept, *later),
        shared=bool(live.beside.clusters | (set(live.clusters) - {cluster})),
        new_people=frozenset(new - live.default_accounts.keys()),
        defaults={user: wanted.default_accounts.get(user, "") for user in new},
        inherited=dict(_inherited(wanted, live, removals)),
        last=_last(wanted, live, removals),
    )


def restoring(before: AccountTree, now: AccountTree, *, busy: Sequence[Job] = ()) -> AccountDifference:
    """Return what brings slurmdbd back from `now` to an earlier tree of the same cluster.

    Whatever came in between goes again, unless a job needs it.
    """
    return difference(before, now, prune=True, busy=busy)


def _without_held(
    changes: Sequence[AccountChange], live: AccountTree
) -> tuple[list[AccountChange], list[Kept]]:
    """A limit that a budget has taken stays so until the budget gives it back: then the change comes."""
    held = {each for each in changes if each.kind == "account" and (each.name, each.key) in live.beside.held}
    why = "{} is in the hands of its budget (`hpctools budget enforce`); then it becomes {}"
    kept = [
        Kept("account", each.name, "", why.format(each.key, each.after or "not set"))
        for each in changes
        if each in held
    ]
    return [each for each in changes if each not in held], kept


def _clusters(wanted: AccountTree, live: AccountTree) -> Iterator[AccountChange]:
    for name in wanted.clusters[:1]:
        if name not in live.clusters:
            yield AccountChange("cluster", "add", name)


def _qos(wanted: AccountTree, live: AccountTree) -> Iterator[AccountChange]:
    known = {qos.name: qos for qos in live.qos}
    for qos in wanted.qos:
        if qos.name in known:
            base = AccountChange("qos", "set", qos.name)
            yield from _sets(base, qos.settings, known[qos.name].settings, QOS_SETTINGS, live)
        else:
            base = AccountChange("qos", "add", qos.name, why=_renamed(qos, known))
            yield from _added(base, qos.settings, QOS_SETTINGS, live)


def _renamed(new: Qos | Account, known: Mapping[str, object]) -> str:
    if new.renamed_from not in known:
        return ""
    return (
        f"instead of {new.renamed_from}: Slurm cannot rename, so that it comes beside the old one, "
        "which keeps its jobs and its history"
    )


def _accounts(wanted: AccountTree, live: AccountTree) -> Iterator[AccountChange]:
    known = {account.name: account for account in live.accounts}
    below = people_below(wanted, live)
    for account in wanted.accounts:
        users = below.get(account.name, ())
        if account.name not in known:
            why = _renamed(account, known)
            base = AccountChange("account", "add", account.name, users=users, why=why)
            settings = {"Parent": account.parent, **account.settings}
            yield from _added(base, settings, ASSOCIATION_SETTINGS, live)
            continue
        there = known[account.name]
        base = AccountChange("account", "set", account.name, users=users)
        if account.parent != there.parent:
            yield replace(base, key="Parent", before=there.parent, after=account.parent)
        yield from _sets(base, account.settings, there.settings, ASSOCIATION_SETTINGS, live)


def _associations(wanted: AccountTree, live: AccountTree) -> Iterator[AccountChange]:
    """A new person's default account comes first: sacctmgr makes the first account the default."""
    known = {(row.user, row.account): row.settings for row in live.associations}
    new = [row for row in wanted.associations if (row.user, row.account) not in known]
    for row in sorted(new, key=lambda row: wanted.default_accounts.get(row.user) != row.account):
        yield from _added(_on("add", row), row.settings, ASSOCIATION_SETTINGS, live)
    for row in wanted.associations:
        there = known.get((row.user, row.account))
        if there is not None:
            yield from _sets(_on("set", row), row.settings, there, ASSOCIATION_SETTINGS, live)


def _on(action: Action, row: Association) -> AccountChange:
    return AccountChange("association", action, row.user, row.account, users=(row.user,))


def _default_accounts(wanted: AccountTree, live: AccountTree) -> Iterator[AccountChange]:
    """Only for people who were there before: new ones get theirs with their first association.

    One in an account of which not everybody is known stays: the directory may name them there.
    """
    here = {(row.user, row.account) for row in live.associations if row.account in wanted.unread}
    here -= {(row.user, row.account) for row in wanted.associations}
    for user, account in wanted.default_accounts.items():
        there = live.default_accounts.get(user, account)
        if there != account and (user, there) not in here:
            yield AccountChange("user", "set", user, account, "DefaultAccount", there, account, users=(user,))


def _coordinators(
    wanted: AccountTree, live: AccountTree, removals: Sequence[AccountChange]
) -> Iterator[AccountChange]:
    """Who will not coordinate an account, neither by itself nor by one above it where they stay.

    Told twice they would be hidden in what is read (`without_inherited`), and come to light when it moves.
    """
    gone = {(change.account, change.name) for change in removals if change.kind == "coordinator"}
    known = {account.name: account.coordinators for account in live.accounts}
    parents = {each.name: each.parent for each in wanted.accounts}
    for account in wanted.accounts:
        higher = above(account.name, parents)
        inherited = {user for name in higher for user in known.get(name, ()) if (name, user) not in gone}
        for user in account.coordinators:
            if user not in known.get(account.name, ()) and user not in inherited:
                yield AccountChange("coordinator", "add", user, account.name, users=(user,))


def _inherited(
    wanted: AccountTree, live: AccountTree, removals: Sequence[AccountChange]
) -> Iterator[tuple[tuple[str, str], tuple[str, ...]]]:
    """Where a coordinator who goes may be named below, too: it would come to light afterwards."""
    gone = [(change.name, change.account) for change in removals if change.kind == "coordinator"]
    parents = {each.name: each.parent for each in live.accounts}
    stays = {(user, each.name) for each in wanted.accounts for user in each.coordinators}
    hidden = live.beside.inherited - stays
    for user, account in gone:
        below = [name for who, name in hidden if who == user and account in above(name, parents)]
        if below:
            yield (user, account), tuple(sorted(below))


def _last(
    wanted: AccountTree, live: AccountTree, removals: Sequence[AccountChange]
) -> frozenset[tuple[str, str]]:
    """The default associations of those who leave altogether: who stays has another default by then."""
    gone = {(change.name, change.account) for change in removals if change.kind == "association"}
    there = {(row.user, row.account) for row in (*wanted.associations, *live.associations)}
    staying = {user for user, _ in there - gone}
    defaults = live.default_accounts
    return frozenset(each for each in gone if each[0] not in staying and defaults.get(each[0]) == each[1])


def _added(
    base: AccountChange, settings: Settings, known: Mapping[str, Setting], live: AccountTree
) -> Iterator[AccountChange]:
    """Something new; what slurmdbd cannot take yet follows as settings of their own."""
    late = {key for key, value in settings.items() if _too_early(key, value, known, live)}
    now = tuple((key, value) for key, value in settings.items() if value and key not in late)
    yield replace(base, settings=now)
    for key in settings:
        if key in late:
            yield replace(base, action="set", key=key, after=settings[key], late=True, why="")


def _sets(
    base: AccountChange,
    settings: Settings,
    there: Settings,
    known: Mapping[str, Setting],
    live: AccountTree,
) -> Iterator[AccountChange]:
    for key, value in settings.items():
        before = there.get(key, "")
        shown = known[key].shown(value) if key in known else value  # a history may have others
        if before not in (value, shown):
            late = _too_early(key, value, known, live) or _narrows(key, before, value)
            yield replace(base, key=key, before=before, after=value, late=late)


def _too_early(key: str, value: str, known: Mapping[str, Setting], live: AccountTree) -> bool:
    """Whether a limit speaks of TRES that slurmdbd does not know before slurmctld names them."""
    if not value or not live.beside.tres or key not in known or not known[key].tres:
        return False
    return not parse_tres(value).keys() <= set(live.beside.tres)


def _narrows(key: str, before: str, after: str) -> bool:
    """Whether somebody loses a QoS that the partitions may still want; a list that is empty is inherited."""
    return key == "QOS" and before != "" and not names_of(before) <= names_of(after)
