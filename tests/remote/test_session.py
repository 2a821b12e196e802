"""A laptop's side: what is said when lines break, and what is waited for."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

import paramiko
import pytest

from hpctools.errors import HpctoolsError, RemoteError, UnreachableError
from hpctools.remote import identities, sending, session, wire
from hpctools.remote.clusters import Cluster
from hpctools.remote.diary import Earlier
from hpctools.remote.following import Wanted, follow
from hpctools.remote.host_keys import UnknownHost, WrongHost
from hpctools.remote.identities import Person
from hpctools.remote.own_keys import Offer
from hpctools.remote.route import Connection, Road
from hpctools.remote.sending import EAGER_BYTES, Unfinished, Unsure, send
from hpctools.remote.session import Exchange, Refusal, Session, SickNode
from hpctools.remote.shipping import LocalFile, Shipment
from hpctools.remote.ssh_config import HostSettings
from hpctools.remote.transport import LostConnection, NoKeyTaken, TurnedAway, handshake
from hpctools.remote.wire import Message

HOST = HostSettings("login1", "login1.uni.edu", 22, "me")
NAME = "train-0123456789ab"
SHIPMENT = Shipment(NAME, {"op": "submit", "files": [{"size": 2}]}, (LocalFile("job.sh", None, b"#!"),))
DONE = {"job_id": 7, "before": True}
BROKE = LostConnection("the connection to login1 broke", "is the network there?")
AWAY = UnreachableError("login1 does not answer", "is the network there?")
FULL = TurnedAway(HOST, "me: you have 2 sessions on the login nodes, and the limit is 2:\n 8: login2\n")
SICK = SickNode("login1", "`hp-submit` on login1 failed", "try it there")
TRIAL = Shipment(NAME, {**SHIPMENT.request, "id": NAME, "trial": True}, SHIPMENT.files)


@pytest.fixture(autouse=True)
def begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Channels here are none of paramiko's."""
    monkeypatch.setattr(session, "begin_command", lambda channel, line: channel.exec_command(line))


class Line:
    """An exchange whose line breaks while files are sent; what was answered before is still to be read.

    Attributes:
        whole: it takes all of the request, and breaks then.
    """

    def __init__(
        self, answer: Mapping[str, Any] | HpctoolsError | None, *, whole: bool = False, unmade: bool = False
    ) -> None:
        self.answer, self.whole, self.unmade = answer, whole, unmade

    def put(self, fields: Mapping[str, Any], data: bytes = b"") -> None:
        if not self.whole:
            raise BROKE

    def get(self) -> Message:
        return Message({"result": self.result()})

    def result(self) -> Mapping[str, Any]:
        if self.answer is None:
            raise BROKE
        if isinstance(self.answer, HpctoolsError):
            raise self.answer
        return self.answer


AWAY_IN_THE_FILES = Line(None)


class Scripted(Session):
    """A session that meets one thing after the other, the last for ever."""

    def __init__(self, *things: HpctoolsError | Line) -> None:
        super().__init__(Cluster("uni", ("login1",)), ("login1",), Road(None, Person(None)), lambda _: None)
        self.sleep = lambda _: None
        self.things, self.asked = list(things), list[Mapping[str, Any]]()

    @contextlib.contextmanager
    def exchange(self, request: Mapping[str, Any]) -> Iterator[Any]:
        self.asked.append(request)
        thing = self.things.pop(0) if len(self.things) > 1 else self.things[0]
        if isinstance(thing, HpctoolsError):
            raise thing
        yield thing


