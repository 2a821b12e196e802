"""Whether an agent sees that its own sshd lets nobody in, and what it costs that sshd."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpctools.login.agent.own_sshd import PATIENCE, Heard, Knock, OwnSshd, standing_of_places
from tests.login.agent.made_agent import FakeService, made_agent
from tests.login.node_processes import LISTENER, process
from tests.system.harness import until

TAKEN = {"taken": True, "draining": False, "why": "", "end": []}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(20)
        yield made


def knock_at(listener: socket.socket, clock: Clock) -> Knock:
    return Knock(listener.getsockname()[1], clock)


def waits(listener: socket.socket) -> bool:
    """Whether anybody waits to be taken."""
    listener.settimeout(0.1)
    try:
        listener.accept()[0].close()
    except TimeoutError:
        return False
    return True


def test_an_sshd_that_hangs_has_one_connection_however_often_it_is_asked(listener: socket.socket) -> None:
    clock = Clock()
    knock = knock_at(listener, clock)
    heard = []
    for clock.now in (0, PATIENCE - 1, PATIENCE, 10 * PATIENCE):
        heard.append(knock.ask())
    assert heard == ["nothing yet", "nothing yet", "silence", "silence"]
    taken, _ = listener.accept()
    assert not waits(listener)
    taken.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
    assert until(lambda: knock.ask() == "banner" or None)
    assert taken.recv(1) == b"", "it is let go at once"
    taken.close()


@pytest.mark.parametrize("words", [b"", b"Exceeded MaxStartups\r\n"])
def test_an_sshd_that_is_full_hangs_up(listener: socket.socket, words: bytes) -> None:
    knock = knock_at(listener, Clock())
    assert knock.ask() == "nothing yet"
    taken, _ = listener.accept()
    taken.sendall(words)
    taken.close()
    assert until(lambda: knock.ask() == "hung up" or None)
    assert not waits(listener)


def test_where_nobody_listens_there_is_nobody() -> None:
    with socket.create_server(("127.0.0.1", 0)) as made:
        port = made.getsockname()[1]
    assert Knock(port, Clock()).ask() == "refused"


@pytest.mark.parametrize(
    ("title", "standing"),
    [
        ("sshd: /usr/sbin/sshd -D [listener] 299 of 300-600 startups", "open"),
        ("sshd: /usr/sbin/sshd -D [listener] 300 of 300-600 startups", "crowded"),
        ("sshd: /usr/sbin/sshd -D [listener] 600 of 300-600 startups", "closed"),
        ("sshd: /usr/sbin/sshd -D -p 2222 [listener] 10 of 10-10 startups", "closed"),
        ("sshd: nlp1 [priv]", None),
        ("/usr/sbin/sshd -D", None),
    ],
)
def test_what_a_title_says(title: str, standing: str | None) -> None:
    assert standing_of_places([process(10, 1, 0, title)]) == standing


def test_nobody_but_root_and_no_second_sshd_closes_a_node() -> None:
    full = "sshd: /usr/sbin/sshd -D [listener] 10 of 10-10 startups"
    assert standing_of_places([process(10, 1, 1000, full)]) is None
    assert standing_of_places([process(10, 1, 0, full), LISTENER]) == "open"


def test_silence_counts_only_once_it_has_answered() -> None:
    """An sshd that listens on one address of several is not taken for dead."""
    answers: list[Heard] = ["refused", "silence", "hung up", "banner", "refused", "silence", "nothing yet"]
    sshd = OwnSshd(iter([*answers, "hung up", "banner"]).__next__)
    seen = [sshd.look([]) for _ in range(9)]
    assert seen[:4] == ["open"] * 4
    assert seen[4:] == ["closed", "closed", "open", "crowded", "open"]


def test_a_title_with_room_is_believed_before_a_connection_that_was_hung_up() -> None:
    """sshd may refuse this one address; it counts its places itself."""
    sshd = OwnSshd(iter(["banner", "hung up", "silence"]).__next__)
    assert [sshd.look([LISTENER]) for _ in range(3)] == ["open", "open", "closed"]


def test_an_agent_tells_haproxy_the_service_and_people(tmp_path: Path) -> None:
    service = FakeService(TAKEN)
    agent = made_agent(tmp_path, service=service)
    agent.own_sshd = OwnSshd(iter(["banner", "refused", "banner"]).__next__)
    told = []
    for _ in range(3):
        agent.look()
        told.append((agent.check().split()[0], agent.status()["state"], agent.status()["sshd"]))
    assert told == [("up", "up", "open"), ("down", "closed", "closed"), ("up", "up", "open")]
    reports = [body for _, _, body in service.asked if body is not None]
    assert ["closed" in body for body in reports] == [False, False, True, False]
    assert reports[2]["closed"] is True
