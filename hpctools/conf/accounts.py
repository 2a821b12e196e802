"""The account tree: what slurmdbd knows, or should know, of QoS, accounts, people and limits.

Settings are kept in sacctmgr's words, with one canonical spelling of each value (see `vocabulary.py`): this
is the rendered form, as slurm.conf's text is. An empty value means "not set".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

Settings = Mapping[str, str]

ROOT = "root"


@dataclass(frozen=True)
class Qos:
    """A QoS: a tier.

    Attributes:
        renamed_from: the name that a wanted one had before; "" when it had none.
    """

    name: str
    settings: Settings
    renamed_from: str = ""


@dataclass(frozen=True)
class Account:
    """A department (below `root`) or a lab (below its department), with the limits of its own association.

    Attributes:
        coordinators: people who may manage the account and those below it.
        renamed_from: the name that a wanted one had before; "" when it had none.
    """

    name: str
    parent: str
    settings: Settings
    coordinators: tuple[str, ...] = ()
    renamed_from: str = ""


@dataclass(frozen=True)
class Association:
    """One person in one account."""

    user: str
    account: str
    settings: Settings


@dataclass(frozen=True)
class Beside:
    """What else a slurmdbd holds that decides what may be done to a tree.

    Attributes:
        clusters: other clusters that it serves.
        tres: TRES that limits can speak of; empty when nobody asked.
        qos: QoS that other clusters use.
        accounts: accounts that other clusters have.
        partitioned: (user, account) of associations for one partition only: somebody's own arrangement.
        unread: lines that cannot be understood, because a name holds `|` or a line break.
        held: (account, setting) of limits that a budget has taken; the tree has them as they were before.
        inherited: (user, account) of coordinators whom an account above has, too: named of this one as well,
            or only shown there, which nothing tells apart.
    """

    clusters: frozenset[str] = frozenset()
    tres: tuple[str, ...] = ()
    qos: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    partitioned: frozenset[tuple[str, str]] = frozenset()
    unread: tuple[str, ...] = ()
    held: frozenset[tuple[str, str]] = frozenset()
    inherited: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True)
class AccountTree:
    """What slurmdbd knows, or should know, about one cluster.

    Attributes:
        clusters: clusters that are registered; the wanted tree has its own.
        qos: by tier, in the site's order.
        accounts: parents before children.
        default_accounts: each person's default account.
        associations: people in accounts.
        beside: what else a live slurmdbd holds.
        unread: accounts of a wanted tree of which not everybody is known; nobody is removed from them.
    """

    clusters: tuple[str, ...]
    qos: tuple[Qos, ...]
    accounts: tuple[Account, ...]
    default_accounts: Mapping[str, str]
    associations: tuple[Association, ...]
    beside: Beside = field(default=Beside())
    unread: frozenset[str] = frozenset()


def above(name: str, parents: Mapping[str, str]) -> Iterator[str]:
    """Yield the accounts above one, nearest first."""
    while name in parents and parents[name] != name:
        name = parents[name]
        yield name


def without_inherited(accounts: Sequence[Account]) -> tuple[Account, ...]:
    """Leave out coordinators whom an account above has already: they coordinate those below it anyway.

    sacctmgr shows them on accounts below, some releases always and others after a while (measured).
    """
    hidden = inherited(accounts)

    def own(account: Account) -> Iterator[str]:
        users = dict.fromkeys(account.coordinators)
        return (user for user in users if (user, account.name) not in hidden)

    return tuple(replace(account, coordinators=tuple(own(account))) for account in accounts)


def inherited(accounts: Sequence[Account]) -> frozenset[tuple[str, str]]:
    """(user, account) of the coordinators whom an account above has already."""
    parents = {account.name: account.parent for account in accounts}
    holders = {account.name: account.coordinators for account in accounts}
    return frozenset(
        (user, name)
        for name, users in holders.items()
        for higher in above(name, parents)
        for user in set(users).intersection(holders.get(higher, ()))
    )
