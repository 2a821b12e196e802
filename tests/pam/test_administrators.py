"""Administrators on a login node: its agent is told of them, and their login waits for nothing and nobody."""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pam import roles
from pam.settings import Settings
from tests.pam import private_pam

PROGRAMS = Path(__file__).parents[2] / "pam" / "programs"
CLAIM = {"ask": "lease", "user": "hpcadmin", "origin": "192.0.2.7"}


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[socket.socket]:
    """The agent's socket, at which nobody answers by itself."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "agent.sock"))
        server.listen()
        server.settimeout(20)
        yield server


def heard(agent: socket.socket) -> dict[str, str]:
    """What the next one tells, who is answered as an administrator."""
    connection, _ = agent.accept()
    with connection, connection.makefile("rb") as lines:
        found: dict[str, str] = json.loads(lines.readline())
        connection.sendall(b'{"granted": true, "message": ""}\n')
    return found


def tell(stat: str, path: Path) -> subprocess.Popen[bytes]:
    for name in ("administrator-entered", "session_limit.py"):  # what Python compiles stays beside them
        shutil.copy(PROGRAMS / name, path.parent)
    env = {"PAM_USER": "hpcadmin", "PAM_RHOST": "192.0.2.7"}
    return subprocess.Popen([path.with_name("administrator-entered"), stat, path], env=env)


def stat_of(pid: int, name: str, parent: int | None = None) -> str:
    """As the kernel tells of a process, called otherwise; `parent` makes it another one's child."""
    pid_and_name, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    fields = rest.split()
    fields[1] = fields[1] if parent is None else str(parent)
    return f"{pid_and_name.partition(' ')[0]} ({name}) {' '.join(fields)}"


def start_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def test_a_session_is_told_by_its_name(agent: socket.socket, tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as session:
        with tell(stat_of(session.pid, "sshd-session"), tmp_path / "agent.sock") as done:
            assert heard(agent) == {**CLAIM, "claim": f"{session.pid}-{start_of(session.pid)}"}
        session.kill()
    assert done.returncode == 0


@pytest.mark.parametrize("serves", [True, False])
def test_a_process_that_asked_and_is_gone_stands_for_its_parent_if_that_serves_the_session(
    agent: socket.socket, tmp_path: Path, serves: bool
) -> None:
    """By keyboard-interactive a child asks. A session so short that it is over is told by its own name."""
    sshd = shutil.copy("/bin/sleep", tmp_path / ("sshd" if serves else "systemd"))
    with subprocess.Popen([sshd, "60"]) as parent, subprocess.Popen(["sleep", "60"]) as asked:
        stat, start = stat_of(asked.pid, "sshd", parent.pid), start_of(asked.pid)
        asked.kill()
        asked.wait()
        named = f"{parent.pid}-{start_of(parent.pid)}" if serves else f"{asked.pid}-{start}"
        with tell(stat, tmp_path / "agent.sock"):
            assert heard(agent)["claim"] == named
        parent.kill()


@pytest.mark.parametrize("stat", ["python3", "", "no agent"])
def test_a_trial_of_the_stack_is_no_session_and_what_fails_harms_nobody(
    agent: socket.socket, tmp_path: Path, stat: str
) -> None:
    told = {"python3": stat_of(os.getpid(), "python3"), "no agent": stat_of(os.getpid(), "sshd")}
    path = tmp_path / ("none" if stat == "no agent" else "agent.sock")
    assert tell(told.get(stat, stat), path).wait(20) == 0
    agent.setblocking(False)
    with pytest.raises(BlockingIOError):
        agent.accept()


@pytest.mark.system  # mount namespaces need root
@pytest.mark.parametrize("program", ["hangs", "is missing"])
def test_libpam_lets_administrators_in_and_waits_for_nothing(tmp_path: Path, program: str) -> None:
    """Others are refused by the limit as ever, and nothing runs for them that is for administrators."""
    folder = tmp_path / "programs"
    folder.mkdir()
    said, ended = pipe(tmp_path / "said"), pipe(tmp_path / "ended")
    if program == "hangs":
        words = f'echo "$PAM_USER $2" >{tmp_path}/said; read word <{tmp_path}/ended'
        script(folder / "administrator-entered", words)
    script(folder / "session-limit", "exit 77")
    settings = Settings(users=("daemon",), agent_socket="/run/a.sock")
    rules = roles.additions("login", settings, roles.Place("sshd", str(folder))).first
    text = "".join(f"{rule}\n" for rule in (*rules, "account required pam_permit.so"))
    case = {
        "files": {"case": text},
        "ask": [["case", user, "account"] for user in ("nobody", "root", "daemon")],
    }
    argv = [sys.executable, str(Path(__file__).with_name("libpam_cases.py"))]
    done = private_pam.run(tmp_path, argv, json.dumps([case]), limit=30)
    ((nobody, root, daemon),) = json.loads(done.stdout)
    assert (nobody != 0, root, daemon) == (True, 0, 0)
    if program == "hangs":
        assert sorted([line(said), line(said)]) == ["daemon /run/a.sock\n", "root /run/a.sock\n"]
    os.close(ended)
    os.close(said)


def pipe(path: Path) -> int:
    """A named pipe that nobody waits for to be opened."""
    os.mkfifo(path)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK)


def line(pipe: int) -> str:
    """The next line that comes through a pipe."""
    text = b""
    while not text.endswith(b"\n") and select.select([pipe], [], [], 20)[0]:
        text += os.read(pipe, 1)
    return text.decode()


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
