"""Whose sessions somebody may ask for, see, and end."""

from __future__ import annotations

from dataclasses import dataclass

from api.auth.principal import Principal, Scope
from api.services.login_rules import Rules
from hpctools.budget.tree import BudgetSite


@dataclass(frozen=True)
class People:
    """What a principal may do for whom.

    Administrators may everything; login nodes may ask where anybody is to log in, and no more: whoever has a
    shell on one may come by its token. A person who signed in, or has a token of their own, may do so for
    themselves; whoever reads an account may ask where its people are to log in, and whoever writes to it sees
    and ends their sessions.
    """

    principal: Principal
    site: BudgetSite
    rules: Rules

    @property
    def all(self) -> bool:
        """Whether they may everything for everybody."""
        return self.principal.has("admin")

    @property
    def user(self) -> str | None:
        """Who they are; None for a token that is nobody's own."""
        return self.principal.user

    def may_place(self, user: str) -> bool:
        """Whether they may ask for a node for somebody."""
        return self.principal.has("login") or self._is(user) or self._may("read", user)

    def may_end(self, user: str) -> bool:
        """Whether they may see and end somebody's sessions."""
        return self._is(user) or self._may("write", user)

    def seen(self) -> frozenset[str] | None:
        """Whose sessions they may see; None for everybody's."""
        if self.all:
            return None
        written = {name for name in self.site.by_name if self.principal.may("write", self.site, name)}
        theirs = {user for user, accounts in self.rules.accounts.items() if written.intersection(accounts)}
        return frozenset(theirs | ({self.user} if self.user is not None else set()))

    def _is(self, user: str) -> bool:
        return self.all or self.user == user

    def _may(self, scope: Scope, user: str) -> bool:
        accounts = self.rules.accounts.get(user, ())
        return any(self.principal.may(scope, self.site, account) for account in accounts)
