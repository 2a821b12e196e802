"""Processes are told apart by pid and start time."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from hpctools.sandbox import process


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(["sleep", "60"])
    yield child
    child.kill()
    child.wait()


def test_a_living_process_is_recognised(sleeper: subprocess.Popen[bytes]) -> None:
    found = process.identify(sleeper.pid)
    assert found is not None
    assert process.alive(found)
    assert abs(process.started_at(found) - time.time()) < 5


def test_a_recycled_pid_is_not_ours(sleeper: subprocess.Popen[bytes]) -> None:
    found = process.identify(sleeper.pid)
    assert found is not None
    for stranger in (replace(found, start=found.start - 1), replace(found, boot="another")):
        assert not process.alive(stranger)
        assert process.send(stranger, signal.SIGKILL) is False
        assert process.wait_gone(stranger, 0.0)
    assert sleeper.poll() is None


def test_a_pid_that_is_a_threads_by_now_is_not_ours() -> None:
    """pidfd_open(2) has an error of its own for it."""
    us = process.identify(os.getpid())
    assert us is not None
    with ThreadPoolExecutor(1) as pool:
        number = pool.submit(threading.get_native_id).result()
        assert number != us.pid
        assert process.wait_gone(replace(us, pid=number, start=us.start - 1), 0.0)


def test_an_ended_process_is_gone_even_before_it_is_reaped(sleeper: subprocess.Popen[bytes]) -> None:
    found = process.identify(sleeper.pid)
    assert found is not None
    assert process.send(found, signal.SIGKILL)
    assert process.wait_gone(found, 5)
    assert process.identify(sleeper.pid) is None
    assert process.send(found) is False


def test_a_name_with_spaces_and_parentheses_does_not_confuse(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    program = tmp_path_factory.mktemp("p") / "odd ) name"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([str(program), "60"]) as child:
        assert process.identify(child.pid) is not None
        child.kill()


def test_waiting_has_a_limit() -> None:
    us = process.identify(os.getpid())
    assert us is not None
    assert process.wait_gone(us, 0.01) is False