@pytest.mark.parametrize(
    "then",
    [AWAY, BROKE, RemoteError("login1 does not let lab1 in", "try `ssh login1`")],
    ids=["away", "broke", "out"],
)
def test_after_a_line_broke_it_is_said_that_the_job_may_be_there(then: HpctoolsError) -> None:
    with pytest.raises(Unsure, match=f"not known whether .*--submission {NAME}") as unsure:
        send(Scripted(Line(None, whole=True), then), SHIPMENT)
    assert unsure.value.exit_code == then.exit_code
    with pytest.raises(
        Unfinished, match=f"so nothing was submitted now; .*--submission {NAME}"
    ) as unfinished:
        send(Scripted(Line(None), then), SHIPMENT)
    assert (unfinished.value.exit_code, type(unfinished.value)) == (then.exit_code, Unfinished)


def test_who_was_never_there_got_nothing() -> None:
    with pytest.raises(UnreachableError) as away:
        send(Scripted(AWAY), SHIPMENT)
    assert away.value is AWAY


def test_a_line_that_broke_before_the_request_was_sent_leaves_nothing_unsure() -> None:
    """Five times in the key exchange or at the login: nobody can have submitted anything."""
    session = Scripted(BROKE)
    with pytest.raises(LostConnection) as lost:
        send(session, SHIPMENT)
    assert (lost.value.message, len(session.asked)) == (BROKE.message, 5)


def test_who_is_turned_away_is_told_why_at_once() -> None:
    session = Scripted(FULL)
    with pytest.raises(TurnedAway, match=r"me in; it says:\nme: you have 2 sessions .*\n 8: login2"):
        send(session, SHIPMENT)
    assert len(session.asked) == 1


def test_a_session_that_broke_may_be_counted_for_a_while() -> None:
    """The limit is full of it: that passes, for a submission and for output that is followed."""
    assert send(Scripted(Line(None), FULL, Line(DONE)), SHIPMENT) == DONE
    assert follow(Scripted(Line(None), FULL, Line(DONE)), Wanted(NAME), lambda *_: None) == DONE
    with pytest.raises(TurnedAway):
        follow(Scripted(FULL), Wanted(NAME), lambda *_: None)


def test_a_sick_node_is_passed_over_as_long_as_there_is_another() -> None:
    roomless = SickNode("login1", "cannot make /home/lab1/hp-runs on the cluster", "free space")
    for sick, words in ((SICK, SICK.message), (roomless, f"login1: {roomless.message}")):
        session, said = Scripted(sick, Line(DONE)), list[str]()
        session.nodes, session.tell = ("login1", "login2"), said.append
        assert send(session, SHIPMENT) == DONE
        assert said == [words]
    with pytest.raises(SickNode):
        send(Scripted(SICK), SHIPMENT)


def test_a_sick_node_is_told_of_where_no_other_answers() -> None:
    """A full quota read as "login2 does not answer". But a line that broke says more."""
    for things, kind in (((SICK, AWAY), SickNode), ((BROKE, SICK, AWAY), LostConnection)):
        session = Scripted(*things)
        session.nodes = ("login1", "login2")
        with pytest.raises(kind):
            send(session, SHIPMENT)


def test_the_cluster_is_told_that_all_of_it_was_sent_before() -> None:
    """Another login node may not see what the first one did. Before its end nobody can have submitted it."""

    session = Scripted(AWAY_IN_THE_FILES, Line(None, whole=True), Line(DONE))
    sent: list[int] = []
    assert send(session, SHIPMENT, note=lambda whole: sent.append(len(session.asked))) == DONE
    assert [request.get("again") for request in session.asked] == [None, None, True]
    assert 0 <= session.asked[2]["age"] < 600
    assert sent == [2], "it is noted once"


def test_what_the_cluster_says_it_did_not_submit_leaves_nothing_unsure() -> None:
    """Another node is not told that it may have been, and the next command neither."""
    full = SickNode("login1", "cannot make /home/lab1/hp-runs on the cluster", "free space")
    session, noted = Scripted(Line(full, whole=True, unmade=True), Line(DONE, whole=True)), list[Any]()
    session.nodes = ("login1", "login2")
    assert send(session, SHIPMENT, note=lambda **what: noted.append(what)) == DONE
    assert [request.get("again") for request in session.asked] == [None, None]
    assert noted == [{"whole": True}, {"unmade": True}, {"whole": True}]


