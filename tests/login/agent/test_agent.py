"""What the agent does with what it sees and hears."""

from __future__ import annotations

import json
import os
import pty
from pathlib import Path

from hpctools.errors import UnreachableError
from hpctools.login.agent.agent import announcement
from hpctools.login.agent.caring import Carer
from hpctools.login.agent.daemon import NodeHands
from hpctools.login.agent.figures import Figures
from hpctools.login.agent.processes import TICKS
from hpctools.login.agent.reporting import MOST_SESSIONS
from hpctools.login.agent.sessions import MOST_WAITING
from hpctools.site.login_care import Care, IdleSessions
from tests.login.agent.made_agent import FakeHands, FakeSampler, FakeService, made_agent
from tests.login.agent.test_caring import FakeSlices
from tests.login.node_processes import BOOT, LISTENER, connection, process, sample

FINE = {"taken": True, "lease_seconds": 30, "draining": False, "why": "", "end": []}
DRAIN = {**FINE, "draining": True, "why": "new kernel"}


def hands(agent: object) -> FakeHands:
    found = agent.hands  # type: ignore[attr-defined]
    assert isinstance(found, FakeHands)
    return found


def test_what_the_service_is_told(tmp_path: Path) -> None:
    """Sessions of both kinds, and a tmux that nobody looks at."""
    worker = process(300, 20, 0, "ssm-session-worker uni-0a1b2c3d", name="ssm-session-wor")
    shell, server = process(301, 300, 2, "sh"), process(400, 1, 1, "tmux new", name="tmux: server")
    service = FakeService(FINE)
    made_agent(
        tmp_path, LISTENER, *connection(100, "nlp1", 1001, "pts/0"), worker, shell, server, service=service
    )
    ((method, path, body),) = service.asked
    assert (method, path) == ("PUT", "/v1/login/nodes/login-1/report")
    assert body is not None
    sessions = {each["claim"]: each for each in body["sessions"]}
    assert {key: (each["user"], each["kind"]) for key, each in sessions.items()} == {
        "100-10000": ("nlp1", "ssh"), "uni-0a1b2c3d": ("bin", "ssm"), "400-40000": ("daemon", "tmux"),
    }  # fmt: skip
    assert sessions["100-10000"]["age"] == 2_000_000 - (BOOT + 100)
    rest = {key: value for key, value in body.items() if key not in ("agent", "sessions")}
    assert rest == {
        "sequence": 1, "sample_age": 3.0, "address": "login-1.uni.example", "cpus": 4, "cpu": 0.25,
        "memory": 0.5, "draining": False, "unlimited": False,
    }  # fmt: skip


def test_one_person_cannot_make_a_report_larger_than_the_service_takes(tmp_path: Path) -> None:
    """It takes a million bytes; a node whose reports it refuses is silent."""
    fakes = [process(10_000 + number, 1, 1, name="screen") for number in range(20_000)]
    service = FakeService(FINE)
    made_agent(tmp_path, LISTENER, *connection(100, "nlp1", 1001), *fakes, service=service)
    told = service.asked[0][2]
    assert told is not None
    assert [each["user"] for each in told["sessions"]] == ["nlp1", *["daemon"] * MOST_WAITING]
    assert len(json.dumps(told)) < 100_000
    many = [each for n in range(MOST_SESSIONS + 100) for each in connection(1000 + 10 * n, "nlp1", 1001)]
    made_agent(tmp_path, LISTENER, *many, service=service)
    told = service.asked[1][2]
    assert told is not None
    assert [each["claim"] for each in told["sessions"]] == [
        f"{1000 + 10 * n}-{100_000 + 1000 * n}" for n in range(MOST_SESSIONS)
    ]
    assert len(json.dumps(told)) < 200_000


def test_a_drain_is_announced_once_and_to_those_who_come_later(tmp_path: Path) -> None:
    first, second = connection(100, "nlp1", 1001, "pts/0"), connection(200, "nlp2", 1002, "pts/1")
    agent = made_agent(tmp_path, *first, *connection(300, "nlp3", 1003), service=FakeService(DRAIN))
    words = announcement("login-1", agent.drain_file.now)
    assert words.startswith(
        "login-1 takes no new sessions: new kernel. Please finish what you do here and log in"
    )
    agent.look()
    assert hands(agent).told == [(("pts/0",), words)]
    agent.sampler = FakeSampler(sample(*first, *second))  # type: ignore[assignment]
    agent.look()
    assert hands(agent).told[1:] == [(("pts/1",), words)]
    assert agent.check() == "drain\n"


