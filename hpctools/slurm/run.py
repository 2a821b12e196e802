"""The one process door: the only place in the project that starts a program.

Arguments are lists, never shell strings; every wait has a limit; both pipes are drained; failures
become the error tree with the command, its exit code and its last words.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

from hpctools.errors import CommandError, CommandTimeout

# What sacctmgr says after the reason of a refusal: on 26.05, now and then, that slurmdbd has hung up; what it
# makes of a value that it has just called bad; and what became of a deletion.
_FAREWELL = re.compile(
    r"^.*Getting response to message type: DBD_FINI\n?|(?<=\n) Unknown option: .*\n?"
    r"|(?<=\n) Use keyword '\w+' to modify condition\n?|(?<=\n) Changes Discarded\n?",
    re.MULTILINE,
)

KEPT: ContextVar[tuple[int, ...]] = ContextVar("descriptors that are kept", default=())
"""Descriptors of ours that programs which `run` starts keep open as long as they last: a lock, say."""
SUBMITTING: ContextVar[Callable[[], None]] = ContextVar("asked before sbatch starts", default=lambda: None)
"""Called right before each sbatch. It raises RemoteError when another process makes the submission by now:
then no sbatch is started, and nothing is cleared up, for what is there is the other one's."""
HEARD: ContextVar[Callable[[str], None]] = ContextVar("told what sbatch said", default=lambda words: None)
"""Called with what each sbatch that took a job said to standard error: words of the site, warnings."""
Process = subprocess.Popen[bytes]
PIPE = subprocess.PIPE
"""A program that `start` started."""


@dataclass(frozen=True)
class Completed:
    """What a finished program left.

    Attributes:
        argv: the program and its arguments.
        code: its exit status; negative when a signal ended it.
        stdout: what it wrote to standard output.
        stderr: what it wrote to standard error.
    """

    argv: tuple[str, ...]
    code: int
    stdout: str
    stderr: str


