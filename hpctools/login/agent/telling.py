"""What people at a terminal are told by root, and how a session is ended."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from hpctools.login.agent.processes import PROC, parse

DEV = Path("/dev")
_TERMINAL = re.compile(r"(?:pts/[0-9]{1,7}|tty[A-Za-z]{0,4}[0-9]{1,4})")
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\xa0-\ud7ff\ue000-\uffff]")
_WIDTH = 76


def tell(terminals: Iterable[str], message: str, node: str, dev: Path = DEV, owner: int | None = None) -> int:
    """Write a message on terminals, whatever `mesg` says; return on how many.

    A terminal that takes nothing (somebody has stopped it) is not waited for. What a message holds beside
    letters is left out, since a terminal would obey it.

    Args:
        owner: whose the terminals must be (in a container one of the same name is another one); anybody's
            when None.
    """
    data = framed(message, node).encode()
    paths = (dev / each for each in sorted(set(terminals)) if _TERMINAL.fullmatch(each))
    return sum(_write(path, data, owner) for path in paths)


def framed(message: str, node: str) -> str:
    """A message, of one line or more, as it appears between what else is on a terminal."""
    import textwrap

    clean = [_UNPRINTABLE.sub(" ", line) for line in message.splitlines()] or [""]
    lines = [line for each in clean for line in (textwrap.wrap(each, _WIDTH) or [""])]
    body = "".join(f"  {line}\r\n" for line in lines)
    return f"\r\n\a** Message of {_UNPRINTABLE.sub('', node)} to you:\r\n{body}\r\n"


def _write(path: Path, data: bytes, owner: int | None) -> bool:
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        terminal = os.open(path, flags)
    except OSError:
        return False
    try:
        if owner is not None and os.fstat(terminal).st_uid != owner:
            return False
        return os.isatty(terminal) and os.write(terminal, data) == len(data)
    except OSError:
        return False
    finally:
        os.close(terminal)


def typed_at(terminals: Iterable[str], dev: Path = DEV) -> Mapping[str, float]:
    """When something was last typed at each, Unix seconds; the kernel rounds to eight seconds."""
    found = {}
    for each in terminals:
        with suppress(OSError):
            found[each] = (dev / each).stat().st_atime
    return found


def end(pid: int, started: int, proc: Path = PROC) -> bool:
    """End the process that serves a session, and with it the session; whether there was one to end.

    The process is held while it is looked at: another one with its number is never hit.
    """
    try:
        held = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if parse((proc / str(pid) / "stat").read_text(errors="replace"), 0, "").started != started:
            return False
        signal.pidfd_send_signal(held, signal.SIGTERM)
        return True
    except (OSError, ValueError):
        return False
    finally:
        os.close(held)
