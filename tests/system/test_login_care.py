"""Care for people on login nodes, end to end: idle terminals, and a penalty that eases; all of it real."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import pytest

from hpctools.login.agent.processes import TICKS, Process, read_processes
from hpctools.sandbox import cgroups
from tests.system.harness import until
from tests.system.login_rig import LoginRig, login_nodes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
SPARING, STRICT, CARING = "spare-1", "strict-1", "care-1"
AFTER, WARNING = 60, 30
"""Seconds: the least that a site may say."""
IDLE = {"after": "00:01:00", "warning": "00:00:30"}
WARNED = "It will be closed in 30 seconds; press a key to keep it."
CARE = {"cpus": 0.08, "patience": "00:00:10", "penalty": "00:00:10", "levels": [0.5, 0.25]}
BRANCH = f"hpctools-care-{os.getpid()}"
# The sandbox has no branch of the hierarchy that slows down: the caring node gets one.
SLOWING = f"""\
if [ "$1" = {CARING} ] && [ "{cgroups.version()}" = v1 ]; then
  mkdir /sys/fs/cgroup/cpu && mount -t cgroup -o cpu cgroup /sys/fs/cgroup/cpu
  mkdir -p "/sys/fs/cgroup/cpu/{BRANCH}" && mount --bind "/sys/fs/cgroup/cpu/{BRANCH}" /sys/fs/cgroup/cpu
fi
"""


class CareRig(LoginRig):
    """Login nodes whose agents look after idle sessions, or after who uses too much."""

    before_all: ClassVar[str] = SLOWING

    def besides(self, node: str) -> Mapping[str, object]:
        if node == CARING:
            return {"care": CARE}
        return {"idle": {**IDLE, "spare_multiplexed": node == SPARING}}

    def sit_down(self, node: str, user: str, *words: str) -> Terminal:
        """Log in at a terminal."""
        service, file = f"sshd-{node}", self.service.folder / f"{node}-{user}-{len(self.sessions)}.screen"
        argv, pipe = self.command(service, user, "-tt", *words), subprocess.PIPE
        with file.open("w") as screen:
            ssh = subprocess.Popen(argv, stdin=pipe, stdout=screen, stderr=screen, text=True)
        self.sessions.append(ssh)
        return Terminal(ssh, file, self.cluster.sandbox.layout.logs / f"{service}.log")


class Terminal:
    """An ssh with a terminal, and what is on its screen.

    Attributes:
        ssh: the client.
    """

    def __init__(self, ssh: subprocess.Popen[str], screen: Path, log: Path) -> None:
        self.ssh, self._screen, self._log = ssh, screen, log
        self._typed = 0.0

    def type_now_and_then(self, is_enough: bool) -> bool | None:
        """Press a key when some seconds have passed since the last one, as somebody at work does."""
        if time.monotonic() - self._typed >= 5:
            self.type("\n")
        return is_enough or None

    def type(self, text: str) -> None:
        """Press keys."""
        self._typed = time.monotonic()
        assert self.ssh.stdin is not None
        self.ssh.stdin.write(text)
        self.ssh.stdin.flush()

    @property
    def screen(self) -> str:
        """All that was ever on it, with single blanks."""
        return " ".join(self._screen.read_text(errors="replace").split())

    def until_seen(self, words: str, limit: float = 30) -> None:
        """Wait until something is on the screen."""
        try:
            until(lambda: words in self.screen or None, limit)
        except AssertionError as error:
            said = self._log.read_text(errors="replace")[-2000:]
            raise AssertionError(f"{error}: {words!r} in {self.screen[-2000:]!r}\n{said}") from None

    @property
    def is_open(self) -> bool:
        """Whether the session goes on."""
        return self.ssh.poll() is None


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory, site_file: Path, slurm_release: str) -> Iterator[CareRig]:
    """Three login nodes and the service."""
    folder, nodes = tmp_path_factory.mktemp("care"), dict.fromkeys((SPARING, STRICT, CARING), "open")
    try:
        with login_nodes(folder, site_file, slurm_release, nodes, CareRig) as made:
            assert isinstance(made, CareRig)
            yield made
    finally:
        until(lambda: _is_removed(Path("/sys/fs/cgroup/cpu", BRANCH)) or None, 30)


def _is_removed(top: Path) -> bool:
    for folder, _, _ in os.walk(top, topdown=False):
        with suppress(OSError):  # a process of it is ending
            Path(folder).rmdir()
    return not top.is_dir()


@pytest.fixture(autouse=True)
def _leave(rig: CareRig) -> Iterator[None]:
    yield
    rig.leave()


@pytest.mark.long
def test_an_idle_terminal_is_warned_and_closed_and_one_in_use_stays(rig: CareRig) -> None:
    """Of five: closed are the one nobody touches and, where the site does not spare it, the one at a tmux."""
    idle = rig.sit_down(SPARING, "nlp1")
    woken = rig.sit_down(SPARING, "nlp2")
    sparing_tmux = rig.sit_down(SPARING, "cv1", "TERM=xterm exec tmux new-session -s work")
    strict_tmux = rig.sit_down(STRICT, "cv2", "TERM=xterm exec tmux new-session -s work")
    typing = rig.sit_down(STRICT, "dl1")
    for user in ("nlp1", "nlp2", "cv1", "cv2", "dl1"):
        rig.until_known(user, 1)

    until(lambda: typing.type_now_and_then(WARNED in idle.screen), AFTER + 30)
    assert f"** Message of {SPARING} to you: Nothing has happened in your session on pts/" in idle.screen
    assert idle.is_open
    woken.until_seen(WARNED)
    woken.type("\n")
    strict_tmux.until_seen(WARNED)
    until(lambda: typing.type_now_and_then(not idle.is_open), WARNING + 30)
    assert idle.ssh.wait(10) == 255
    assert strict_tmux.ssh.wait(WARNING) == 255
    for still in (woken, typing):
        still.type("echo still-$((40 + 2))\n")
        still.until_seen("still-42")
    assert sparing_tmux.is_open
    assert WARNED not in sparing_tmux.screen + typing.screen
    for node, user in ((SPARING, "cv1"), (STRICT, "cv2")):
        assert rig.ssh(f"sshd-{node}", user, "tmux has-session -t work && tmux kill-server").returncode == 0


def burning(mark: str) -> Process | None:
    """The program of somebody's that takes all it gets."""
    return next((p for p in read_processes() if p.name == "sh" and p.title.endswith(mark)), None)


