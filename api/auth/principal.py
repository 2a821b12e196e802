"""Who asks and what they may do: grants of scopes on accounts and what lies below them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from hpctools.budget.tree import BudgetSite

Scope = Literal["read", "write", "enforce", "login", "admin"]
"""`write` changes budgets, `enforce` changes the cluster, `login` is for login nodes, which tell who is there
and ask who may begin a session; `admin` is for tokens, the audit trail and runs."""

SCOPES: tuple[Scope, ...] = get_args(Scope)


@dataclass(frozen=True)
class Grant:
    """Scopes on one account and all below it.

    Attributes:
        account: None for everything, accounts that the site file does not know (any more) included.
        scopes: every scope but `login` includes `read`, and `admin` all others.
    """

    account: str | None
    scopes: frozenset[Scope]

    def allows(self, scope: Scope) -> bool:
        """Whether a scope is among them. `admin` is for the whole service, never for a part of the site."""
        if scope == "admin":
            return self.account is None and "admin" in self.scopes
        if scope == "read":
            return bool(self.scopes - {"login"})
        return bool({scope, "admin"} & self.scopes)

    def covers(self, site: BudgetSite, account: str) -> bool:
        """Whether an account lies in its subtree."""
        return self.account is None or account in site.subtree(self.account)


OIDC = "oidc:"
PERSONAL = "user:"


def personal(user: str, name: str) -> str:
    """The whole name of a person's token; no other token can have one like it, since those have no colon."""
    return f"{PERSONAL}{user}:{name}"


@dataclass(frozen=True)
class Principal:
    """Who asks.

    Attributes:
        name: a token's name, `user:NAME:` and the name of a person's token, `oidc:` and a user's name, or
            `oidc:sub:` and what the provider calls a guest; it stands in the audit trail.
        grants: what they may do, and where.
        acting: the scope that the route asks for.
        unnamed: the provider does not say their Unix account.
    """

    name: str
    grants: tuple[Grant, ...]
    acting: Scope = "read"
    unnamed: bool = False

    @property
    def user(self) -> str | None:
        """The Unix account of who signed in with the site's provider, or has a token of their own."""
        if self.unnamed:
            return None
        if self.name.startswith(OIDC):
            return self.name.removeprefix(OIDC)
        if self.name.startswith(PERSONAL):
            return self.name.removeprefix(PERSONAL).partition(":")[0]
        return None

    @property
    def is_admin(self) -> bool:
        """Whether they may do everything."""
        return self.has("admin")

    def has(self, scope: Scope) -> bool:
        """Whether they have a scope on any account."""
        return any(grant.allows(scope) for grant in self.grants)

    def acts(self, scope: Scope) -> Principal:
        """The same one, about to do what needs a scope."""
        return replace(self, acting=scope)

    def may_see(self, site: BudgetSite, account: str) -> bool:
        """Whether they may read an account."""
        return self.may("read", site, account)

    def may(self, scope: Scope, site: BudgetSite, account: str) -> bool:
        """Whether they have a scope on an account."""
        return any(grant.allows(scope) and grant.covers(site, account) for grant in self.grants)