def test_who_works_without_a_terminal_of_sshds_is_told_where_they_type(tmp_path: Path) -> None:
    """An editor's remote shell, a pane of a tmux; not a second time at what runs inside a session."""
    editor = process(310, 302, 1003, "bash", terminal="pts/7")
    pane, inside = process(400, 1, 1004, terminal="pts/8"), process(110, 102, 1001, terminal="pts/9")
    root = process(500, 1, 0, terminal="pts/4")
    first, tunnel = connection(100, "nlp1", 1001, "pts/0"), connection(300, "nlp3", 1003)
    agent = made_agent(tmp_path, *first, *tunnel, editor, pane, inside, root, service=FakeService(DRAIN))
    agent.look()
    assert [where for where, _ in hands(agent).told] == [("pts/0",), ("pts/7",), ("pts/8",)]
    agent.tell_user("1004", "because")
    assert (("pts/8",), "because") in hands(agent).told[3:]


def test_new_words_of_a_drain_are_announced_again(tmp_path: Path) -> None:
    service = FakeService(DRAIN, {**DRAIN, "why": "new kernel in 5 minutes"}, FINE, DRAIN)
    agent = made_agent(tmp_path, *connection(100, "nlp1", 1001, "pts/0"), service=service)
    for _ in range(3):
        agent.look()
    told = [words.partition(": ")[2].partition(".")[0] for _, words in hands(agent).told]
    assert told == ["new kernel", "new kernel in 5 minutes", "new kernel"]


def test_a_drain_holds_while_the_service_is_away(tmp_path: Path) -> None:
    service = FakeService(DRAIN, UnreachableError("gone"))
    agent = made_agent(tmp_path, service=service)
    agent.look()
    assert (agent.check(), agent.status()["service_answers"]) == ("drain\n", False)
    again = made_agent(tmp_path, service=FakeService(UnreachableError("gone")))
    assert again.check() == "drain\n"


def test_a_word_of_the_nodes_own_is_not_taken_for_the_services(tmp_path: Path) -> None:
    """The service says back that the node is drained; when the node takes its word back it takes sessions."""
    service = FakeService(FINE, {**FINE, "draining": True}, FINE)
    agent = made_agent(tmp_path, service=service)
    agent.drain(draining=True, why="disk")
    agent.look()
    assert service.asked[1][2] is not None
    assert service.asked[1][2]["draining"] is True
    agent.drain(draining=False, why="")
    assert not agent.status()["draining"]


def test_a_report_that_was_not_taken_tells_nothing(tmp_path: Path) -> None:
    agent = made_agent(tmp_path, service=FakeService(DRAIN, {**FINE, "taken": False}))
    agent.look()
    assert agent.check() == "drain\n"


def test_what_the_service_wants_ended_is_ended(tmp_path: Path) -> None:
    service = FakeService({**FINE, "end": ["100-10000", "7-7"]})
    agent = made_agent(
        tmp_path, *connection(100, "nlp1", 1001), *connection(200, "nlp2", 1002), service=service
    )
    assert hands(agent).ended == ["100-10000"]


def test_who_is_ended_for_being_one_too_many_is_told_first(tmp_path: Path) -> None:
    """What is written goes through the process that is ended, so it is ended at the next look."""
    worker = process(300, 20, 0, "ssm-session-worker uni-0a1b2c3d", name="ssm-session-wor")
    shell = process(301, 300, 2, "sh", terminal="pts/5")
    blind = process(400, 20, 0, "ssm-session-worker uni-1a1b2c3d", name="ssm-session-wor")
    command = process(401, 400, 2, "sleep")
    over = {**FINE, "end": ["uni-0a1b2c3d", "uni-1a1b2c3d"]}
    over["tell"] = dict.fromkeys(["uni-0a1b2c3d", "uni-1a1b2c3d"], "bin: you have 4 sessions")
    agent = made_agent(tmp_path, worker, shell, blind, command, service=FakeService(over))
    assert hands(agent).told == [(("pts/5",), "bin: you have 4 sessions")]
    assert (hands(agent).ended, agent.ended) == (["uni-1a1b2c3d"], 1)
    agent.look()
    assert len(hands(agent).told) == 1
    assert hands(agent).ended[1:] == ["uni-0a1b2c3d", "uni-1a1b2c3d"]


def test_a_drain_is_announced_in_session_manager_too(tmp_path: Path) -> None:
    worker = process(300, 20, 0, "ssm-session-worker uni-0a1b2c3d", name="ssm-session-wor")
    shell = process(301, 300, 2, "sh", terminal="pts/5")
    agent = made_agent(tmp_path, worker, shell, service=FakeService(DRAIN))
    agent.tell_user("bin", "your part is 80 %")
    assert [terminals for terminals, _ in hands(agent).told] == [("pts/5",)] * 2


def test_a_terminal_that_is_another_persons_by_now_is_not_told(tmp_path: Path) -> None:
    """Somebody left while the service was asked, and who came next has got their terminal."""
    master, slave = pty.openpty()
    try:
        name = os.ttyname(slave).removeprefix("/dev/")
        left = connection(100, "nlp1", os.getuid() + 1, name)
        agent = made_agent(tmp_path, *left, service=FakeService(FINE, DRAIN))
        agent.hands = NodeHands("login-1", tmp_path / "unlimited")
        agent.look()
        agent.tell_user("nlp1", "for nlp1 alone")
        assert agent.hands.tell([name], "for who is there", os.getuid()) == 1
        told = ""
        while "for who is there" not in told:
            told += os.read(master, 65_536).decode()
    finally:
        os.close(slave)
        os.close(master)
    assert "takes no new sessions" not in told
    assert "for nlp1 alone" not in told


