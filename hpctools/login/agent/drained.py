"""Whether this node takes new sessions: what the service says, and what was said on the node itself."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from threading import Lock


@dataclass(frozen=True)
class Word:
    """What one side says."""

    draining: bool = False
    why: str = ""


@dataclass(frozen=True)
class Drained:
    """What both sides say; either of them is enough.

    Attributes:
        service: the last that the service said; it counts while it is silent, too.
        here: what was said on the node.
    """

    service: Word = field(default_factory=Word)
    here: Word = field(default_factory=Word)

    @property
    def draining(self) -> bool:
        """Whether the node takes no new sessions."""
        return self.service.draining or self.here.draining

    @property
    def why(self) -> str:
        """Why it is drained; empty when it is not."""
        return next((word.why for word in (self.here, self.service) if word.draining), "")


class DrainFile:
    """What both sides said, kept over restarts of the agent and of the node; threads may hear it.

    Args:
        monotonic: seconds, never going back.
    """

    def __init__(self, path: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._path, self._monotonic = path, monotonic
        self._begun = -math.inf
        self._lock = Lock()
        self.now = _read(path)

    def hear(self, *, service: Word | None = None, here: Word | None = None) -> tuple[Drained, Drained]:
        """Take in what one side says; what was before, and what is now.

        Raises:
            OSError: it cannot be kept; it counts all the same.
        """
        with self._lock:
            before = self.now
            now = self.now = replace(before, service=service or before.service, here=here or before.here)
            if now.draining and not before.draining:
                self._begun = self._monotonic()
            if now != before:
                _write(self._path, json.dumps(asdict(now)) + "\n")
            return before, now

    def has_lasted(self, seconds: float, at: float | None = None) -> bool:
        """Whether the node has been drained for so long, or was already when this agent began.

        Args:
            at: until this moment of `monotonic`; until now when None.
        """
        moment = self._monotonic() if at is None else at
        return self.now.draining and moment - self._begun >= seconds


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def _read(path: Path) -> Drained:
    try:
        stated = json.loads(path.read_text(encoding="utf-8"))
        words = {side: _word(stated[side]) for side in ("service", "here")}
        return Drained(**words)
    except (OSError, ValueError, KeyError, TypeError):
        return Drained()


def _word(stated: object) -> Word:
    if isinstance(stated, dict) and isinstance(stated["draining"], bool) and isinstance(stated["why"], str):
        return Word(stated["draining"], stated["why"])
    raise ValueError("no word of a drain")
