"""Sessions that have asked to begin here: which live though no look has seen them, and which are over."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock

from hpctools.login.agent.processes import PROC, parse

OVER_SECONDS = 30.0
"""So long it is told that one is over: its own question may come to the service after its end."""
MOST = 1000


@dataclass(frozen=True)
class Claim:
    """A session that wanted to begin.

    Attributes:
        key: PID-START of sshd's process for it.
        asked, over: when, seconds of a clock that never goes back; `over` is when its end was noticed.
        admitted: it may begin, as far as the agent knows.
    """

    key: str
    user: str
    origin: str
    asked: float
    admitted: bool = False
    over: float | None = None


class Claims:
    """What has asked since the agent began; many ask at the same time, each in a thread.

    Args:
        monotonic: seconds, never going back.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = Lock()
        self._claims: dict[str, Claim] = {}

    def ask(self, key: str, user: str, origin: str) -> None:
        """Somebody wants to begin a session; asked again of the same one, nothing changes."""
        with self._lock:
            self._claims.setdefault(key, Claim(key, user, origin, self._monotonic()))

    def admit(self, key: str) -> None:
        """They may."""
        with self._lock:
            if key in self._claims:
                self._claims[key] = replace(self._claims[key], admitted=True)

    def end(self, key: str) -> None:
        """It is over, as the kernel says; its process is still there until its parent asks for it."""
        with self._lock:
            if key in self._claims and self._claims[key].over is None:
                self._claims[key] = replace(self._claims[key], over=self._monotonic())

    def gone(self, user: str | None = None) -> list[str]:
        """What is over, of somebody or of all, the newest of them; a process that ended never comes again."""
        over = [each for each in self._looked(user) if each.over is not None]
        return [each.key for each in sorted(over, key=lambda each: each.asked)[-MOST:]]

    def beginning(self, seen: Collection[str]) -> list[tuple[Claim, float]]:
        """What may begin, lives, and is not among what was seen; with its age in seconds."""
        now = self._monotonic()
        return [
            (each, max(0.0, now - each.asked))
            for each in self._looked(None)
            if each.admitted and each.over is None and each.key not in seen
        ]

    def _looked(self, user: str | None) -> list[Claim]:
        """Claims as they are now; what has been over for long is forgotten."""
        with self._lock:
            known = [each for each in self._claims.values() if user in (None, each.user)]
        now = self._monotonic()
        ended = [each.key for each in known if each.over is None and not lives(each.key)]
        with self._lock:
            for key in ended:
                if key in self._claims:  # another thread may have forgotten it
                    self._claims[key] = replace(self._claims[key], over=now)
            for each in known:
                if each.over is not None and now - each.over > OVER_SECONDS:
                    self._claims.pop(each.key, None)
            return [found for each in known if (found := self._claims.get(each.key))]


def lives(claim: str, proc: Path = PROC) -> bool:
    """Whether the very process that PID-START names is there; Session Manager's names are not looked at."""
    pid, _, start = claim.rpartition("-")
    if not (pid.isdigit() and start.isdigit()):
        return True
    try:
        return str(parse((proc / pid / "stat").read_text(errors="replace"), 0, "").started) == start
    except (OSError, ValueError):
        return False
