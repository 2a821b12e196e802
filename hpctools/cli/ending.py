"""How a command ends: its exit code, and one line to standard error instead of a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from hpctools.errors import CommandError, HpctoolsError

if TYPE_CHECKING:
    import argparse

NOBODY_READS = 141
"""The exit code where whoever read us has seen enough (`| head`)."""


def arguments(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """What the command line says; ends the process where it only asks for help, or is none.

    Args:
        argv: those of the process when None.
    """
    open_what_is_closed()
    try:
        try:
            return parser.parse_args(argv)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        sys.exit(settled(NOBODY_READS))
    except OSError as error:
        complain(f"{parser.prog}: {error}")
        sys.exit(settled(1))


def run_command(program: str, action: Callable[[], int], *, debug: bool) -> int:
    """Do the action and turn its errors into a message and an exit code.

    Args:
        program: the name that starts each message.
        action: returns the exit code.
        debug: let errors through, with their traceback.
    """
    open_what_is_closed()
    return settled(_outcome(program, action, debug=debug))


def _outcome(program: str, action: Callable[[], int], *, debug: bool) -> int:
    try:
        code = action()
        sys.stdout.flush()
        return code
    except HpctoolsError as error:
        if debug:
            raise
        complain(message(program, error))
        return error.exit_code
    except KeyboardInterrupt:
        if debug:
            raise
        complain(f"{program}: interrupted")
        return 130
    except BrokenPipeError:
        return NOBODY_READS
    except OSError as error:
        if debug:
            raise
        complain(f"{program}: {error}")
        return 1


def complain(text: str) -> None:
    """Say on standard error why we end, if anybody can be told: the exit code says it in any case."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def settled(code: int) -> int:
    """The exit code, once all output is out; what could not be written is dropped."""
    # It is still in the buffer: Python would fail on it again at exit, with a code and words of its own.
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            code = _dropped(stream, code or NOBODY_READS)
        except OSError:
            code = _dropped(stream, code or 1)
    return code


def _dropped(stream: TextIO, code: int) -> int:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
    return code


def open_what_is_closed() -> None:
    """Have a standard output and error output, also where whoever started us has closed them."""
    # `>&-`: Python has no stream then, and the first file that anybody opens would take its place.
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115


def message(program: str, error: HpctoolsError) -> str:
    """What a person reads: Slurm's own words when Slurm refused, and ours otherwise."""
    if isinstance(error, CommandError) and error.stderr_tail:
        remedy = f"\n{program}: {error.remedy}" if error.remedy else ""
        return f"{error.stderr_tail}{remedy}"
    return f"{program}: {error}"
