"""`hpctools sandbox exec` at a terminal: the command is the terminal's, not ours."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tests.system.harness import Cluster
from tests.terminal import Terminal

Exec = Callable[..., Terminal]
SRUN = ("srun", "-pnlp", "sh", "-c", "echo begun; exec sleep 300")


@pytest.fixture
def inside(cluster: Cluster) -> Iterator[Exec]:
    """A command inside as somebody at a terminal of ours, which says at last how it ended."""
    made: list[Terminal] = []

    def start(*argv: str, user: str = "nlp1") -> Terminal:
        root = str(cluster.sandbox.layout.root)
        words = [sys.executable, "-m", "hpctools.cli.main", "sandbox", "--state", root]
        line = [*words, "exec", "--user", user, "--", *argv]
        made.append(Terminal("bash", "-c", 'trap : INT QUIT; "$@"; echo "ended $?"', "person", *line))
        return made[-1]

    yield start
    for each in made:
        each.close()


@pytest.mark.releases
def test_srun_ends_with_two_ctrl_c_within_a_second_as_it_says_itself(inside: Exec) -> None:
    at = inside(*SRUN)
    at.sees("begun")
    at.type("\x03")
    at.sees("one more within 1 sec to abort")
    time.sleep(2.0)
    at.type("\x03")
    at.sees("one more within 1 sec to abort")
    at.type("\x03")
    at.sees("sending Ctrl-C to")
    at.sees("ended 130")


@pytest.mark.parametrize(("key", "code"), [("\x03", 130), ("\x1c", 131)])
def test_what_a_key_ends_has_a_shells_exit_status(inside: Exec, key: str, code: int) -> None:
    at = inside("sh", "-c", "ulimit -c 0; echo begun; exec sleep 300")
    at.sees("begun")
    at.type(key)
    at.sees(f"ended {code}")


def test_nothing_stays_inside_of_a_command_that_is_killed(inside: Exec, cluster: Cluster) -> None:
    at = inside("sh", "-c", "echo begun; exec sleep 4321")
    at.sees("begun")
    at.close()
    assert cluster.inside("sh", "-c", "sleep 1; pgrep -x -f 'sleep 4321'", check=False).code == 1