def test_whatever_is_told_in_a_session_is_for_its_owner(tmp_path: Path) -> None:
    over = {**DRAIN, "end": ["100-10000"], "tell": {"100-10000": "nlp1: you have 4 sessions"}}
    there = connection(100, "nlp1", 1001, "pts/0")
    agent = made_agent(tmp_path, *there, service=FakeService(over))
    agent.idle = IdleSessions.model_validate({"after": "01:00:00", "warning": "00:10:00"})
    later = [sample(*there, at=t, now=2_000_000.0 + t) for t in (0.0, 4000.0)]
    agent.sampler = FakeSampler(*later)  # type: ignore[assignment]
    hands(agent).typed = {"pts/0": 2_000_000.0}
    agent.look()
    agent.look()
    words = [words.partition(" ")[0] for _, words in hands(agent).told]
    assert (words, set(hands(agent).owners)) == (["nlp1:", "login-1", "Nothing"], {1001})


def test_a_waiting_tmux_is_ended_as_well(tmp_path: Path) -> None:
    server = process(400, 1, 1, "tmux new", name="tmux: server")
    service = FakeService({**FINE, "end": ["400-40000"]})
    agent = made_agent(tmp_path, server, *connection(100, "nlp1", 1001), service=service)
    assert (hands(agent).ended, agent.ended) == (["400-40000"], 1)


def test_a_penalty_is_told_to_those_who_come_while_it_lasts(tmp_path: Path) -> None:
    """Those who were there hear when it begins, those who come later what is left of it, each once."""
    care = Care.model_validate(
        {"cpus": 1.0, "memory_gib": 4.0, "patience": "00:05:00", "penalty": "00:10:00"}
    )
    first, second = (connection(pid, "54321", 54321, f"pts/{pid}") for pid in (100, 200))
    agent = made_agent(tmp_path, *first)
    agent.carer = Carer(care, FakeSlices(), agent.tell_user, lambda user: False)
    minutes = [
        sample(*first, *(second if minute >= 3 else ()), process(7, uid=54321, ticks=minute * 60 * 4 * TICKS),
               at=60.0 * minute)
        for minute in range(6)
    ]  # fmt: skip
    agent.sampler = FakeSampler(*minutes)  # type: ignore[assignment]
    for _ in minutes:
        agent.look()
    (begun, reminded) = hands(agent).told
    assert begun[0] == ("pts/100",)
    assert begun[1].startswith("You have used 4.0 processors")
    assert reminded[0] == ("pts/200",)
    assert reminded[1].startswith(
        "Your programs on this login node are limited to 0.8 processors and 3.2 GiB for the next 9 minutes: "
        "you had used 4.0 processors and 0.0 GiB of this login node, most of it by python3 (process 7)."
    )


def test_idle_sessions_are_warned_and_closed_but_not_administrators(tmp_path: Path) -> None:
    both = (*connection(100, "nlp1", 1001, "pts/0"), *connection(200, "hpcadmin", 1002, "pts/1"))
    agent = made_agent(tmp_path, *both)
    agent.idle = IdleSessions.model_validate({"after": "01:00:00", "warning": "00:10:00"})
    later = [sample(*both, at=t, now=2_000_000.0 + t) for t in (0.0, 4000.0, 4700.0)]
    agent.sampler = FakeSampler(*later)  # type: ignore[assignment]
    hands(agent).typed = {"pts/0": 2_000_000.0, "pts/1": 2_000_000.0}
    for _ in later:
        agent.look()
    assert [terminals for terminals, _ in hands(agent).told] == [("pts/0",)]
    assert hands(agent).ended == ["100-10000"]


def test_what_prometheus_is_told(tmp_path: Path) -> None:
    server = process(400, 1, 1, "tmux new", name="tmux: server")
    agent = made_agent(tmp_path, *connection(100, "nlp1", 1001), server, service=FakeService(FINE))
    figures = Figures(agent)
    assert figures.sessions() == {"ssh": 1, "ssm": 0, "tmux": 1}
    client = process(401, 102, 1, "tmux new", name="tmux: client")
    looking = Figures(made_agent(tmp_path, *connection(100, "daemon", 1), server, client))
    assert looking.sessions() == {"ssh": 1, "ssm": 0, "tmux": 0}
    assert {name: value for name, _, value in figures.gauges()} == {
        "cpu_used": 0.25, "memory_used": 0.5, "draining": 0.0, "sshd_refuses": 0.0, "service_up": 1.0,
    }  # fmt: skip
    assert {name: value for name, _, value in figures.counters()} == {
        "reports": 1, "report_failures": 0, "sessions_ended": 0,
    }  # fmt: skip
