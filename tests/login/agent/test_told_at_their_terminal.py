"""Somebody at a terminal of Session Manager's, for real: root's worker, a terminal, a shell of theirs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from hpctools.login.agent.daemon import NodeHands
from hpctools.login.agent.sample import Sample, Sampler
from tests.login.agent.made_agent import FakeService, made_agent

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a worker of Session Manager's is root's")

SESSION = "uni-0a1b2c3d4e5f67890"
WORKER = """\
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.setgid(1); os.setuid(1)
    os.execv("/bin/sh", ["sh", "-c", "echo ready; read line"])
while True:
    try:
        data = os.read(terminal, 4096)
    except OSError:
        break
    os.write(1, data)
"""
ANSWER = {"taken": True, "draining": True, "why": "new kernel", "end": [SESSION]}


class OursOnly:
    """Looks at this machine, and sees nobody but our session: others at terminals are not to be disturbed."""

    def __init__(self) -> None:
        self.real = Sampler(time.monotonic, time.time, dict)

    def look(self) -> Sample:
        found = self.real.look()
        ours = tuple(each for each in found.sessions if each.key == SESSION)
        inside = tuple(process for session in ours for process in session.processes)
        return replace(found, sessions=ours, processes=inside)


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Called as the agent calls it: the session's id is its first word, here also its program's file."""
    (tmp_path / SESSION).write_text(WORKER)
    with subprocess.Popen(
        ["ssm-session-worker", SESSION], executable=sys.executable, cwd=tmp_path, stdout=subprocess.PIPE
    ) as running:
        yield running
        with suppress(ProcessLookupError):
            running.kill()


def read_until(running: subprocess.Popen[bytes], words: bytes) -> bytes:
    """What the person at the terminal sees, until these words."""
    assert running.stdout is not None
    seen, end = b"", time.monotonic() + 30
    os.set_blocking(running.stdout.fileno(), True)
    while words not in seen and time.monotonic() < end:
        seen += os.read(running.stdout.fileno(), 4096)
    return seen


def test_they_are_told_of_a_drain_and_why_their_session_ends(
    worker: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    read_until(worker, b"ready")
    words = "daemon: you have 2 sessions on the login nodes, and the limit is 2:\n  1: login-1, for 5 s"
    agent = made_agent(tmp_path, service=FakeService({**ANSWER, "tell": {SESSION: words}}))
    agent.sampler = OursOnly()  # type: ignore[assignment]
    agent.hands = NodeHands("login-1", tmp_path / "unlimited")
    agent.look()
    seen = read_until(worker, b"new kernel").decode()
    assert "  daemon: you have 2 sessions on the login nodes, and the limit is 2:\r\n    1: login-1" in (
        seen.replace("\r\r\n", "\r\n")
    )
    assert worker.poll() is None
    agent.look()
    assert worker.wait(30) == -15
