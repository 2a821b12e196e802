"""Who changes the cluster, and from where."""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_UNSET = 4294967295  # /proc/PID/loginuid of a process that belongs to no login, proc(5)


@dataclass(frozen=True)
class Who:
    """A person at a keyboard, or a service.

    Attributes:
        name: the account that logged in, before sudo; `root` for a service.
        host: where the command runs.
        source: the address that the person came from; "" when unknown.
    """

    name: str
    host: str
    source: str = ""


def me(environment: Mapping[str, str] = os.environ) -> Who:
    """Who runs this process: by the kernel's login uid, else sudo's word, else our uid."""
    name = _account(_login_uid()) or environment.get("SUDO_USER") or _account(os.getuid()) or str(os.getuid())
    source = environment.get("SSH_CONNECTION", "").partition(" ")[0]
    return Who(name, socket.gethostname(), source)


def _login_uid() -> int | None:
    try:
        uid = int(Path("/proc/self/loginuid").read_text())
    except (OSError, ValueError):
        return None
    return None if uid == _UNSET else uid


def _account(uid: int | None) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_name if uid is not None else None
    except KeyError:
        return None