@pytest.mark.parametrize(
    ("earlier", "ages"),
    [(Earlier(True), [None, 172800.0]), (Earlier(True, 1000.0 - 60), [60.0, 172860.0])],
    ids=["a person's own id", "repeated"],
)
def test_how_long_ago_it_was_is_told_as_of_each_attempt(
    monkeypatch: pytest.MonkeyPatch, earlier: Earlier, ages: list[float | None]
) -> None:
    """Two days of a closed lid lie between. Without an age a node of another home looks once, and submits."""
    clock = [1000.0]
    monkeypatch.setattr(sending, "time", SimpleNamespace(time=lambda: clock[0]))
    session = Scripted(Line(None, whole=True), Line(DONE))
    session.sleep = lambda seconds: clock.append(clock.pop() + (172800.0 if seconds else 0.0))
    assert send(session, SHIPMENT, earlier=earlier) == DONE
    assert [request["again"] for request in session.asked] == [True, True]
    assert [request.get("age") for request in session.asked] == ages


def test_a_trial_that_is_tried_again_is_another_one() -> None:
    """Its first attempt may not have removed its folder yet; whatever came of it, nothing was submitted."""
    session = Scripted(Line(None), Line(DONE))
    assert send(session, TRIAL) == DONE
    first, second = (request["id"] for request in session.asked)
    assert (first, second != first, second.startswith("train-")) == (NAME, True, True)
    with pytest.raises(LostConnection):
        send(Scripted(Line(None)), TRIAL)


class Slow(Scripted):
    """A line that breaks each time; before that it brings a little more of a large file, up to a limit."""

    def __init__(self, most: int) -> None:
        super().__init__(BROKE)
        self.have, self.most = 0, most

    @contextlib.contextmanager
    def exchange(self, request: Mapping[str, Any]) -> Iterator[Any]:
        self.asked.append(request)
        yield self

    def get(self) -> Message:
        return Message({"need": [[0, self.have]]})

    def put(self, fields: Mapping[str, Any], data: bytes = b"") -> None:
        if not fields.get("end"):
            self.have = min(self.have + STEP, self.most)
            raise BROKE

    def result(self) -> Mapping[str, Any]:
        if self.have < LARGE:
            raise BROKE
        return DONE


STEP = EAGER_BYTES // 10
LARGE = 12 * STEP


def test_an_upload_goes_on_over_as_many_breaks_as_there_are() -> None:
    """Five were all that it took, however much had come in between; where nothing more comes it ends."""
    file = LocalFile("data", None, b"x" * LARGE)
    shipment = Shipment(NAME, {"op": "submit", "files": [{"size": LARGE}]}, (file,))
    assert send(Slow(LARGE), shipment) == DONE
    stuck = Slow(STEP)
    slept: list[float] = []
    stuck.sleep = slept.append
    with pytest.raises(Unfinished, match=f"--submission {NAME}"):
        send(stuck, shipment)
    assert 900 < sum(slept) < 900 * 2


