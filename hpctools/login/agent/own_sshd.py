"""Whether this node's own sshd lets people in: what it says first, and how many wait there to log in.

To read sshd's title costs it nothing: `3 of 300-600 startups`. From the first number on it refuses some of
those who come, from the second one on everybody. Whether it answers at all only a connection shows.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable
from typing import Literal

from hpctools.login.agent.processes import Process

Standing = Literal["open", "crowded", "closed"]
"""crowded: it refuses some who connect; closed: all, or it does not answer."""
Heard = Literal["banner", "nothing yet", "silence", "refused", "hung up"]

PATIENCE = 5.0
"""So many seconds an sshd may take for its first line."""
_WAIT = 0.5
_LISTENER = re.compile(r"sshd: .*\[listener\] (\d+) of (\d+)-(\d+) startups")


class Knock:
    """Asks an sshd for its first line, over one connection at a time.

    One that is not answered is kept until it is: an sshd that hangs for an hour has one of them, not
    hundreds, and one that answers loses it at once.

    Args:
        port: on this machine.
        monotonic: seconds, never going back.
    """

    def __init__(self, port: int, monotonic: Callable[[], float], patience: float = PATIENCE) -> None:
        self._port, self._monotonic, self._patience = port, monotonic, patience
        self._waiting: socket.socket | None = None
        self._since = 0.0

    def ask(self) -> Heard:
        """What it says; takes half a second at most."""
        try:
            connection = self._waiting or self._connect()
        except TimeoutError:  # the kernel takes no more of them: nobody has for long
            return "silence"
        except OSError:
            return "refused"
        try:
            said = connection.recv(255)
        except TimeoutError:
            return "silence" if self._monotonic() - self._since >= self._patience else "nothing yet"
        except OSError:
            said = b""
        self.close()
        return "banner" if said.startswith(b"SSH-") else "hung up"

    def close(self) -> None:
        """Let the connection go."""
        if self._waiting is not None:
            self._waiting.close()
            self._waiting = None

    def _connect(self) -> socket.socket:
        self._waiting = socket.create_connection(("127.0.0.1", self._port), timeout=_WAIT)
        self._since = self._monotonic()
        return self._waiting


class OwnSshd:
    """How this node's sshd stands, look by look.

    An sshd that has never answered is not judged by its silence: it may listen on another address only.
    """

    def __init__(self, ask: Callable[[], Heard]) -> None:
        self._ask = ask
        self._has_answered = False

    def look(self, processes: Iterable[Process]) -> Standing:
        """How it stands now.

        Args:
            processes: all of the node.
        """
        heard = self._ask()
        self._has_answered = self._has_answered or heard == "banner"
        places = standing_of_places(processes)
        if not self._has_answered:
            return places or "open"
        if heard in ("silence", "refused"):
            return "closed"
        # Without a title nobody knows how many it refuses: some, at least.
        return places or ("crowded" if heard == "hung up" else "open")


def standing_of_places(processes: Iterable[Process]) -> Standing | None:
    """What sshd's title says; of several sshds the one with the most room counts. None where none says it."""
    found = [
        _standing(*map(int, title.groups()))
        for process in processes
        if process.uid == 0 and (title := _LISTENER.fullmatch(process.title))
    ]
    return min(found, key=("open", "crowded", "closed").index, default=None)


def _standing(now: int, some: int, everybody: int) -> Standing:
    if now >= everybody:
        return "closed"
    return "crowded" if now >= some else "open"
