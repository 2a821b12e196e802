"""What a command waits for once a cluster was there, and for how long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import pytest

from hpctools.errors import HpctoolsError, RemoteError, UnreachableError
from hpctools.remote import session
from hpctools.remote.clusters import Cluster
from hpctools.remote.following import Wanted, follow
from hpctools.remote.host_keys import UnknownHost, WrongHost
from hpctools.remote.identities import Person
from hpctools.remote.route import Road
from hpctools.remote.sending import EAGER_BYTES, Unfinished, send
from hpctools.remote.session import Session
from hpctools.remote.shipping import LocalFile, Shipment
from hpctools.remote.ssh_config import SshFailed
from hpctools.remote.transport import HungUp, NoKeyTaken, NotSigned
from hpctools.remote.wire import Message
from tests.remote.test_session import AWAY, BROKE, DONE, FULL, NAME, SICK, Line, Scripted

LOCKED = NotSigned("login1 does not let me in with key, which did not sign", "try `ssh login1`")
GONE = NoKeyTaken("login1 does not let me in with no key", "try `ssh login1`")
DEAF = HpctoolsError("slurmctld does not answer", "try again later")
PASSING = [AWAY, FULL, GONE, LOCKED, SICK, SshFailed("ssh cannot read its configuration"), DEAF]
LASTING = [
    UnknownHost("who is login1?"),
    WrongHost("login1 shows another key"),
    RemoteError("no to a password"),
]
WRONG = HpctoolsError("that array writes several files", "follow one of its tasks")
WRONG.exit_code = 2


class Met(Scripted):
    """A session that keeps what it sleeps and says; before each attempt keys and nodes are looked at."""

    def __init__(self, *things: HpctoolsError | Line) -> None:
        super().__init__(*things)
        self.slept, self.heard = list[float](), list[str]()
        self.sleep, self.tell = self.slept.append, self.heard.append

    @contextmanager
    def exchange(self, request: Mapping[str, Any]) -> Iterator[Any]:
        assert (self._sick, self.road.person.unable) == (set(), set()), "they may be sound by now"
        try:
            with super().exchange(request) as found:
                yield found
        except NotSigned:
            self.road.person.unable.add(b"a key")
            raise


class Output(Line):
    """Some output, and then the line breaks."""

    def __init__(self, offset: int = 0, data: bytes = b"epoch 1") -> None:
        super().__init__(None)
        self.left = [Message({"path": "out", "offset": offset}, data)]

    def get(self) -> Message:
        if not self.left:
            raise BROKE
        return self.left.pop()


def followed(line: Session) -> tuple[Mapping[str, Any], bytes]:
    got: list[bytes] = []
    return follow(line, Wanted(NAME, follow=True), lambda _, data: got.append(data)), b"".join(got)


@pytest.mark.parametrize("begun", [Output, lambda: Line(None)], ids=["output", "silence"])
@pytest.mark.parametrize("error", PASSING, ids=lambda error: type(error).__name__)
def test_what_may_pass_is_waited_for_once_it_was_there(error: HpctoolsError, begun: Any) -> None:
    """It had been there for hours, and the first attempt that failed otherwise than the line was the end."""
    line = Met(begun(), error, error, Line(DONE))
    assert followed(line)[0] == DONE
    said = [text for text in line.heard if text.startswith(error.message)]
    assert (len(said), len(line.slept)) == (1, 3)


@pytest.mark.parametrize("error", [*PASSING, *LASTING], ids=lambda error: type(error).__name__)
def test_from_the_start_nothing_is_waited_for(error: HpctoolsError) -> None:
    line = Met(error)
    with pytest.raises(type(error)):
        followed(line)
    assert (len(line.asked), line.slept) == (1, [])


@pytest.mark.parametrize("error", LASTING, ids=lambda error: type(error).__name__)
def test_who_a_host_is_does_not_pass_and_a_wrong_password_is_given_once(error: HpctoolsError) -> None:
    line = Met(Output(), error)
    with pytest.raises(type(error)):
        followed(line)
    assert len(line.asked) == 2


@pytest.mark.parametrize(
    ("error", "begun"), [(BROKE, False), (AWAY, True), (HungUp("login1 hung up while we logged in"), True)]
)
def test_a_break_before_the_first_word_is_waited_for(error: HpctoolsError, begun: bool) -> None:
    """A line that breaks while the greeting is awaited; after hp-submit, whatever may pass."""
    line = Met(error, Line(DONE))
    assert follow(line, Wanted(NAME, follow=True, begun=begun), lambda *_: None) == DONE
    assert len(line.slept) == 1


def test_a_question_that_is_wrong_is_not_asked_again() -> None:
    """As the cluster's side says of an array that hp-submit has just submitted."""
    line = Met(WRONG, Line(DONE))
    with pytest.raises(HpctoolsError, match="several files"):
        follow(line, Wanted(NAME, follow=True, begun=True), lambda *_: None)
    assert (len(line.asked), line.slept) == (1, [])


