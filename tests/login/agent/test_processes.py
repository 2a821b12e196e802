"""Processes as the kernel tells of them."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from hpctools.login.agent.processes import TICKS, Process, below, children, parse, read_processes
from tests.login.node_processes import process

RECORDED = (
    "812 (tmux: server (1)) S 1 812 812 0 -1 4194560 957 35 0 0 7 5 11 3 20 0 1 0 90210 10842112 1036 "
    "18446744073709551615 1 1 0 0 0 0 0 528386 134433281 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
)


def test_a_recorded_line_whose_name_has_blanks_and_brackets() -> None:
    page = os.sysconf("SC_PAGE_SIZE")
    wanted = Process(812, 1, 1001, 90210, 26, 1036 * page, "tmux: server (1)", "tmux", inherited_ticks=14)
    assert parse(RECORDED, 1001, "tmux") == wanted
    assert wanted.key == "812-90210"


@pytest.mark.parametrize(
    ("number", "terminal"),
    [
        (0, ""),
        (34816, "pts/0"),
        (34819, "pts/3"),
        (136 << 8 | 44 | 1 << 20, "pts/300"),
        (137 << 8 | 1, "pts/257"),
        (4 << 8 | 1, ""),
        (144 << 8, ""),
    ],
)
def test_a_terminal_by_its_number(number: int, terminal: str) -> None:
    text = RECORDED.replace(" 812 812 0 ", f" 812 812 {number} ")
    assert parse(text, 1001, "tmux").terminal == terminal


def test_the_terminal_of_a_process_of_this_machine() -> None:
    master, slave = pty.openpty()
    code = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); print('there', flush=True); input()"
    try:
        with subprocess.Popen(
            [sys.executable, "-c", code], stdin=slave, stdout=subprocess.PIPE, start_new_session=True
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"there\n"
            found = {each.pid: each.terminal for each in read_processes()}
            child.kill()
        assert found[child.pid] == os.ttyname(slave).removeprefix("/dev/")
    finally:
        os.close(slave)
        os.close(master)


@pytest.mark.parametrize("text", ["", "812 tmux S 1", RECORDED[:60]])
def test_what_is_no_such_line_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no line of"):
        parse(text, 0, "")


def test_the_processes_of_this_machine() -> None:
    """A child of ours is there with its title, below us; its ticks are less than a second's."""
    with subprocess.Popen(["sleep", "600"]) as child:
        try:
            found = read_processes()
            (seen,) = [each for each in found if each.pid == child.pid]
            inside = [each.pid for each in below(os.getpid(), children(found))]
        finally:
            child.kill()
    assert (seen.parent, seen.uid, seen.name, seen.title) == (os.getpid(), os.getuid(), "sleep", "sleep 600")
    assert seen.cpu_ticks < TICKS
    assert child.pid in inside
    (own,) = [each for each in found if each.pid == os.getpid()]
    assert sys.executable.rpartition("/")[2][:6] in own.title


def test_a_circle_of_parents_ends() -> None:
    found = children([process(2, 3), process(3, 2)])
    assert [each.pid for each in below(2, found)] == [3]


LOOKS = """\
from hpctools.errors import HpctoolsError
from hpctools.login.agent.processes import check_seen
try:
    check_seen()
except HpctoolsError as error:
    print(error)
else:
    print("seen")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
@pytest.mark.parametrize(
    ("groups", "words"), [("--clear-groups", "is mounted with hidepid"), ("--groups=54321", "seen")]
)
def test_an_agent_that_sees_nobody_says_so(groups: str, words: str) -> None:
    """Root with the unit's capabilities, in namespaces of its own whose /proc hides processes."""
    mount = 'mount -t proc -o hidepid=2,gid=54321 proc /proc || exit 77; "$@"; exit $?'
    few = ["setpriv", "--bounding-set=-all,+kill,+dac_override", groups]
    done = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "sh", "-c", mount, "sh", *few, sys.executable, "-c", LOOKS],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if done.returncode == 77:
        pytest.skip(f"no mount of /proc here: {done.stderr.strip()}")
    assert words in done.stdout, done.stderr


def test_nobody_fills_the_agents_memory_with_command_lines() -> None:
    """systemd lets it have 512 MB: some hundred processes with arguments of 2 MB each, and it was killed."""
    argv = ["sh", "-c", "echo; read line", *["x" * 100_000] * 12]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()  # it runs: before, the kernel knows no command line of it
            (seen,) = [each for each in read_processes() if each.pid == child.pid]
        finally:
            child.kill()
    assert seen.title.startswith("sh -c echo; read line xxx")
    assert len(seen.title) <= 8192
