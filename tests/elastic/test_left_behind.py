"""An agent is killed whose workers are behind a wrapper that forks: nothing of them is left behind."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ledger_run import LedgerRun, training

from hpctools.elastic.left_behind import STARTED_BY, Mark, end_left_behind
from tests.elastic.test_run import OPTIONS, assert_same_result, lone

__all__ = ["lone"]

MARK = Mark(f"r7 12 /runs/{os.getpid()}", 12)  # tests in another process are not ours to end
IS_FOUND = {STARTED_BY: MARK.text, "SLURM_JOB_ID": "12"}


def runs(pid: int) -> bool:
    """Whether a process has not ended; one that nobody has asked for yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wrapped(*command: str) -> list[str]:
    """The command behind a shell that waits for it."""
    return ["sh", "-c", f"{shlex.join(command)}; true"]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a shell that tells the number of what it waits for, in a session of its own or in ours."""
    started: list[subprocess.Popen[str]] = []

    def start(environ: dict[str, str], *, apart: bool = True, first: str = "") -> subprocess.Popen[str]:
        command = ["sh", "-c", f"{first} sleep 60 & echo $!; wait"]
        environ = {"PATH": os.environ["PATH"], **environ}
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=environ, start_new_session=apart
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # where it is in our own session there is no such group
        process.kill()
        process.communicate(timeout=10)


def child_of(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def test_a_process_whose_name_is_cut_inside_a_letter_keeps_nobody_from_looking(start: Start) -> None:
    """The kernel cuts names after 15 bytes; that one is nobody's business, and the other is ended."""
    stranger = start({}, first="printf 'a\\303' >/proc/$$/comm;")
    assert child_of(stranger)
    assert Path(f"/proc/{stranger.pid}/comm").read_bytes() == b"a\xc3\n"
    left = start(IS_FOUND)
    pid = child_of(left)
    assert pid in {each.pid for each in end_left_behind(MARK)}
    wait_for(lambda: not runs(pid))


@pytest.mark.parametrize("wrapper_lives", [True, False])
@pytest.mark.parametrize("environ", [IS_FOUND, {STARTED_BY: MARK.text}])
def test_a_worker_is_ended_with_all_that_it_has_started(
    start: Start, environ: dict[str, str], wrapper_lives: bool
) -> None:
    """Also when the process that the agent started has gone, and when a script unsets Slurm's variables."""
    wrapper = start(environ)
    child = child_of(wrapper)
    if not wrapper_lives:
        wrapper.kill()
        wrapper.wait(10)
    ended = end_left_behind(MARK)
    assert {each.pid for each in ended} == ({wrapper.pid} if wrapper_lives else set()) | {child}
    assert not runs(child)
    assert not runs(wrapper.pid)


def test_what_clears_its_environment_goes_with_the_session_of_one_that_does_not(start: Start) -> None:
    child = child_of(start(IS_FOUND, first="env -i"))
    wait_for(
        lambda: (
            (Path(f"/proc/{child}/environ").read_bytes(), Path(f"/proc/{child}/comm").read_text())
            == (b"", "sleep\n")
        )
    )
    end_left_behind(MARK)
    assert not runs(child)


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {STARTED_BY: MARK.text.replace("r7", "r7.1"), "SLURM_JOB_ID": "12"},
        {STARTED_BY: "r7 12 /runs/other", "SLURM_JOB_ID": "12"},
        {**IS_FOUND, "SLURM_JOB_ID": "13"},
    ],
)
def test_workers_of_others_stay(start: Start, environ: dict[str, str]) -> None:
    """Of another agent, of another run, and of a job that a worker has submitted with its environment."""
    started = start(environ)
    child = child_of(started)
    assert end_left_behind(MARK) == []
    assert runs(child)


def test_the_job_s_own_session_is_no_worker_s(start: Start) -> None:
    """The batch script's shell lives there, and whatever the coordinator has just asked Slurm."""
    child = child_of(start(IS_FOUND, apart=False))
    assert end_left_behind(MARK) == []
    assert runs(child)
    os.kill(child, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_worker_behind_a_wrapper_ends_with_its_agent(tmp_path: Path, lone: list[dict[str, Any]]) -> None:
    """Nobody starts the agent again: the worker is refused, and ends itself."""
    hurry = tmp_path / "hurry"
    options = ("--delay", "0.004", "--hurry", str(hurry))
    command = wrapped(*training(tmp_path / "out", *OPTIONS, *options))
    with LedgerRun(tmp_path, command, (1, 2)) as run:
        run.capacity = 1
        run.wait_for_world(2)
        orphan = run.pid_of("r1000.0.0")
        run.capacity = 0
        run.agent_of("r1000").kill()
        run.wait(lambda: not runs(orphan), 30.0)
        run.wait_for_world(1)
        hurry.touch()
        assert run.end() == 0, run.story()
    assert_same_result(run, lone)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_agent_that_is_started_again_ends_the_worker_of_the_one_before(
    tmp_path: Path, lone: list[dict[str, Any]]
) -> None:
    hurry = tmp_path / "hurry"
    options = ("--delay", "0.004", "--hurry", str(hurry))
    command = wrapped(*training(tmp_path / "out", *OPTIONS, *options))
    with LedgerRun(tmp_path, command, (1, 2)) as run:
        run.capacity = 1
        run.wait_for_world(2)
        orphan = run.pid_of("r1000.0.0")
        os.kill(orphan, signal.SIGSTOP)  # so that it does not end itself before
        run.start_again("r1000")
        run.wait(lambda: run.has_committed("r1000.0.100"))
        assert not runs(orphan)
        hurry.touch()
        assert run.end() == 0, run.story()
    assert_same_result(run, lone)
    assert "that the agent before this one had left behind" in run.log.read_text()
