"""Sessions, from the processes that serve them."""

from __future__ import annotations

import pytest

from hpctools.login.agent.processes import TICKS, below, children
from hpctools.login.agent.sessions import OpenSession, detached, open_sessions
from tests.login.node_processes import BOOT, LISTENER, connection, process


def test_a_connection_is_a_session_whatever_runs_over_it() -> None:
    """Two connections: one with two terminals (a ControlMaster's channels), one without any (ssh -N)."""
    first, second = connection(100, "nlp1", 1001, "pts/0,pts/2"), connection(200, "nlp2", 1002)
    found = open_sessions([LISTENER, *second, *first], BOOT, {"pts/2": "192.0.2.7", "200": "laptop"})
    since = int(BOOT + 10_000 / TICKS)
    assert found[0] == OpenSession(
        "100-10000", "ssh", "nlp1", 1001, 100, 10000, since, "192.0.2.7", ("pts/0", "pts/2"), first[1:]
    )
    assert (found[1].key, found[1].source, found[1].ttys) == ("200-20000", "laptop", ())


def test_who_has_not_logged_in_yet_has_no_session() -> None:
    """sshd's process for the network runs as its own account until then; unknown users never get further."""
    asked = process(100, 10, 0, "sshd: nlp1 [priv]", name="sshd")
    network = process(101, 100, 108, "sshd: nlp1 [net]", name="sshd")
    stranger = process(102, 10, 0, "sshd: unknown [priv]", name="sshd")
    assert open_sessions([LISTENER, asked, network, stranger], BOOT) == ()


def test_nobody_makes_a_session_of_another_by_a_title() -> None:
    """A program that calls itself what sshd calls itself is not root's."""
    false = process(100, 1, 1001, "sshd: nlp2 [priv]", name="sshd")
    child = process(101, 100, 1001, "sshd: nlp2@pts/1", name="sshd")
    assert open_sessions([LISTENER, false, child], BOOT) == ()


def test_nobody_makes_a_session_of_another_below_a_program_of_roots() -> None:
    """sudo is root's while a program of the person's asks for the password, and is called as they like."""
    sudo = process(100, 50, 0, "sshd: bin [priv]", name="sudo")
    helper = process(101, 100, 1, "sshd: bin@pts/1", name="sh")  # of daemon's, whose number this is
    assert open_sessions([LISTENER, sudo, helper], BOOT) == ()
    second_name = process(101, 100, 2, "sshd: bin@pts/1", name="sshd")
    assert [each.user for each in open_sessions([LISTENER, sudo, second_name], BOOT)] == ["bin"]


@pytest.mark.parametrize("title", ["anna/b", "x" * 61, "anna\ufffdb"])
def test_nobody_makes_a_session_of_a_name_that_becomes_anothers_for_the_service(title: str) -> None:
    """It is told `anna_b`; a name that no account has is nobody's, whatever the number."""
    sudo = process(100, 50, 0, f"sshd: {title} [priv]", name="sudo")
    for uid in (1, 4_000_003):
        assert open_sessions([LISTENER, sudo, process(101, 100, uid, f"sshd: {title}@pts/1")], BOOT) == ()


def test_a_name_that_no_account_has_is_not_of_a_number_that_is_anothers() -> None:
    """Or that of an account whose directory is away: it is not known for a moment, and daemon is."""
    sudo = process(100, 50, 0, "sshd: anna_b [priv]", name="sudo")
    assert open_sessions([LISTENER, sudo, process(101, 100, 1, "sshd: anna_b@pts/1")], BOOT) == ()
    (away,) = open_sessions([LISTENER, *connection(200, "anna_b", 4_000_003)], BOOT)
    assert away.user == "anna_b", "it knows neither"


@pytest.mark.parametrize("monitor", ["priv", "postauth"])
def test_root_has_one_process_and_newer_sshd_another_name(monitor: str) -> None:
    """[priv] up to OpenSSH 10.0 at least, [postauth] in 10.6."""
    root = process(100, 10, 0, "sshd: root@pts/4", name="sshd")
    newer = (
        process(200, 10, 0, f"sshd-session: nlp1 [{monitor}]", name="sshd-session"),
        process(201, 200, 1001, "sshd-session: nlp1@notty", name="sshd-session"),
    )
    found = open_sessions([LISTENER, root, *newer], BOOT)
    assert [(each.user, each.uid, each.ttys) for each in found] == [
        ("root", 0, ("pts/4",)),
        ("nlp1", 1001, ()),
    ]


def test_accounts_with_an_at_are_people_as_well() -> None:
    first = connection(100, "anna@uni.example", 1001, "pts/0,pts/12")
    second = connection(200, "tom@uni.example", 1002)
    found = open_sessions([LISTENER, *first, *second], BOOT)
    assert [(each.user, each.uid, each.ttys) for each in found] == [
        ("anna@uni.example", 1001, ("pts/0", "pts/12")),
        ("tom@uni.example", 1002, ()),
    ]


