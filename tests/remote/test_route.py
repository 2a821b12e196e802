"""A program as the way to a host."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hpctools.errors import RemoteError
from hpctools.remote import route
from hpctools.remote.identities import Person
from hpctools.remote.route import Road

_LAPTOP = """
import os, signal, sys
from hpctools.remote import route
from hpctools.remote.ssh_config import HostSettings

signal.signal(signal.SIGINT, lambda *_: None)
wanted = HostSettings("a", "a", 22, "me", proxy_command='sh -c "echo asks >/dev/tty && exec cat"')
closers = []
stream = route._through_program(wanted, closers)
stream.settimeout(20)
stream.sendall(b"before")
assert stream.recv(6) == b"before", "it has no terminal"
os.killpg(0, signal.SIGINT)
stream.sendall(b"after")
print(stream.recv(5).decode())
for close in closers:
    close()
"""


def test_a_program_can_ask_on_the_terminal_and_outlives_ctrl_c(tmp_path: Path) -> None:
    laptop = tmp_path / "laptop.py"
    laptop.write_text(_LAPTOP)
    # script's shell, which Ctrl-C would end as well, gives way: dash (no $SHELL) does not by itself.
    inner = f"exec {shlex.join([sys.executable, str(laptop)])}"
    done = subprocess.run(
        ["script", "-qec", inner, "/dev/null"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout.split() == ["asks", "after"], done.stdout
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("word", "host", "port", "name"),
    [
        ("gate", "gate", 2200, "gate"),
        ("me@gate:2222", "gate", 2222, "gate:2222"),
        ("ssh://me@[2001:db8::1]:2222", "2001:db8::1", 2222, "[2001:db8::1]:2222"),
        ("[2001:db8::1]", "2001:db8::1", 2200, "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1", 2200, "2001:db8::1"),
        ("me@[::1]:2222", "::1", 2222, "[::1]:2222"),
        ("::1", "::1", 2200, "::1"),
    ],
)
def test_a_jump_host_keeps_the_port_it_is_named_with(
    tmp_path: Path, word: str, host: str, port: int, name: str
) -> None:
    """Where it is not known, `hp-submit trust` is to look there."""
    (tmp_path / "config").write_text("Port 2200\n")
    found = route._hop(word, Road(tmp_path / "config", Person(None)))
    assert (found.host, found.port, found.name) == (host, port, name)


def test_a_jump_host_with_a_number_that_is_no_port_says_where_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(RemoteError, match=r"^ProxyJump of ~/.ssh/config: 'gate:99999' names port 99999"):
        route._hop("gate:99999", Road(tmp_path / "config", Person(None)))
