"""What each role's rules say; whole, since each word of them counts."""

import pytest

from pam import roles
from pam.settings import Settings
from tests.pam.stacks import SETTINGS

ADMINISTRATORS = """\
account	[success={} default=ignore]	pam_succeed_if.so quiet uid eq 0
account	[success={} default=ignore]	pam_succeed_if.so quiet user = hpcadmin
account	[success={} default=ignore]	pam_succeed_if.so quiet user ingroup sudo
account	[success={} default=ignore]	pam_succeed_if.so quiet user ingroup [domain admins]
"""
OPTIONS = (
    "action_no_jobs=deny action_adopt_failure=deny action_generic_failure=deny action_unknown=newest "
    "service=sshd-n1 nodename=n1"
)
COMPUTE = f"""\
{ADMINISTRATORS.format(7, 6, 5, 4)}\
account	[success=ignore default=die]	pam_exec.so quiet stdout /p/slurmd-runs /run/slurmd-n1.pid n1
account	[success=2 default=ignore]	/lib/security/pam_slurm_adopt.so {OPTIONS}
account	[success=ignore default=die]	pam_exec.so quiet stdout /p/job-starting 10 n1
account	[success=ignore default=die]	/lib/security/pam_slurm_adopt.so {OPTIONS}
{ADMINISTRATORS.format(4, 3, 2, 1).replace("account", "session")}\
session	[success=ignore default=die]	pam_exec.so quiet stdout /p/adopted
"""
GUARD = f"""\
{ADMINISTRATORS.format(4, 3, 2, 1).replace("account", "session")}\
session	[default=1]	pam_permit.so
"""
LOGIN = f"""\
{ADMINISTRATORS.format(4, 3, 2, 1)}\
account	[success=ignore default=die]	pam_exec.so quiet stdout /bin/sh -c [/p/session-limit $PPID 3 200 \
/run/s /opt/hook || test $? -ne 77]
"""
CLOSED = f"""\
{ADMINISTRATORS.format(5, 4, 3, 2)}\
account	[default=ignore]	pam_echo.so Only administrators may log in on this node.
account	requisite	pam_deny.so
"""


def made(role: str, settings: Settings, place: roles.Place) -> tuple[str, str]:
    found = roles.additions(role, settings, place)
    return "".join(f"{rule}\n" for rule in found.first), "".join(f"{rule}\n" for rule in found.guard)


def test_compute() -> None:
    settings = Settings(users=SETTINGS.users, groups=SETTINGS.groups, slurmd_pid_file="/run/slurmd-%n.pid")
    place = roles.Place("sshd-n1", "/p", "/lib/security/pam_slurm_adopt.so", "n1")
    assert made("compute", settings, place) == (COMPUTE, GUARD)


def test_login() -> None:
    settings = Settings(
        SETTINGS.users, SETTINGS.groups, sessions_per_user=3, sessions=200, session_hook="/opt/hook"
    )
    assert made("login", settings, roles.Place("sshd", "/p", sessions="/run/s")) == (LOGIN, "")


def test_an_agent_is_asked_by_its_socket() -> None:
    settings = Settings(sessions_per_user=3, agent_socket="/run/a.sock", when_unreachable="refuse")
    rules, _ = made("login", settings, roles.Place("sshd", "/p", sessions="/run/s"))
    assert "[/p/session-limit $PPID 3 0 /run/s unix:/run/a.sock refuse || test $? -ne 77]" in rules


TOLD = f"""\
{ADMINISTRATORS.format(5, 4, 3, 2)}\
account	[success=ignore default=die]	pam_exec.so quiet stdout /bin/sh -c [/p/session-limit $PPID 0 0 \
/run/s unix:/run/a.sock open || test $? -ne 77]
account	[default=1]	pam_permit.so
account	[default=ignore]	pam_exec.so quiet /bin/sh -c [read -r stat </proc/$PPID/stat; \
/p/administrator-entered "$stat" /run/a.sock &]
"""


def test_the_agent_is_told_of_administrators_who_wait_for_nothing() -> None:
    """They jump to that rule, which everybody else jumps over; it can neither refuse nor grant."""
    settings = Settings(SETTINGS.users, SETTINGS.groups, agent_socket="/run/a.sock")
    assert made("login", settings, roles.Place("sshd", "/p", sessions="/run/s")) == (TOLD, "")


def test_closed() -> None:
    assert made("closed", SETTINGS, roles.Place("sshd", "/p")) == (CLOSED, "")


@pytest.mark.parametrize("role", roles.ROLES)
def test_rules_of_ours_never_grant_and_root_comes_first(role: str) -> None:
    for kind in ("account", "session"):
        first = roles.additions(role, Settings(), roles.Place("s", "/p", "/a.so")).first
        rules = [rule for rule in first if rule.startswith(f"{kind}\t")]
        controls = [rule.split("\t")[1] for rule in rules]
        granting = [
            c for c in controls if c in ("required", "sufficient", "optional") or "ok" in c or "done" in c
        ]
        assert granting == []
        assert not rules or "uid eq 0" in rules[0]
