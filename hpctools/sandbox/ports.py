"""Free TCP ports on 127.0.0.1, and whose a listening port is."""

from __future__ import annotations

import random
import re
import socket
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

# Below Linux's default ephemeral range (32768-60999), so that no outgoing connection takes a chosen port.
RANGE = range(15000, 32000)
_LISTENS = "0A"  # TCP_LISTEN in /proc/net/tcp


def is_free(port: int) -> bool:
    """Whether a server could bind the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return _bind(probe, port)


def choose(names: Iterable[str]) -> dict[str, int]:
    """A different free port for each name, at random so that sandboxes made together do not meet."""
    with Hold() as hold:
        return hold.choose(names)


def listens(port: int, namespace: str) -> bool:
    """Whether a process of a pid namespace listens on the port, not just anybody.

    Args:
        namespace: what `/proc/PID/ns/pid` says of the namespace's processes, as `pid:[4026532201]`.
    """
    sockets = {f"socket:[{inode}]" for inode in _listeners(port)}
    return bool(sockets) and any(
        _link(handle) in sockets
        for folder in Path("/proc").glob("[0-9]*")
        if _link(folder / "ns/pid") == namespace
        for handle in _handles(folder)
    )


class Hold:
    """Keeps ports from others who choose until their servers listen, or until it is left.

    A socket that is bound and does not listen refuses who binds the port without SO_REUSEADDR, as `choose`
    does, and lets in who binds with it, as servers do (socket(7)).
    """

    def __init__(self) -> None:
        self._open = ExitStack()

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def choose(self, names: Iterable[str]) -> dict[str, int]:
        """A different free port for each name, held from now on."""
        candidates = iter(random.SystemRandom().sample(RANGE, len(RANGE)))
        return {name: next(port for port in candidates if self._take(port, reuse=False)) for name in names}

    def keep(self, known: Mapping[str, int]) -> list[str]:
        """Hold ports that were chosen at another time; the names of those that somebody else has now."""
        return [name for name, port in known.items() if not self._take(port, reuse=True)]

    def _take(self, port: int, *, reuse: bool) -> bool:
        holder = self._open.enter_context(socket.socket())
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
        bound = _bind(holder, port)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1) if bound else holder.close()
        return bound


def _bind(unbound: socket.socket, port: int) -> bool:
    try:
        unbound.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True


def _listeners(port: int) -> set[str]:
    """The inodes of the sockets that listen on a port: fields 2, 4 and 10 of /proc/net/tcp (proc(5))."""
    table = "".join(Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6") if _there(name))
    rows = [re.split(r"\s+", row.strip()) for row in table.splitlines()]
    return {row[9] for row in rows if len(row) > 9 and row[3] == _LISTENS and row[1].endswith(f":{port:04X}")}


def _there(name: str) -> bool:
    return Path(f"/proc/net/{name}").exists()


def _handles(folder: Path) -> list[Path]:
    try:
        return list((folder / "fd").iterdir())
    except OSError:
        return []


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""
