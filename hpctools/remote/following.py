"""A job's output on a laptop, whatever becomes of the connection: no byte twice, none missing."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hpctools.errors import HpctoolsError, UnreachableError, UsageError
from hpctools.remote.patience import Patience, passes
from hpctools.remote.session import Session
from hpctools.remote.transport import HungUp, LostConnection

_LAST_BYTES = 4096


@dataclass(frozen=True)
class Wanted:
    """Which output.

    Attributes:
        name: a submission's id, or a job's.
        task: of an array; None: all.
        errors: standard error instead of standard output.
        follow: until the job has ended.
        begun: the cluster was there just now: what may pass is waited for from the start.
    """

    name: str
    task: int | None = None
    errors: bool = False
    follow: bool = False
    begun: bool = False

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
        UnreachableError, TurnedAway, NoKeyTaken: no login node answers, or lets us in, now or for long.
        UnknownHost, WrongHost: one is not who it should be.
        HpctoolsError: there is no such submission, now or for long.
    """
    reading, patience = _Reading(session, wanted, write, begun=wanted.begun), Patience(session)
    while True:
        before = (reading.path, reading.offset)
        try:
            return session.on_a_sound_node(reading.go_on)
        except HpctoolsError as error:  # the session that broke may still be counted
            session.drop()
            if (reading.path, reading.offset) != before:
                patience.renew()
            if not (reading.begun and reading.may_pass(error) and patience.wait(error)):
                raise


@dataclass
class _Reading:
    """What has been read.

    Attributes:
        begun: something came, or the line broke while it was waited for: the cluster took the question.
    """

    session: Session
    wanted: Wanted
    write: Callable[[str, bytes], None]
    path: str = ""
    offset: int = 0
    last: bytes = b""
    begun: bool = False

    def may_pass(self, error: HpctoolsError) -> bool:
        """Whether to ask again; the cluster's own storage or Slurm may be away, too.

        A question that is wrong there (several outputs) is wrong for ever, unless it was answered before.
        """
        wrong = error.exit_code == UsageError.exit_code and not self.path
        return passes(error) or (type(error) is HpctoolsError and not wrong)

    def go_on(self) -> Mapping[str, Any]:
        """Read on to the end. A line that breaks before the first word counts as begun, too."""
        try:
            return self._exchanged()
        except LostConnection as error:
            self.begun = self.begun or not isinstance(error, HungUp)
            raise

    def _exchanged(self) -> Mapping[str, Any]:
        # What came last tells whether it is the same output still: a job that was requeued begins it anew.
        digest = hashlib.sha256(self.last).hexdigest()
        stands = {"path": self.path, "offset": self.offset, "last": [len(self.last), digest]}
        with self.session.exchange({**self.wanted.request, **stands}) as exchange, self._noted():
            while "result" not in (message := exchange.get()).fields:
                self._take(str(message["path"]), int(message["offset"]), message.data)
            result: Mapping[str, Any] = message["result"]
            return result

    @contextlib.contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
        except UnreachableError:
            self.begun = True
            raise

    def _take(self, path: str, offset: int, data: bytes) -> None:
        self.begun = True
        self.write(path, data)
        goes_on = (path, offset) == (self.path, self.offset)
        self.last = ((self.last if goes_on else b"") + data)[-_LAST_BYTES:]
        self.path, self.offset = path, offset + len(data)