def run(
    argv: Sequence[str],
    *,
    timeout: float,
    check: bool = True,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    new_session: bool = False,
) -> Completed:
    """Run a program to its end.

    Args:
        argv: the program and its arguments.
        timeout: seconds after which it is killed.
        check: raise when the exit status is not 0.
        stdin: text for its standard input; empty when None.
        env: its whole environment; ours when None.
        cwd: its working directory; ours when None.
        new_session: keep Ctrl-C on our terminal from it; we decide what becomes of it.

    Raises:
        CommandError: it could not be started, or `check` and its exit status is not 0.
        CommandTimeout: it did not end within `timeout`.
    """
    try:
        done = subprocess.run(
            list(argv),
            input=stdin if stdin is not None else "",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            env=dict(env) if env is not None else None,
            cwd=cwd,
            start_new_session=new_session,
            pass_fds=KEPT.get(),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _timed_out(argv, timeout, error.stderr) from None
    except OSError as error:
        raise _not_started(argv, error, cwd) from None
    completed = Completed(tuple(argv), done.returncode, done.stdout, done.stderr)
    if check and completed.code != 0:
        raise failure(completed)
    return completed


def finish(process: Process, argv: Sequence[str], *, timeout: float, stdin: str) -> Completed:
    """Give a program that was started with three pipes its input, and wait for its end.

    Args:
        process: what `start` returned.
        argv: the program and its arguments, for errors.
        timeout: seconds after which it is killed.
        stdin: text for its standard input.

    Raises:
        CommandError: its exit status is not 0.
        CommandTimeout: it did not end within `timeout`.
    """
    with process:
        try:
            said = process.communicate(stdin.encode(errors="replace"), timeout)
        except subprocess.TimeoutExpired as error:
            process.kill()
            raise _timed_out(argv, timeout, error.stderr) from None
        except BaseException:
            process.kill()
            raise
    stdout, stderr = (each.decode(errors="replace") for each in said)
    completed = Completed(tuple(argv), process.returncode, stdout, stderr)
    if completed.code != 0:
        raise failure(completed)
    return completed


def failure(completed: Completed) -> CommandError:
    """The error that a finished program with a nonzero exit status stands for."""
    stderr = _FAREWELL.sub("", completed.stderr)
    lines = (stderr.strip() or completed.stdout.strip()).splitlines()
    last = lines[-1] if lines else "it printed nothing"
    return CommandError(
        f"{shlex.join(completed.argv[:4])} failed with exit code {completed.code}: {last}",
        argv=completed.argv,
        code=completed.code,
        stderr=stderr,
    )


def start(
    argv: Sequence[str],
    *,
    stdin: IO[bytes] | int = subprocess.DEVNULL,
    stdout: IO[bytes] | int | None = None,
    stderr: IO[bytes] | int | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    new_session: bool = False,
) -> Process:
    """Start a program and return at once; the caller waits for it or records it.

    Standard input is /dev/null unless given. `stdout` and `stderr` are an open file, a descriptor or, when
    None, ours. `PIPE` for all three is for `finish`.
    `new_session` detaches it from our terminal and process group.

    Raises:
        CommandError: it could not be started.
    """
    try:
        return subprocess.Popen(
            list(argv),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=dict(env) if env is not None else None,
            cwd=cwd,
            start_new_session=new_session,
        )
    except OSError as error:
        raise _not_started(argv, error, cwd) from None


def attach(argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> int:
    """Run a program on our own terminal, for as long as a person keeps it, as a shell would.

    What the terminal sends (Ctrl-C, Ctrl-Z) is the program's, and we wait for what it makes of it; ending or
    hanging up on us does the same to the program. Without a terminal Ctrl-C's signals are passed on as well.

    Returns:
        Its exit status; 128 and the signal's number when one ended it.

    Raises:
        CommandError: it could not be started.
    """
    at_terminal = _has_terminal()
    passed_on = _ENDING if at_terminal else (*_ENDING, signal.SIGINT, signal.SIGQUIT)
    with _left_to_it(_TERMINALS if at_terminal else ()), _signals_passed_on(passed_on) as pass_on_to:
        try:
            process = subprocess.Popen(list(argv), env=dict(env) if env is not None else None)
        except OSError as error:
            raise _not_started(argv, error) from None
        pass_on_to(process)
        code = _outlast(process) if at_terminal else process.wait()
    return code if code >= 0 else 128 - code


def _has_terminal() -> bool:
    """Whether keys may send us signals, and a shell may stop us and have us go on."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _outlast(process: Process) -> int:
    """Wait for its end; while it is stopped so are we, or the shell that started us would never know."""
    while process.returncode is None:
        try:
            _, status = os.waitpid(process.pid, os.WUNTRACED)
        except ChildProcessError:  # whoever started us ignores SIGCHLD: nobody is told, as of Popen.wait
            status = 0
        if os.WIFSTOPPED(status):
            os.kill(os.getpid(), signal.SIGSTOP)
            os.kill(process.pid, signal.SIGCONT)
        else:
            process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode


_TERMINALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)
_ENDING = (signal.SIGTERM, signal.SIGHUP)


def relay(argv: Sequence[str], *, stdin: bytes | None = None, keep_stdout: bool = False) -> Completed:
    """Run a program in our place, for as long as it takes, and know what it said to standard error.

    Standard error is shown as it comes and kept; interrupting, ending or hanging up on us does the same to
    the program.

    Args:
        argv: the program and its arguments.
        stdin: what it reads; our own standard input when None.
        keep_stdout: return its standard output (a few lines) instead of showing it.

    Raises:
        CommandError: it could not be started.
    """
    with _signals_passed_on((signal.SIGINT, *_ENDING)) as pass_on_to:
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.PIPE if stdin is not None else None,
                stdout=subprocess.PIPE if keep_stdout else None,
                stderr=subprocess.PIPE,
            )
        except OSError as error:
            raise _not_started(argv, error) from None
        pass_on_to(process)
        said = _converse(process, stdin)
        printed = b""
        if process.stdout is not None:
            with process.stdout:
                printed = process.stdout.read()
        code = process.wait()
    return Completed(tuple(argv), code, printed.decode(errors="replace"), said.decode(errors="replace"))


@contextlib.contextmanager
def _signals_passed_on(numbers: Sequence[int]) -> Iterator[Callable[[Process], None]]:
    """Pass signals on to a program from before it is started: what comes too early, it gets at once."""
    started: list[Process] = []
    early: list[int] = []

    def handle(number: int, _: object) -> None:
        if started:
            _send(started[0], number)
        else:
            early.append(number)

    def pass_on_to(process: Process) -> None:
        started.append(process)
        for number in early:
            _send(process, number)

    with _handled(numbers, handle):
        yield pass_on_to


def _send(process: Process, number: int) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def _left_to_it(numbers: Sequence[int]) -> contextlib.AbstractContextManager[None]:
    """Signals that the terminal sends to the program as well: by a handler, which no program inherits."""
    return _handled(numbers, lambda number, frame: None)


@contextlib.contextmanager
def _handled(numbers: Sequence[int], handle: Callable[[int, object], None]) -> Iterator[None]:
    """Handle signals, but for those that whoever started us has us ignore (nohup), as a program would."""
    heard = [each for each in numbers if signal.getsignal(each) is not signal.SIG_IGN]
    before = {each: signal.signal(each, handle) for each in heard}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _converse(process: subprocess.Popen[bytes], stdin: bytes | None) -> bytes:
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(stdin or b"")
    said = []
    if process.stderr is not None:
        with process.stderr:
            for line in process.stderr:
                said.append(line)
                sys.stderr.buffer.write(line)
                sys.stderr.flush()
    return b"".join(said)


def replace(argv: Sequence[str]) -> NoReturn:
    """Become the program; does not return.

    Raises:
        CommandError: it could not be started.
    """
    try:
        os.execvp(argv[0], list(argv))  # noqa: S606
    except OSError as error:
        raise _not_started(argv, error) from None


def _not_started(argv: Sequence[str], error: OSError, cwd: Path | None = None) -> CommandError:
    if cwd is not None and error.filename is not None and str(error.filename) == str(cwd):
        return _folder_missing(argv, error, cwd)
    remedy = f"install {argv[0]} or put it on PATH" if isinstance(error, FileNotFoundError) else ""
    return CommandError(
        f"cannot start {argv[0]}: {error.strerror or error}", argv=argv, code=None, remedy=remedy
    )


def _folder_missing(argv: Sequence[str], error: OSError, cwd: Path) -> CommandError:
    return CommandError(
        f"cannot start {argv[0]} in the folder {cwd}: {error.strerror or error} on {os.uname().nodename}",
        argv=argv,
        code=None,
        remedy="make or mount the folder there, or start in one that every machine has",
    )


def _timed_out(argv: Sequence[str], timeout: float, stderr: bytes | str | None) -> CommandTimeout:
    text = stderr.decode(errors="replace") if isinstance(stderr, bytes) else stderr or ""
    return CommandTimeout(
        f"{shlex.join(argv[:4])} did not end within {timeout:g} s", argv=argv, code=None, stderr=text
    )