@pytest.mark.parametrize("typed", ["Daemon", "daemon@uni.example"])
def test_who_types_the_name_otherwise_has_a_session_of_the_account(typed: str) -> None:
    """As directories allow (AD does): sshd's process of root has the name as typed, the other one has not."""
    monitor = process(100, 10, 0, f"sshd: {typed} [priv]", name="sshd")
    served = process(101, 100, 1, "sshd: daemon@pts/0", name="sshd")
    (found,) = open_sessions([LISTENER, monitor, served], BOOT)
    assert (found.key, found.user, found.uid, found.ttys) == ("100-10000", "daemon", 1, ("pts/0",))
    other = process(101, 100, 2, "sshd: daemon@pts/0", name="sshd")
    assert open_sessions([LISTENER, monitor, other], BOOT) == ()


def test_a_session_of_session_manager_belongs_to_whom_it_runs_as() -> None:
    worker = process(300, 20, 0, "/usr/bin/ssm-session-worker uni-0a1b2c3d4e5f67890", name="ssm-session-wor")
    early = process(400, 20, 0, "ssm-session-worker uni-1a1b2c3d4e5f67890", name="ssm-session-wor")
    shell = process(301, 300, 1, "sh", name="sh", terminal="pts/3")
    inside = process(302, 301, 1, "sh", name="sh", terminal="pts/0")  # a container's own pts/0, or script's
    (found,) = open_sessions([worker, early, shell, inside], BOOT)
    assert (found.key, found.kind, found.user, found.uid, found.pid, found.ttys) == (
        "uni-0a1b2c3d4e5f67890", "ssm", "daemon", 1, 300, ("pts/3",),
    )  # fmt: skip


def test_nobody_makes_a_session_of_another_by_the_name_of_session_managers_worker() -> None:
    """sudo is called so with the name of a session that lives; it is root's, and came later."""
    title, shells = "ssm-session-worker anna-0a1b2c3d4e5f67890", {"name": "sh", "terminal": "pts/3"}
    sudo = process(200, 50, 0, title, name="sudo", started=9_000)
    worker = process(300, 20, 0, f"/usr/bin/{title}", name="ssm-session-wor", started=8_000)
    hers, helper = process(301, 300, 1, "sh", **shells), process(201, 200, 2, "sh", name="sh")
    found = open_sessions([sudo, helper, worker, hers], BOOT)
    assert [(each.user, each.pid) for each in found] == [("daemon", 300)]
    assert [each.user for each in open_sessions([sudo, helper], BOOT)] == ["bin"], "hers is over"


def test_nobody_makes_a_session_of_ssh_by_the_name_of_session_managers_worker() -> None:
    """PID-START of one that is over: it would count for whose it was for as long as the false one lives."""
    sudo = process(200, 50, 0, "ssm-session-worker 100-10000", name="sudo")
    assert open_sessions([sudo, process(201, 200, 2, "sh", name="sh")], BOOT) == ()
    digits = process(200, 50, 0, "ssm-session-worker 4711-12345678901234567", name="ssm-session-wor")
    assert len(open_sessions([digits, process(201, 200, 2, "sh", name="sh")], BOOT)) == 1


def test_a_tmux_is_seen_attached_and_detached() -> None:
    """The client is in the session; the server belongs to nobody but its user."""
    here = connection(100, "daemon", 1, "pts/0")
    client = process(110, 102, 1, "tmux attach", name="tmux: client")
    server = process(111, 1, 1, "tmux new", name="tmux: server")
    (found,) = open_sessions([LISTENER, *here, client, server], BOOT)
    assert found.multiplexed
    assert list(detached([client, server])) == [(server, "daemon")]


def test_a_multiplexer_is_seen_whoever_took_it_over() -> None:
    """A reaper on the way to init, as `systemd --user` is one; what looks at a screen from a tmux is none."""
    reaper = process(50, 1, 1, "/lib/systemd/systemd --user", name="systemd")
    tmux = process(111, 50, 1, "tmux new -d", name="tmux: server")
    screen = process(112, 50, 1, "/usr/bin/SCREEN -S work", name="screen")
    old = process(113, 1, 1, "screen", name="screen")
    pane, client = (
        process(120, 111, 1, "-bash", name="bash"),
        process(121, 120, 1, "screen -r", name="screen"),
    )
    found = list(detached([reaper, client, pane, old, screen, tmux]))
    assert found == [(tmux, "daemon"), (screen, "daemon"), (old, "daemon")]


def test_of_one_person_the_oldest_multiplexers_are_seen_and_of_nobody_none() -> None:
    many = [process(10_000 + n, 1, 1, name="screen", started=99_999 - n) for n in range(500)]
    nobodys = process(20_000, 1, 4_000_002, name="tmux: server")
    others = process(400, 1, 2, name="tmux: server")
    found = list(detached([*many, nobodys, others]))
    assert found == [*((each, "daemon") for each in many[:-21:-1]), (others, "bin")]


def test_all_below_a_process_nearest_first() -> None:
    first, second, below_first = process(20, 10), process(30, 10), process(21, 20)
    by_parent = children([below_first, first, second])
    assert by_parent == {20: (below_first,), 10: (first, second)}
    assert list(below(10, by_parent)) == [first, second, below_first]