class TestNodes:
    """Which login node is taken, and what the others are told to be."""

    def met(self, monkeypatch: pytest.MonkeyPatch, **found: HpctoolsError | str) -> tuple[str, list[str]]:
        """Where one gets, and what is said; `uni` has login1 and login2 in its list."""

        def connect(node: str, user: str, road: Road) -> Connection:
            thing = found[node]
            if isinstance(thing, HpctoolsError):
                raise thing
            return Connection(cast("Any", thing), HOST)

        monkeypatch.setattr(session, "connect", connect)
        said: list[str] = []
        cluster = Cluster("uni", ("login1", "login2"))
        made = Session(cluster, tuple(found), Road(None, Person(None)), said.append)
        return cast("Any", made._first().transport), said

    def test_a_stranger_that_only_the_api_names_is_passed_over(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stranger = UnknownHost("the host key of new9 is not known", "hp-submit trust new9")
        assert self.met(monkeypatch, new9=stranger, login1="login1") == ("login1", [str(stranger)])
        with pytest.raises(UnknownHost):
            self.met(monkeypatch, login1=stranger, login2="login2")
        with pytest.raises(WrongHost):
            self.met(monkeypatch, new9=WrongHost("new9 shows another host key"), login1="login1")
        with pytest.raises(UnreachableError, match="login1 does not answer"):
            self.met(monkeypatch, new9=stranger, login1=AWAY)

    def test_what_ends_it_is_the_no_of_a_node_that_is_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(TurnedAway):
            self.met(monkeypatch, login1=FULL, login2=AWAY)
        assert self.met(monkeypatch, login1=FULL, login2="login2") == (
            "login2",
            ["login1 does not let me in; it says:"],
        )

    def test_a_node_that_takes_no_key_is_passed_over(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its homes may not be mounted. Who was asked for a password is not asked by the next one, too."""
        homeless = NoKeyTaken("login1 does not let me in with key", "try `ssh login1`")
        assert self.met(monkeypatch, login1=homeless, login2="login2") == ("login2", [homeless.message])
        with pytest.raises(NoKeyTaken):
            self.met(monkeypatch, login1=homeless, login2=AWAY)
        with pytest.raises(TurnedAway):
            self.met(monkeypatch, login1=FULL, login2=homeless)
        with pytest.raises(RemoteError, match="with a password"):
            self.met(monkeypatch, login1=RemoteError("no me in with a password"), login2="login2")


def test_a_refusal_after_a_broken_line_is_certain() -> None:
    with pytest.raises(Refusal):
        send(Scripted(Line(None), Refusal("sbatch: error: invalid partition", 1)), SHIPMENT)


def test_an_answer_that_came_before_everything_was_sent_counts() -> None:
    assert send(Scripted(Line(DONE)), SHIPMENT) == DONE


class TestSilence:
    """A host that takes the connection and says nothing more."""

    @pytest.mark.parametrize("banner", [b"", b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 \x1b[31m\r\n"])
    def test_in_the_key_exchange(self, banner: bytes) -> None:
        ours, its = socket.socketpair()
        its.sendall(banner)
        with its, pytest.raises(UnreachableError, match="speaks no SSH") as error:
            handshake(ours, HOST, ("ssh-ed25519",), 0.5)
        assert error.value.message.isprintable()

    def test_while_we_log_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """One wait, not one for each key."""

        class Hung:
            is_active = is_authenticated = lambda _: True

            def auth_publickey(self, user: str, key: object) -> list[str]:
                raise paramiko.AuthenticationException("Authentication timeout.")

        asked: list[str] = []

        def offered(*_: object) -> Iterator[Offer]:
            for name in ("one", "two"):
                asked.append(name)
                yield Offer(name, b"", cast("Any", None), set())

        monkeypatch.setattr(identities, "keys", offered)
        with pytest.raises(LostConnection, match="Authentication timeout"):
            identities.authenticate(cast("Any", Hung()), HOST, Person(None))
        assert asked == ["one"]

    @pytest.mark.parametrize("where", ["exec_command", "sendall"])
    def test_once_we_are_in(self, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
        """sshd answers no request, or takes no more bytes, and the line stays open."""
        hung_up = threading.Event()

        class Frozen:
            def settimeout(self, seconds: float) -> None: ...
            def exec_command(self, command: str) -> None:
                self.stand("exec_command")

            def sendall(self, data: bytes) -> None:
                self.stand("sendall")

            def stand(self, at: str) -> None:
                if at == where:
                    assert hung_up.wait(20)
                    raise paramiko.SSHException("Channel closed.")

            def open_session(self, timeout: float) -> Frozen:
                return self

            eof_received = closed = False
            status_event = threading.Event()

            def recv(self, size: int) -> bytes:
                return wire.GREETING

            def close(self) -> None:
                hung_up.set()

        monkeypatch.setattr(session, "BEGIN_SECONDS", 0.2)
        connection = Connection(cast("Any", Frozen()), HOST)
        with pytest.raises(LostConnection):
            Exchange(connection, Cluster("uni", ("login1",)), {"op": "status"})


@pytest.mark.parametrize(
    ("error", "said", "code"),
    [
        ({"message": "no room", "remedy": "free some", "code": 3}, "no room", 3),
        ({"message": "no room", "code": "three"}, "no room", 1),
        ({"message": "no room", "code": None}, "no room", 1),
        ({"message": "no room", "code": 0}, "no room", 1),
        ({"code": 10**9}, "does not say why", 1),
        ("no room", "no room", 1),
        (["no room"], "no room", 1),
        (True, "True", 1),
    ],
)
def test_whatever_another_release_calls_an_error_is_one(error: object, said: str, code: int) -> None:
    for answer, kind in (({"error": error}, HpctoolsError), ({"refused": _as_refusal(error)}, Refusal)):
        with pytest.raises(kind) as failure:
            session._raise_what_it_says(Message(answer))
        assert failure.value.exit_code == code
        assert kind is Refusal or said in str(failure.value)


def _as_refusal(error: object) -> object:
    return {**error, "stderr": "sbatch: error"} if isinstance(error, dict) else error


class Answered:
    """A channel whose command has answered and ended by the time that more is sent to it."""

    closed = eof_received = True
    exit_status = 0

    def __init__(self, said: bytes) -> None:
        self.said = said
        self.status_event = threading.Event()
        self.status_event.set()

    def settimeout(self, seconds: float) -> None: ...

    def exec_command(self, line: str) -> None: ...

    def recv(self, size: int) -> bytes:
        found, self.said = self.said[:size], self.said[size:]
        return found

    def recv_stderr_ready(self) -> bool:
        return False

    def sendall(self, data: bytes) -> None:
        if b'"op"' not in data:
            raise OSError("Socket is closed")


def answered(said: bytes) -> Exchange:
    transport = SimpleNamespace(open_session=lambda timeout: Answered(said), close=lambda: None)
    connection = SimpleNamespace(settings=HOST, transport=transport)
    return Exchange(cast("Any", connection), Cluster("uni", ("login1",)), {"op": "submit"})


def test_who_has_answered_before_it_has_read_all_is_not_sick() -> None:
    """The job was there already: nothing more is read."""
    exchange = answered(wire.GREETING + b'{"result":{"job_id":7}}\n')
    with pytest.raises(LostConnection):
        exchange.put({"end": True})
    assert exchange.result() == {"job_id": 7}


def test_who_ends_without_a_greeting_is_told_in_its_words() -> None:
    with pytest.raises(SickNode, match="login1 ended the session before `hp-submit` began: Welcome to uni"):
        answered(b"Welcome to uni\n")


def test_whoever_greets_nobody_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell would obey the request's words. At the end of its input it ends, which a dead line does not."""
    sent: list[bytes] = []

    class Waiting(Answered):
        closed = eof_received = False

        def recv(self, size: int) -> bytes:
            raise TimeoutError

        def sendall(self, data: bytes) -> None:
            sent.append(data)

        def shutdown_write(self) -> None:
            if self.said:
                self.status_event.set()

    def waits(said: bytes) -> Any:
        channel = Waiting(said)
        channel.status_event.clear()
        transport = SimpleNamespace(open_session=lambda timeout: channel, close=lambda: None)
        connection: Any = SimpleNamespace(settings=HOST, transport=transport)
        return Exchange(connection, Cluster("uni", ("login1",)), {"op": "submit"})

    monkeypatch.setattr(session, "_END_SECONDS", 0.0)
    with pytest.raises(SickNode, match=r"ended the session before .* another shell there \(`exec zsh`\)"):
        waits(b"a shell")
    with pytest.raises(LostConnection):
        waits(b"")
    assert sent == []
