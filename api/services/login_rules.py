"""What the site file says of login nodes, ready to be asked for each login."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hpctools.login.limits import Limits
from hpctools.login.placement import Policy
from hpctools.site import Site


@dataclass(frozen=True)
class Rules:
    """The site's words.

    Attributes:
        lease_seconds: a node's sessions count so long without a word from it.
        accounts: of each person, those of Slurm.
        departments: the department of each account.
        administrators: people by name who are not limited.
    """

    policy: Policy
    lease_seconds: int
    per_user: int
    per_department: int | None
    of_departments: Mapping[str, int]
    accounts: Mapping[str, tuple[str, ...]]
    departments: Mapping[str, str]
    administrators: frozenset[str]

    @classmethod
    def of(cls, site: Site) -> Rules:
        """What a site says."""
        login = site.login
        return cls(
            policy=Policy(login.balance_on, login.silent_after, site.access.login.sessions),
            lease_seconds=login.silent_after,
            per_user=login.max_sessions_per_user,
            per_department=login.max_sessions_per_department,
            of_departments=login.department_sessions,
            accounts={
                user.name: _default_first(user.default_account, user.accounts) for user in site.users()
            },
            departments={each.name: each.department.name for each in site.accounts()},
            administrators=frozenset({"root", *site.access.administrators.users}),
        )

    def department(self, user: str) -> str:
        """The department of somebody's default account; empty for people of none."""
        accounts = self.accounts.get(user, ())
        return self.departments[accounts[0]] if accounts else ""

    def limits(self, department: str) -> Limits:
        """What people of a department may have open."""
        most = self.of_departments.get(department, self.per_department) if department else None
        return Limits(self.per_user, department, most)


def _default_first(default: str, accounts: tuple[str, ...]) -> tuple[str, ...]:
    return (default, *(account for account in accounts if account != default))
