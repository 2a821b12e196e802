"""The one place that starts processes: a program in a group of its own, ended as a group at its limit."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from provision.failures import Failure

GRACE = 3.0  # seconds between asking a group to end and ending it
TIMED_OUT = 124  # as timeout(1) says it


@dataclass(frozen=True)
class Done:
    """A program that has ended.

    Attributes:
        code: its exit code; 124 when it was ended at its limit.
        out: what it printed to standard output, where that was kept.
        err: the same of standard error.
    """

    code: int
    out: str = ""
    err: str = ""

    @property
    def last_words(self) -> str:
        """The last line that says something, for a message."""
        lines = [line for line in f"{self.out}\n{self.err}".splitlines() if line.strip()]
        return lines[-1].strip() if lines else f"exit code {self.code}"


def run_group(
    argv: Sequence[str | Path],
    env: Mapping[str, str],
    limit: float,
    heard: Callable[[str], None],
    started: Callable[[int], None] = lambda pid: None,
) -> int:
    """Run a program in its own process group and hear its output line by line.

    Daemons that it leaves behind may keep its output open: nobody waits for them.

    Args:
        argv: the program and its arguments.
        env: its whole environment.
        limit: seconds.
        heard: hears each line of output.
        started: hears the process id.

    Returns:
        The exit code; 124 when the group was ended at the limit.
    """
    try:
        process = subprocess.Popen(
            [str(word) for word in argv],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
            errors="replace",
        )
    except OSError as error:
        heard(f"error: {argv[0]} cannot be started: {error.strerror or error}")
        return 127
    reader = threading.Thread(target=_hear, args=(process, heard), daemon=True)
    reader.start()
    try:
        started(process.pid)
        code = process.wait(limit)
    except subprocess.TimeoutExpired:
        code = TIMED_OUT
    finally:
        if process.poll() is None:
            end_group(process)
    reader.join(0.5)
    return code


def _hear(process: subprocess.Popen[str], heard: Callable[[str], None]) -> None:
    if process.stdout is not None:
        for line in process.stdout:
            heard(line.rstrip("\n"))


def end_group(process: subprocess.Popen[str]) -> None:
    """Ask a program's whole group to end, and end it when it does not."""
    _signal_group(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE)
    _signal_group(process.pid, signal.SIGKILL)
    # A process that hangs in the kernel, on a file system without a server, does not end: go on without it.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE)


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def call(
    argv: Sequence[str | Path], *, limit: float, stdin: str = "", env: Mapping[str, str] | None = None
) -> Done:
    """Run a command for a step and keep its output; secrets go through `stdin` or `env`, never the arguments.

    Args:
        argv: the command, found on PATH, and its arguments.
        limit: seconds.
        stdin: what it reads.
        env: added to the environment.

    Raises:
        Failure: the command is not installed.
    """
    try:
        done = subprocess.run(
            [str(word) for word in argv],
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit,
            env={**os.environ, **(env or {})},
            check=False,
        )
    except FileNotFoundError:
        raise Failure(f"{argv[0]} is not installed on this node") from None
    except subprocess.TimeoutExpired:
        return Done(TIMED_OUT, err=f"{argv[0]} did not end within {limit:.0f} s")
    return Done(done.returncode, done.stdout, done.stderr)


def must(
    argv: Sequence[str | Path], *, limit: float, stdin: str = "", env: Mapping[str, str] | None = None
) -> str:
    """Run a command that has to succeed; return its output.

    Raises:
        Failure: it is not installed, failed, or took too long; the message has its last line.
    """
    done = call(argv, limit=limit, stdin=stdin, env=env)
    if done.code != 0:
        shown = " ".join(str(word) for word in argv)
        raise Failure(f"`{shown[:200]}` failed (exit code {done.code}): {done.last_words}")
    return done.out
