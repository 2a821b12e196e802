"""A program on a person's terminal: what the terminal sends is the program's."""

from __future__ import annotations

import os
import shlex
import signal
import sys

import pytest

from hpctools.slurm import run
from tests.terminal import Terminal

TWICE = """
trap 'echo once more; trap "exit 7" INT' INT
echo begun
while :; do sleep 0.1; done
"""
ATTACHED = "import sys; from hpctools.slurm import run; code = run.attach(sys.argv[1:]); print('ended', code)"


def attached(*argv: str, ignored: int | None = None) -> Terminal:
    """A program that is attached to one."""
    return Terminal(sys.executable, "-c", ATTACHED, *argv, ignored=ignored)


def test_ctrl_c_is_the_programs_and_its_exit_status_ours() -> None:
    """As srun wants it: twice within a second. We killed it a quarter of a second after the first."""
    at = attached("sh", "-c", TWICE)
    at.sees("begun")
    at.type("\x03")
    at.sees("once more\r\n")
    at.says_nothing(1.0)
    at.type("\x03")
    at.sees("ended 7")
    at.close()


@pytest.mark.parametrize(("key", "code"), [("\x03", 130), ("\x1c", 131)])
def test_a_program_that_a_key_ends_has_a_shells_exit_status(key: str, code: int) -> None:
    at = attached("sh", "-c", "ulimit -c 0; echo begun; exec sleep 60")
    at.sees("begun")
    at.type(key)
    at.sees(f"ended {code}")
    at.close()


def test_a_program_that_is_stopped_stops_us_and_goes_on_with_us() -> None:
    at = Terminal("bash", "--norc", "--noprofile", "-i")
    words = [sys.executable, "-c", ATTACHED, "sh", "-c", "echo be''gun; read line; echo $line and over"]
    at.type(shlex.join(words) + "\n")
    at.sees("begun")
    at.type("\x1a")
    at.sees("Stopped")
    at.type("fg\nhere\n")
    at.sees("here and over")
    at.sees("ended 0")
    at.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_who_ends_us_ends_it(number: int) -> None:
    at = attached("sh", "-c", "trap 'echo heard; exit 5' TERM HUP; echo begun; sleep 60 & wait")
    at.sees("begun")
    os.kill(at.pid, number)
    at.sees("heard")
    at.sees("ended 5")
    at.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_what_is_to_be_ignored_the_program_ignores_too(number: int) -> None:
    """With nohup, or in the background of a script."""
    at = attached("sh", "-c", f"kill -{number} $$; echo lives", ignored=number)
    at.sees("lives")
    at.sees("ended 0")
    at.close()


def test_the_handlers_of_before_are_back() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGTSTP)
    before = [signal.getsignal(each) for each in numbers]
    assert run.attach(["true"]) == 0
    assert [signal.getsignal(each) for each in numbers] == before


def test_without_a_terminal_what_ends_us_ends_it() -> None:
    """`timeout -s INT`, a CI that cancels: nobody else would tell the program."""
    program = "trap 'echo heard; exit 5' INT; echo begun; while :; do sleep 0.1; done"
    code = f"import os, sys\nos.setsid()\n{ATTACHED}"
    at = run.start([sys.executable, "-c", code, "sh", "-c", program], stdout=run.PIPE)
    assert at.stdout is not None
    assert at.stdout.readline() == b"begun\n"
    at.send_signal(signal.SIGINT)
    assert at.communicate(timeout=30)[0] == b"heard\nended 5\n"


def test_where_nobody_is_told_of_ended_processes_a_program_ends_well() -> None:
    at = Terminal(sys.executable, "-c", ATTACHED, "true", ignored=signal.SIGCHLD)
    at.sees("ended 0")
    at.close()
