"""How a command ends: its exit code, and one line to standard error instead of a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hpctools.errors import CommandError, HpctoolsError

if TYPE_CHECKING:
    import argparse


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
        _drop_output()
        sys.exit(141)
    except OSError as error:
        _drop_output()
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(1)


def run_command(program: str, action: Callable[[], int], *, debug: bool) -> int:
    """Do the action and turn its errors into a message and an exit code.

    Args:
        program: the name that starts each message.
        action: returns the exit code.
        debug: let errors through, with their traceback.
    """
    open_what_is_closed()
    try:
        code = action()
        sys.stdout.flush()
        return code
    except HpctoolsError as error:
        if debug:
            raise
        print(message(program, error), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        if debug:
            raise
        print(f"{program}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Whoever read us has seen enough.
        _drop_output()
        return 141
    except OSError as error:
        if debug:
            raise
        _drop_output()
        print(f"{program}: {error}", file=sys.stderr)
        return 1


def open_what_is_closed() -> None:
    """Have a standard output and error output, also where whoever started us has closed them."""
    # `>&-`: Python has no stream then, and the first file that anybody opens would take its place.
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115


def _drop_output() -> None:
    # What could not be written is still in the buffer: Python would fail on it again at exit.
    try:
        sys.stdout.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def message(program: str, error: HpctoolsError) -> str:
    """What a person reads: Slurm's own words when Slurm refused, and ours otherwise."""
    if isinstance(error, CommandError) and error.stderr_tail:
        remedy = f"\n{program}: {error.remedy}" if error.remedy else ""
        return f"{error.stderr_tail}{remedy}"
    return f"{program}: {error}"