def test_a_question_that_was_answered_before_is_asked_again() -> None:
    """On another node the folder of the runs may not be mounted yet."""
    line = Met(Output(), WRONG, Line(DONE))
    assert followed(line)[0] == DONE


def test_a_host_that_hangs_up_at_the_door_is_not_waited_for() -> None:
    line = Met(HungUp("login1 hung up while we logged in"), Line(DONE))
    with pytest.raises(HungUp):
        followed(line)


def test_ctrl_c_ends_it() -> None:
    def ctrl_c(_: float) -> None:
        raise KeyboardInterrupt

    line = Met(Output(), AWAY)
    line.sleep = ctrl_c
    with pytest.raises(KeyboardInterrupt):
        followed(line)


@pytest.mark.parametrize(
    ("error", "longest", "least"),
    [(AWAY, 15.0, 1.0), (DEAF, 60.0, 1.0), (GONE, 60.0, 60.0), (LOCKED, 60.0, 60.0)],
    ids=["away", "deaf", "gone", "locked"],
)
def test_it_waits_a_quarter_of_an_hour_and_asks_for_a_key_once_a_minute(
    error: HpctoolsError, longest: float, least: float
) -> None:
    """Sites count logins that fail."""
    line = Met(Output(), error)
    with pytest.raises(type(error)):
        followed(line)
    pauses = line.slept[1:]
    assert 900 - longest < sum(line.slept) <= 900
    assert (pauses[-1], min(pauses) >= least, pauses == sorted(pauses)) == (longest, True, True)
    assert len(line.heard) == 2


def test_what_came_is_a_new_beginning() -> None:
    line = Met(Output(), *[AWAY] * 29, Output(7, b", 2"), *[AWAY] * 40, Line(DONE))
    assert followed(line) == (DONE, b"epoch 1, 2")
    assert line.slept[29:33] == [15.0, 1.0, 2.0, 4.0]


def test_nodes_that_are_passed_over_are_told_once_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(node: str, *_: Any) -> Any:
        raise UnreachableError(f"{node} does not answer")

    monkeypatch.setattr(session, "connect", connect)
    said: list[str] = []
    made = Session(Cluster("uni", ("a", "b")), ("a", "b"), Road(None, Person(None)), said.append)
    for _ in range(3):
        with pytest.raises(UnreachableError):
            made._first()
    assert said == ["a does not answer", "b does not answer"]
    broken: Any = type("Broken", (), {"settings": type("Named", (), {"alias": "a"}), "close": lambda _: None})
    made._connection = cast("Any", broken())
    made.drop()
    with pytest.raises(UnreachableError):
        made._first()
    assert len(said) == 4


class Upload(Line):
    """An upload whose line takes some pieces, none of which arrives, and breaks."""

    def __init__(self, pieces: int) -> None:
        super().__init__(None)
        self.pieces = pieces

    def get(self) -> Message:
        return Message({"need": [[0, 0], [1, 0], [2, 0]]})

    def put(self, fields: Mapping[str, Any], data: bytes = b"") -> None:
        self.pieces -= 1
        if self.pieces < 0:
            raise BROKE


FILES = tuple(LocalFile(f"data{number}", None, b"x" * EAGER_BYTES) for number in range(3))
UPLOAD = Shipment(NAME, {"op": "submit", "files": [{"size": EAGER_BYTES}] * 3}, FILES)


@pytest.mark.parametrize("error", PASSING[:-1], ids=lambda error: type(error).__name__)
def test_an_upload_waits_for_a_line_that_broke(error: HpctoolsError) -> None:
    """After twelve seconds without a network it gave up."""
    assert send(Met(Upload(0), *[error] * 14, Line(DONE)), UPLOAD) == DONE
    with pytest.raises(type(error)):
        send(Met(error), UPLOAD)
    with pytest.raises(Unfinished, match="nothing was submitted now"):
        send(Met(Upload(0), error), UPLOAD)


def test_what_went_out_before_the_line_broke_counts() -> None:
    """What is left was measured once, as a connection began."""
    away = [AWAY] * 50
    assert send(Met(Upload(0), *away, Upload(2), *away, Line(DONE)), UPLOAD) == DONE


def test_what_went_out_is_counted_once() -> None:
    """A line that takes some bytes and brings none is no progress, however often it does."""
    away = [AWAY] * 50
    with pytest.raises(Unfinished):
        send(Met(Upload(2), *away, Upload(1), *away, Line(DONE)), UPLOAD)


def test_what_the_cluster_says_of_an_upload_is_not_waited_for() -> None:
    line = Met(Upload(0), HpctoolsError("there is no room for data", "free some"))
    with pytest.raises(Unfinished, match="no room for data"):
        send(line, UPLOAD)
    assert len(line.asked) == 2
