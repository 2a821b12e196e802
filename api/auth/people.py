"""Whom the site file names: heads, members, and groups of the directory whose people are members."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from api.auth.principal import Grant, Scope
from hpctools.site import Site

Names = Mapping[str, tuple[str, ...]]

_HEAD: frozenset[Scope] = frozenset({"read", "write"})
_MEMBER: frozenset[Scope] = frozenset({"read"})


@dataclass(frozen=True)
class Person:
    """Somebody, as the OpenID provider knows them.

    Attributes:
        subject: the provider's own name of them.
        user: the Unix account; None when the provider does not say it.
        groups: of the directory.
        issuer: the provider.
    """

    subject: str
    user: str | None = None
    groups: tuple[str, ...] = ()
    issuer: str = ""

    @property
    def name(self) -> str:
        """As the audit trail has it: a guest's is nobody's account, whatever the provider calls them."""
        return f"oidc:{self.user}" if self.user else f"oidc:sub:{self.subject}"


@dataclass(frozen=True)
class People:
    """The accounts that each person leads or works in.

    Attributes:
        heads, members: accounts by Unix account.
        groups: accounts by the directory's group whose people are members.
    """

    heads: Names = field(default_factory=dict)
    members: Names = field(default_factory=dict)
    groups: Names = field(default_factory=dict)

    @classmethod
    def of(cls, site: Site) -> People:
        """Everybody that a site file names."""
        owners = [account.owner for account in site.accounts()]
        heads = ((owner.name, (owner.supervisor,) if owner.supervisor else ()) for owner in owners)
        return cls(
            heads=_inverted(heads),
            members=_inverted((owner.name, owner.members) for owner in owners),
            groups=_inverted((owner.name, owner.members_from) for owner in owners),
        )

    def grants(self, user: str | None, groups: Iterable[str]) -> tuple[Grant, ...]:
        """What the site file opens to a person: a head reads and writes there and below, a member reads."""
        led = self.heads.get(user, ()) if user is not None else ()
        joined = self.members.get(user, ()) if user is not None else ()
        by_group = [account for group in groups for account in self.groups.get(group, ())]
        return (
            *(head(account) for account in led),
            *(member(account) for account in dict.fromkeys((*joined, *by_group))),
        )


def head(account: str) -> Grant:
    """What a head may do."""
    return Grant(account, _HEAD)


def member(account: str) -> Grant:
    """What a member may do."""
    return Grant(account, _MEMBER)


def _inverted(pairs: Iterable[tuple[str, Iterable[str]]]) -> Names:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for account, names in pairs:
        for name in names:
            found[str(name)].append(account)
    return {name: tuple(accounts) for name, accounts in found.items()}