def test_who_uses_too_much_is_slowed_down_told_why_and_let_go(rig: CareRig) -> None:
    """All that the machine gives where little is a part (it may be busy); and once more, since it goes on."""
    if cgroups.version() != "v1" or not Path("/sys/fs/cgroup/cpu/tasks").exists():
        pytest.skip("the kernel that tests run on slows nobody down in a branch of theirs")
    terminal = rig.sit_down(CARING, "nlp1", f"exec sh -c 'while :; do :; done # {BRANCH}'")
    program = until(lambda: burning(BRANCH))
    folder = Path("/sys/fs/cgroup/cpu", BRANCH, "hpctools-login", f"user-{program.uid}")
    terminal.until_seen("the limit eases by itself in 10 seconds.", 100)
    assert f"** Message of {CARING} to you: You have used " in terminal.screen
    assert f"of this login node, most of it by sh (process {inside(program)})" in terminal.screen
    assert "At length 0.08 processors and 16 GiB are one person's part" in terminal.screen
    assert "Your programs go on with 0.04 processors" in terminal.screen
    assert used_until(terminal, program, "This login node's limit on your programs is over.") < 0.07
    terminal.until_seen("Your programs go on with 0.02 processors", 100)
    assert used_until(terminal, program, "is eased: 0.04 processors") < 0.04
    until(lambda: terminal.screen.count("This login node's limit on your programs is over.") > 1 or None, 30)
    until(lambda: (folder / "cpu.cfs_quota_us").read_text() == "-1\n" or None, 10)


def inside(program: Process) -> int:
    """The process's number on its node, whose namespace has others."""
    status = Path(f"/proc/{program.pid}/status").read_text()
    return int(status.partition("NSpid:")[2].splitlines()[0].split()[-1])


def used_until(terminal: Terminal, program: Process, words: str) -> float:
    """Processors that a program uses on average until something is on the screen."""

    def look() -> Process:
        return next(each for each in read_processes() if each.key == program.key)

    before, begin = look(), time.monotonic()
    terminal.until_seen(words, 30)
    return (look().cpu_ticks - before.cpu_ticks) / TICKS / (time.monotonic() - begin)
