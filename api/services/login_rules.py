"""What the site file says of login nodes, ready to be asked for each login."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock

from api.db.in_loop import takes_long
from api.services.site_file import SiteFile
from hpctools.errors import SiteError
from hpctools.login.limits import Limits
from hpctools.login.placement import Policy
from hpctools.site import Site

_log = logging.getLogger("hpctools.api")
_REST_SECONDS = 10.0
"""So long a file that cannot be used is not read again: a large one takes seconds, and logins come all the
time."""


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


class RulesOf:
    """The rules of the site file as it is now, worked out once for each of its versions.

    Args:
        monotonic: seconds, never going back.
    """

    def __init__(self, site_file: SiteFile, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._site_file, self._monotonic = site_file, monotonic
        self._broken, self._again = "", 0.0
        self._lock = Lock()
        self._known: tuple[Site, Rules] | None = None

    def current(self) -> Rules:
        """The rules.

        Raises:
            SiteError: the file cannot be read or has findings.
        """
        site = self._site_file.declared()
        with self._lock:
            if self._known is None or self._known[0] is not site:
                self._known = (site, Rules.of(site))
            return self._known[1]

    def in_force(self) -> Rules:
        """The rules, for logins; while the file cannot be used those that it had: a slip keeps nobody out.

        Raises:
            SiteError: the file cannot be used, and never could since the service began.
        """
        known = self._known
        if known is not None and self._broken:
            if self._monotonic() < self._again:
                return known[1]
            takes_long()
            self._again = self._monotonic() + _REST_SECONDS  # others need not wait while it is read
        try:
            rules = self.current()
        except SiteError as error:
            if known is None:
                raise
            self._say(str(error))
            return known[1]
        self._broken = ""
        return rules

    def _say(self, error: str) -> None:
        if error != self._broken:
            _log.error("the site file cannot be used, logins go by what it said before: %s", error)
        self._broken, self._again = error, self._monotonic() + _REST_SECONDS


def _default_first(default: str, accounts: tuple[str, ...]) -> tuple[str, ...]:
    return (default, *(account for account in accounts if account != default))
