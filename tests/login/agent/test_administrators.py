"""Who is an administrator by a group, and a directory that is away for a moment."""

from __future__ import annotations

import grp
from pathlib import Path
from types import SimpleNamespace

import pytest

from hpctools.login.agent.administrators import AdministratorCheck
from hpctools.login.agent.daemon import make_agent
from hpctools.login.agent.settings import Settings
from hpctools.site.access import Administrators

STATED = Administrators(users=("ops",), groups=("sudo", "hpc-admins"))


class Directory:
    """Accounts and groups; `away`: of accounts, of groups, or whose a person is, which are kept apart."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.groups = {"hpc-admins": (5000, ["opsanna"]), "users": (100, [])}
        self.accounts = {"opsanna": [100, 5000], "anna": [100]}
        self.away: set[str] = set()
        self.now, self.asked = 0.0, 0
        monkeypatch.setattr("pwd.getpwnam", self._account)
        monkeypatch.setattr("grp.getgrnam", self._group)
        monkeypatch.setattr("os.getgrouplist", self._groups_of)
        self.check = AdministratorCheck(STATED, lambda: self.now)

    def later(self, user: str, seconds: float = 60.0) -> bool:
        """What is said of somebody after so many seconds."""
        self.now += seconds
        return self.check(user)

    def _account(self, user: str) -> SimpleNamespace:
        self.asked += 1
        if "accounts" in self.away:
            raise KeyError(user)
        self.accounts[user]
        return SimpleNamespace(pw_gid=100)

    def _group(self, name: str) -> grp.struct_group:
        if "groups" in self.away:
            raise KeyError(name)
        number, members = self.groups[name]
        return grp.struct_group((name, "x", number, members))

    def _groups_of(self, user: str, primary: int) -> list[int]:
        return [primary] if "memberships" in self.away else self.accounts[user]


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Directory:
    return Directory(monkeypatch)


def test_groups_are_asked_once_a_minute(site: Directory) -> None:
    assert [site.check(user) for user in ("root", "ops", "opsanna", "anna")] == [True, True, True, False]
    site.accounts["anna"].append(5000)
    assert ([site.later("anna", 1.0) for _ in range(59)], site.asked) == ([False] * 59, 2)
    assert site.later("anna", 1.0)


@pytest.mark.parametrize(
    "away",
    [("accounts",), ("groups", "memberships"), ("memberships",), ("accounts", "groups", "memberships")],
)
def test_a_directory_that_is_away_makes_nobody_ordinary(site: Directory, away: tuple[str, ...]) -> None:
    """sssd restarted: for a minute she was limited, and what she began to repair the node was ended."""
    assert [site.check("opsanna"), site.check("anna")] == [True, False]
    site.away = set(away)
    assert [site.later("opsanna") for _ in range(100)] == [True] * 100
    assert (site.check("anna"), site.check.is_unsure("anna")) == (False, False)
    site.away.clear()
    site.accounts["opsanna"].remove(5000)
    site.groups["hpc-admins"][1].clear()
    assert site.later("opsanna") is False, "no member any more"


def test_of_whom_it_has_never_said_anything_nobody_is_sure(site: Directory) -> None:
    """And it is asked again soon, but not by each question."""
    site.away = {"accounts"}
    assert [(site.check("opsanna"), site.check.is_unsure("opsanna")) for _ in range(9)] == [(False, True)] * 9
    assert site.asked == 1
    assert not site.check.is_unsure("ops")
    site.away.clear()
    assert (site.later("opsanna", 5.0), site.check.is_unsure("opsanna")) == (True, False)


def test_a_group_that_the_node_does_not_have_does_no_harm(site: Directory) -> None:
    assert "sudo" not in site.groups
    assert (site.check("anna"), site.check.is_unsure("anna")) == (False, False)


def test_a_group_that_is_dissolved_counts_for_those_alone_who_were_in_it(site: Directory) -> None:
    assert [site.check("opsanna"), site.check("anna")] == [True, False]
    del site.groups["hpc-admins"]
    site.accounts |= {"opsanna": [100], "peter": [100]}
    assert [site.later("opsanna"), site.check("anna"), site.check("peter")] == [True, False, False]


def test_the_agent_knows_of_whom_nobody_is_sure(tmp_path: Path, site: Directory) -> None:
    site.away = {"accounts"}
    agent = make_agent(Settings(state=str(tmp_path), sshd_port=0, administrators=STATED), None)
    assert (agent.exempt("opsanna"), agent.unsure("opsanna"), agent.unsure("root")) == (False, True, False)
