"""mount(2), as far as a sandbox needs it."""

from __future__ import annotations

import ctypes
import os

from hpctools.errors import SandboxError

MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18


def mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    """Mount, or bind with `flags`.

    Raises:
        SandboxError: the machine does not let us.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.mount(
        source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode()
    )
    if done != 0:
        number = ctypes.get_errno()
        raise SandboxError(
            f"cannot mount {source} on {target}: {os.strerror(number)}",
            "the sandbox needs root and the right to mount (CAP_SYS_ADMIN)",
        )


def make_private() -> None:
    """Stop mounts from travelling in or out of this namespace."""
    mount("none", "/", "", MS_REC | MS_PRIVATE)


def bind(source: str, target: str) -> None:
    """Show `source` at `target`, with what is mounted below it."""
    mount(source, target, "", MS_BIND | MS_REC)
