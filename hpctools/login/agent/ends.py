"""Sessions that end: the kernel says so of each at once (pidfd_open(2)), and nobody asks it again and again.

What is not watched (more sessions than files may be open, a kernel before 5.3) the agent's next look sees.
"""

from __future__ import annotations

import logging
import os
import re
import select
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Thread

from hpctools.login.agent.claims import lives

_log = logging.getLogger("hpctools.login")

FEW = 8
"""So many ends at most are told one by one; more of them by a report."""
_PAUSE_SECONDS = 0.2
"""What ends meanwhile is told together."""
_PAUSE_AFTER_MANY_SECONDS = 1.0
"""A look at the whole node takes long where there are thousands of processes."""
_LAST_SECONDS = 10.0
_LEAST = 256
"""Sessions that are watched in any case: less than the files that anybody may open."""


class Ends:
    """Watches the processes that serve sessions, and tells of those that are over.

    Args:
        tell: is given the keys of sessions that are over, the first at once and those that end soon after it
            together: at most five times a second, and once in the second after more than FEW. In a thread.
        most: watched at the same time; None: half of the files that this process may have open.
    """

    def __init__(self, tell: Callable[[Sequence[str]], None], most: int | None = None) -> None:
        self._tell = tell
        self._most = _half_of_files() if most is None else most
        self._lock, self._ending = Lock(), Event()
        self._held: dict[int, str] = {}
        self._keys: set[str] = set()
        self._over: list[str] = []
        self._events = select.epoll()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._events.register(self._bell, select.EPOLLIN)
        self._thread = Thread(target=self._serve, daemon=True)

    def start(self) -> None:
        """Tell from now on, also of what has ended since it is watched."""
        self._thread.start()

    def stop(self) -> None:
        """Tell nothing more, and watch nothing."""
        self._ending.set()
        self._ring()
        self._thread.join(_LAST_SECONDS)
        if not self._thread.is_alive():
            with self._lock:
                self._most = 0
                for held in (*self._held, self._bell):
                    os.close(held)
                self._held.clear()
                self._events.close()

    def watch(self, key: str, pid: int, started: int) -> None:
        """Tell when a session's process is over; watched already, nothing changes.

        Args:
            pid, started: as `hpctools.login.agent.processes.Process` has them.
        """
        with self._lock:
            if key in self._keys or len(self._keys) >= self._most:
                return
            try:
                held = _hold(pid, started)
            except ProcessLookupError:
                self._over.append(key)
                self._ring()
            except OSError as error:
                _log.debug("%s is not watched: %s", key, error)
            else:
                self._held[held] = key
                self._keys.add(key)
                self._events.register(held, select.EPOLLIN)

    def _ring(self) -> None:
        os.eventfd_write(self._bell, 1)

    def _serve(self) -> None:
        while not self._ending.is_set():
            over = self._next()
            try:
                if over:
                    self._tell(over)
            except Exception:  # noqa: BLE001
                _log.exception("the end of sessions could not be told; the next report does")
            self._ending.wait(_PAUSE_SECONDS if len(over) <= FEW else _PAUSE_AFTER_MANY_SECONDS)

    def _next(self) -> list[str]:
        """Wait until something is over; the keys of all that is."""
        ready = [held for held, _ in self._events.poll()]
        with suppress(OSError):
            os.eventfd_read(self._bell)
        with self._lock:
            over, self._over = self._over, []
            for held in ready:
                if held in self._held:
                    self._events.unregister(held)
                    os.close(held)
                    over.append(self._held.pop(held))
            self._keys.difference_update(over)
        return over


def _hold(pid: int, started: int) -> int:
    """A handle of this very process (pidfd).

    Raises:
        ProcessLookupError: it is over.
        OSError: there is none to have.
    """
    try:
        held = os.pidfd_open(pid)
    except FileNotFoundError:  # the number is by now that of a thread of somebody else
        raise ProcessLookupError from None
    if lives(f"{pid}-{started}"):  # held, its number is nobody else's
        return held
    os.close(held)
    raise ProcessLookupError


def _half_of_files(limits: Path = Path("/proc/self/limits")) -> int:
    """By the kernel's table: older releases of systemd have prlimit64(2) in @resources, not for us."""
    try:
        found = re.search(r"^Max open files +(\d+)", limits.read_text(), re.MULTILINE)
    except OSError:
        found = None
    return max(_LEAST, int(found[1]) // 2) if found else _LEAST
