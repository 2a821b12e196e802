"""What a person is asked for where no key is taken: questions of the host, then a password."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import paramiko
import pytest

from hpctools.errors import RemoteError
from hpctools.remote import identities
from hpctools.remote.identities import Person, authenticate
from hpctools.remote.ssh_config import HostSettings
from hpctools.remote.transport import CheckedTransport, NoKeyTaken, NotSigned, handshake

LOGIN = HostSettings("login1", "login1.uni.edu", 22, "me", agent="none")
PASSWORD = "Password of me@login1: "


@dataclass
class Host(paramiko.ServerInterface):  # type: ignore[misc]
    """A host that takes `right` as a code (where it asks for one) and as a password."""

    allowed: str
    question: str = ""

    def get_allowed_auths(self, username: str) -> str:
        return self.allowed

    def check_auth_interactive(self, username: str, submethods: str) -> object:
        query = paramiko.InteractiveQuery("", "", (self.question, False))
        return query if self.question else paramiko.AUTH_FAILED

    def check_auth_interactive_response(self, responses: list[str]) -> int:
        return self.check_auth_password("", responses[0])

    def check_auth_password(self, username: str, password: str) -> int:
        good: int = paramiko.AUTH_SUCCESSFUL
        bad: int = paramiko.AUTH_FAILED
        return good if password == "right" else bad


Met = Callable[[Host], CheckedTransport]


@pytest.fixture
def met() -> Iterator[Met]:
    """Keys are exchanged with a host in this process."""
    made: list[paramiko.Transport] = []

    def meet(host: Host) -> CheckedTransport:
        ours, its = socket.socketpair()
        there = paramiko.Transport(its)
        there.add_server_key(paramiko.ECDSAKey.generate())
        there.start_server(threading.Event(), host)  # without an event a host that goes is an error
        here = handshake(ours, LOGIN, ("ecdsa-sha2-nistp256",), 10)
        made.extend((here, there))
        return here

    yield meet
    for each in made:
        each.close()


BOTH = "publickey,keyboard-interactive,password"


@pytest.mark.parametrize("keys", [0, 1])
@pytest.mark.parametrize(
    ("host", "answers", "asked"),
    [
        (Host(BOTH), ["right"], [PASSWORD]),
        (Host(BOTH, "Code: "), ["right"], ["Code: "]),
        (Host(BOTH, "Code: "), ["wrong", "right"], ["Code: ", PASSWORD]),
        (Host("password"), ["right"], [PASSWORD]),
        (Host("publickey,password"), ["right"], [PASSWORD]),
    ],
)
def test_a_password_comes_after_questions(
    met: Met, tmp_path: Path, host: Host, answers: list[str], asked: list[str], keys: int
) -> None:
    """A host may offer none (PasswordAuthentication alone), or have none (no PAM), or not take the answer."""
    said: list[str] = []
    transport = met(host)
    if keys:  # which the host does not know
        paramiko.ECDSAKey.generate().write_private_key_file(str(tmp_path / "key"))
    mine = replace(LOGIN, identity_files=(tmp_path / "key",))
    authenticate(transport, mine, Person(lambda prompt: (said.append(prompt), answers[len(said) - 1])[1]))
    assert (transport.is_authenticated(), said) == (True, asked)


def test_who_was_asked_nothing_may_be_let_in_elsewhere(met: Met) -> None:
    """Its homes with the keys may not be there; a person who answered is not asked by the next node, too."""
    with pytest.raises(NoKeyTaken, match="with no key"):
        authenticate(met(Host("keyboard-interactive")), LOGIN, Person(lambda _: "right"))
    said: list[str] = []
    person = Person(lambda prompt: (said.append(prompt), "wrong")[1])
    with pytest.raises(RemoteError, match="with questions of the host") as caught:
        authenticate(met(Host("publickey,keyboard-interactive", "Code: ")), LOGIN, person)
    assert (isinstance(caught.value, NoKeyTaken), said) == (False, ["Code: "])


@pytest.mark.parametrize(
    ("tried", "kind"),
    [
        ([], NoKeyTaken),
        (["id_ed25519"], NoKeyTaken),
        (["id_ed25519_sk (agent), which did not sign", "id_ed25519"], NotSigned),
        (["id_ed25519_sk (agent), which did not sign", "a password"], RemoteError),
        (["id_ed25519", "then keyboard-interactive"], RemoteError),
    ],
)
def test_a_key_that_did_not_sign_may_sign_later(tried: list[str], kind: type[RemoteError]) -> None:
    """An agent was locked, or a token not touched; a wrong password stays one."""
    found = identities._refused(LOGIN, tried)
    assert (type(found), tried == [] or tried[0] in found.message) == (kind, True)
