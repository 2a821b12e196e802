"""Words on terminals, and the end of sessions, for real."""

from __future__ import annotations

import os
import pty
import subprocess
import termios
from pathlib import Path

from hpctools.login.agent.processes import parse
from hpctools.login.agent.telling import end, framed, tell, typed_at


def test_a_message_is_framed_wrapped_and_harmless() -> None:
    told = framed("new kernel\x1b]0;pwned\x07 \u009b31m and so on " + "word " * 20, "login-1")
    assert told.startswith(
        "\r\n\a** Message of login-1 to you:\r\n  new kernel ]0;pwned   31m and so on word "
    )
    assert "\x1b" not in told
    assert "\u009b" not in told
    assert max(len(line) for line in told.split("\r\n")) <= 80


def test_lines_of_a_message_stay_lines() -> None:
    told = framed("you have 2 sessions:\n  1: login-1\n\n  2: login-2\x1b[2J", "login-1")
    assert told.split("\r\n")[2:] == [
        "  you have 2 sessions:", "    1: login-1", "  ", "    2: login-2 [2J", "", "",
    ]  # fmt: skip


def test_terminals_are_told_and_others_are_not_touched() -> None:
    """A real terminal gets it; a file, a path that leads elsewhere and one that is not there get nothing."""
    master, slave = pty.openpty()
    try:
        name = os.ttyname(slave).removeprefix("/dev/")
        count = tell([name, "null", "../etc/passwd", "pts/9999999"], "closing soon", "login-1")
        assert tell([name], "not theirs", "login-1", owner=os.fstat(slave).st_uid + 1) == 0
        told = os.read(master, 4096).decode()
    finally:
        os.close(slave)
        os.close(master)
    assert count == 1
    assert "** Message of login-1 to you:" in told
    assert "  closing soon" in told
    assert "not theirs" not in told


def test_a_terminal_that_somebody_stopped_is_not_waited_for() -> None:
    """Control-S: nothing is taken any more once the terminal's buffer is full, and nobody was told then."""
    master, slave = pty.openpty()
    try:
        termios.tcflow(slave, termios.TCOOFF)
        name = os.ttyname(slave).removeprefix("/dev/")
        assert [tell([name], "x" * 60_000, "login-1") for _ in range(3)] == [0, 0, 0]
    finally:
        os.close(slave)
        os.close(master)


def test_what_is_typed_is_seen() -> None:
    master, slave = pty.openpty()
    try:
        name = os.ttyname(slave).removeprefix("/dev/")
        os.utime(slave, (1_000_000, 1_000_000))
        assert typed_at([name, "pts/9999999"]) == {name: 1_000_000.0}
    finally:
        os.close(slave)
        os.close(master)


def test_a_session_ends_and_another_process_with_its_number_does_not() -> None:
    with subprocess.Popen(["sleep", "600"]) as child:
        try:
            started = parse(Path(f"/proc/{child.pid}/stat").read_text(), 0, "").started
            assert not end(child.pid, started - 1)
            assert child.poll() is None
            assert end(child.pid, started)
            assert child.wait(10) == -15
        finally:
            child.kill()
    assert not end(child.pid, started)
