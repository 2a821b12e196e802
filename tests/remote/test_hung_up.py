"""A host that shows its `Banner` and is gone: whether it said no, or the line broke."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import paramiko
import pytest
from paramiko.auth_handler import AuthHandler

from hpctools.remote.identities import Person, authenticate
from hpctools.remote.ssh_config import HostSettings
from hpctools.remote.transport import CheckedTransport, LostConnection, TurnedAway, handshake

LOGIN = HostSettings("login1", "login1.uni.edu", 22, "me", agent="none")
RESET_AT_ONCE = struct.pack("ii", 1, 0)


class Gone(paramiko.ServerInterface):  # type: ignore[misc]
    """A host that goes at the first key, when what it shows to all was read."""

    def __init__(self, line: socket.socket, shown: threading.Event, *, breaks: bool) -> None:
        self.line, self.shown, self.breaks = line, shown, breaks

    def get_banner(self) -> tuple[str, str]:
        return "Authorized use only.\n", "en"

    def check_auth_publickey(self, username: str, key: object) -> int:
        assert self.shown.wait(20)
        if self.breaks:
            self.line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_ONCE)
        self.line.close()
        return int(paramiko.AUTH_FAILED)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when we have read what a host shows."""
    read, event = AuthHandler._parse_userauth_banner, threading.Event()
    monkeypatch.setattr(
        AuthHandler, "_parse_userauth_banner", lambda self, message: (read(self, message), event.set())
    )
    return event


@pytest.fixture(params=[True, False], ids=["broken", "closed"])
def met(request: pytest.FixtureRequest, shown: threading.Event) -> Iterator[tuple[bool, CheckedTransport]]:
    """Whether the line breaks, and our end of it once keys were exchanged."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        its, _ = listener.accept()
    there = paramiko.Transport(its)
    there.add_server_key(paramiko.ECDSAKey.generate())
    there.start_server(threading.Event(), Gone(its, shown, breaks=request.param))
    here = handshake(ours, LOGIN, ("ecdsa-sha2-nistp256",), 10)
    yield request.param, here
    for each in (here, there):
        each.close()


def test_a_broken_line_is_no_refusal(met: tuple[bool, CheckedTransport], tmp_path: Path) -> None:
    """It was told as one, with the banner as the reason, and not tried again; but they may be PAM's words."""
    breaks, transport = met
    paramiko.ECDSAKey.generate().write_private_key_file(str(tmp_path / "key"))
    mine = replace(LOGIN, identity_files=(tmp_path / "key",))
    kind, words = (
        (
            LostConnection,
            "login1 hung up while we logged in: .*reset.*; before that it said:\nAuthorized use only",
        )
        if breaks
        else (TurnedAway, "login1 does not let me in; it says:\nAuthorized use only")
    )
    with pytest.raises(kind, match=words):
        authenticate(transport, mine, Person(None))
