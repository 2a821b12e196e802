"""A program as the way to a host."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

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
