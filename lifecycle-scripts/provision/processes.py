"""The one place that starts processes: a program in a group of its own, ended as a group at its limit."""

from __future__ import annotations

import contextlib
import os
import runpy
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from provision.failures import Failure

GRACE = 3.0  # seconds between asking a group to end and ending it
TIMED_OUT = 124  # as timeout(1) says it
_NOT_STARTED = 127
_LOOK_SECONDS = 0.05
_LAST_WORDS_SECONDS = 0.2
_MOST_DESCRIPTORS = 1024


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

    A program in Python runs in a copy of this process: it is the same Python whatever PATH says, and need not
    load again what is loaded here. Daemons that a program leaves behind may keep its output open: nobody
    waits for them.

    Args:
        argv: the program and its arguments.
        env: its whole environment.
        limit: seconds.
        heard: hears each line of output.
        started: hears the process id.

    Returns:
        The exit code; 124 when the group was ended at the limit, 127 when it could not be started.
    """
    words = [str(word) for word in argv]
    (reader, writer), (wait, go) = os.pipe(), os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(go)
        _become(words, env, writer, wait)
    os.close(writer)
    os.close(wait)
    lines = _Lines(reader, heard)
    code: int | None = None
    try:
        started(pid)
        os.write(go, b"!")
        code = _follow(pid, lines, time.monotonic() + limit)
    finally:
        os.close(go)
        if code is None:
            end_group(pid)
        lines.close()
    return TIMED_OUT if code is None else code


def _is_python(path: str) -> bool:
    try:
        with Path(path).open("rb") as file:
            return file.readline(80).rstrip() in (b"#!/usr/bin/env python3", b"#!/usr/bin/python3")
    except OSError:
        return False


def _become(words: Sequence[str], env: Mapping[str, str], writer: int, wait: int) -> NoReturn:
    """In the copy: be the program, once it is noted, and never come back.

    A runner that is killed before it has noted the process leaves nothing behind: nobody says go then.
    """
    code: object = _NOT_STARTED
    try:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        if os.read(wait, 1):
            _take_over(writer)
            code = _run(words, env)
    except SystemExit as error:
        code = error.code
    except BaseException:  # noqa: BLE001 - there is nobody above to hear it
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            if code is not None and not isinstance(code, int):
                print(code, file=sys.stderr)
                code = 1
            sys.stdout.flush()
        os._exit(code if isinstance(code, int) else 0)


def _take_over(writer: int) -> None:
    """Give the copy its own input and output, and nothing else that was open."""
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (writer, 1), (writer, 2)):
        os.dup2(source, target)
    os.closerange(3, _MOST_DESCRIPTORS)  # the lock among them: what outlives the runner must not hold it
    sys.stdout = os.fdopen(1, "w", 1, encoding="utf-8", errors="replace", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", errors="replace", closefd=False)


def _run(words: Sequence[str], env: Mapping[str, str]) -> int:
    if _is_python(words[0]):
        os.environ.clear()
        os.environ.update(env)
        sys.argv = list(words)
        runpy.run_path(words[0], run_name="__main__")
        return 0
    try:
        os.execve(words[0], list(words), dict(env))  # noqa: S606 - no shell, on purpose
    except OSError as error:
        print(f"error: {words[0]} cannot be started: {error.strerror or error}")
        return _NOT_STARTED


class _Lines:
    """What comes through a pipe, line by line."""

    def __init__(self, descriptor: int, heard: Callable[[str], None]) -> None:
        self._descriptor = descriptor
        self._heard = heard
        self._rest = b""
        self.ended = False

    def read(self, seconds: float) -> bool:
        """Wait for output so long; whether there was any."""
        if self.ended or not select.select([self._descriptor], [], [], max(0.0, seconds))[0]:
            return False
        chunk = os.read(self._descriptor, 65536)
        self.ended = not chunk
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._heard(line.decode("utf-8", "replace").rstrip("\r"))
        return bool(chunk)

    def close(self) -> None:
        """Hear what is left, and no more."""
        until = time.monotonic() + _LAST_WORDS_SECONDS
        while time.monotonic() < until and self.read(0):
            pass
        if self._rest:
            self._heard(self._rest.decode("utf-8", "replace"))
        os.close(self._descriptor)


def _follow(pid: int, lines: _Lines, until: float) -> int | None:
    """Hear a program to its end; its exit code, None when it has not ended in time."""
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status) % 256
        left = until - time.monotonic()
        if left <= 0:
            return None
        if lines.ended:
            time.sleep(min(left, 0.002))
        else:
            lines.read(min(left, _LOOK_SECONDS))


def end_group(pid: int) -> None:
    """Ask a program's whole group to end, and end it when it does not."""
    _signal_group(pid, signal.SIGTERM)
    _wait(pid)
    _signal_group(pid, signal.SIGKILL)
    # A process that hangs in the kernel, on a file system without a server, does not end: go on without it.
    _wait(pid)


def _wait(pid: int) -> None:
    until = time.monotonic() + GRACE
    with contextlib.suppress(ChildProcessError):
        while not os.waitpid(pid, os.WNOHANG)[0] and time.monotonic() < until:
            time.sleep(0.01)


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
    except OSError as error:
        raise Failure(f"{argv[0]} cannot be started: {error.strerror or error}") from None
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
