"""A job's output on a laptop, whatever becomes of the connection: no byte twice, none missing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hpctools.errors import UnreachableError
from hpctools.remote.session import Session
from hpctools.remote.transport import TurnedAway

_PAUSES = (0.0, 1.0, 3.0, 8.0)
_LONGEST_PAUSE = 15.0
_LAST_BYTES = 4096
_MOST_FAILURES = 60
"""In a row: a quarter of an hour awake without a network."""


@dataclass(frozen=True)
class Wanted:
    """Which output.

    Attributes:
        name: a submission's id, or a job's.
        task: of an array; None: all.
        errors: standard error instead of standard output.
        follow: until the job has ended.
    """

    name: str
    task: int | None = None
    errors: bool = False
    follow: bool = False

    @property
    def request(self) -> dict[str, Any]:
        """As the cluster is asked."""
        return {
            "op": "logs",
            "id": self.name,
            "task": self.task,
            "errors": self.errors,
            "follow": self.follow,
        }


def follow(session: Session, wanted: Wanted, write: Callable[[str, bytes], None]) -> Mapping[str, Any]:
    """Write output as it comes; returns what the cluster says at the end.

    Args:
        write: takes the file's path and bytes.

    Raises:
        UnreachableError, TurnedAway: no login node answers, or lets us in, now or for long.
        HpctoolsError: there is no such submission.
    """
    reading = _Reading(session, wanted, write)
    failures = 0
    while True:
        before = (reading.path, reading.offset)
        try:
            return session.on_a_sound_node(reading.go_on)
        except (UnreachableError, TurnedAway) as error:  # the session that broke may still be counted
            session.drop()
            failures = 1 if (reading.path, reading.offset) != before else failures + 1
            if not reading.begun or failures > _MOST_FAILURES:
                raise
            if failures == 1:
                session.tell(f"{error.message}; trying again")
            session.sleep(_PAUSES[failures] if failures < len(_PAUSES) else _LONGEST_PAUSE)


@dataclass
class _Reading:
    session: Session
    wanted: Wanted
    write: Callable[[str, bytes], None]
    path: str = ""
    offset: int = 0
    last: bytes = b""
    begun: bool = False

    def go_on(self) -> Mapping[str, Any]:
        # What came last tells whether it is the same output still: a job that was requeued begins it anew.
        digest = hashlib.sha256(self.last).hexdigest()
        stands = {"path": self.path, "offset": self.offset, "last": [len(self.last), digest]}
        with self.session.exchange({**self.wanted.request, **stands}) as exchange:
            self.begun = True
            while "result" not in (message := exchange.get()).fields:
                self._take(str(message["path"]), int(message["offset"]), message.data)
            result: Mapping[str, Any] = message["result"]
            return result

    def _take(self, path: str, offset: int, data: bytes) -> None:
        self.write(path, data)
        goes_on = (path, offset) == (self.path, self.offset)
        self.last = ((self.last if goes_on else b"") + data)[-_LAST_BYTES:]
        self.path, self.offset = path, offset + len(data)
