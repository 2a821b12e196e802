"""The service as a daemon asks it for months: its token may be replaced under it (decision 0160)."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hpctools.budget.service import Service, TokenRefusedError, read_token, token_in
from hpctools.errors import HpctoolsError, UsageError

_log = logging.getLogger("hpctools.login")
_REST = 60.0
"""Seconds between two questions to Secrets Manager."""
_SECONDS = 20.0
_SECRET = re.compile(r"arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:\d{12}:secret:[A-Za-z0-9/_+=.@-]+")


@dataclass(frozen=True)
class Source:
    """Where a token may be.

    Attributes:
        place: for the log.
        read: raises HpctoolsError when there is none.
    """

    place: str
    read: Callable[[], str]


@dataclass
class Seldom:
    """A way to read that is taken now and then only; between, it tells what it told last. For one thread.

    Attributes:
        rest: seconds between two readings.
        monotonic: seconds, never going back.
    """

    read: Callable[[], str]
    rest: float
    monotonic: Callable[[], float]
    _due: float = float("-inf")
    _last: str | HpctoolsError = ""

    def __call__(self) -> str:
        """Read; raises HpctoolsError as the reading does, or did."""
        if self.monotonic() >= self._due:
            self._due = self.monotonic() + self.rest
            try:
                self._last = self.read()
            except HpctoolsError as error:
                self._last = error
        if isinstance(self._last, HpctoolsError):
            raise self._last
        return self._last


@dataclass
class Held:
    """The token that held last, empty before there was one; those who ask share it."""

    token: str


class RenewedService:
    """Asks the service; where it refuses the token, once more with each that the sources have beside it.

    No token at all counts as one that is refused, and the service does not hear of it.

    Threads may ask at the same time.

    Args:
        service: its own token is not used.
        sources: in the order in which they are read, and only while the token is refused.
    """

    def __init__(self, service: Service, held: Held, sources: Sequence[Source]) -> None:
        self._service, self._held, self._sources = service, held, sources
        self._said: dict[str, str] = {}

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Ask.

        Raises:
            UnreachableError, BudgetError: as `Service.ask`; TokenRefusedError when no source has another one.
        """
        tried = self._held.token
        try:
            return self._asked(tried, method, path, body)
        except TokenRefusedError as error:
            refused, said = {tried}, error
        for place, token in self._others(refused):
            try:
                answer = self._asked(token, method, path, body)
            except TokenRefusedError as error:
                refused.add(token)
                said = error
                continue
            self._held.token = token
            self._said.clear()
            _log.info("the token from %s holds", place)
            return answer
        raise said

    def _asked(self, token: str, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        if not token:
            raise TokenRefusedError(
                f"there is no token for {self._service.host}",
                "see the log for where it was looked for, and put one there (mode 0600)",
            )
        return replace(self._service, token=token).ask(method, path, body)

    def _others(self, refused: set[str]) -> Iterator[tuple[str, str]]:
        """Tokens that were not refused yet, each with its place: first that of who asked at the same time."""
        for source in (Source("before", lambda: self._held.token), *self._sources):
            try:
                token = source.read()
            except HpctoolsError as error:
                had = "the service refuses the token, and %s has no other: %s"
                self._warn(source.place, had if any(refused) else "%s has no token yet: %s", error)
                continue
            if token not in refused:
                yield source.place, token

    def _warn(self, place: str, words: str, error: HpctoolsError) -> None:
        """Say it where it is new, not with each question."""
        said = words % (place, error)
        if self._said.get(place) != said:
            self._said[place] = said
            _log.warning("%s", said)


def renewed(service: Service, environment: Mapping[str, str]) -> tuple[RenewedService, RenewedService]:
    """The service for who can wait, and for who cannot: PAM, for which AWS is too slow.

    Both read the token's file again; the first one also asks where $HPCTOOLS_API_TOKEN_SOURCE says, a file or
    the ARN of a secret, once a minute at most.

    Raises:
        UsageError: the source is neither.
    """
    held, file = Held(service.token), Source("its file", lambda: read_token(environment))
    stated = environment.get("HPCTOOLS_API_TOKEN_SOURCE", "")
    files, secrets = [file], []
    if stated.startswith("/"):
        files.append(Source(stated, lambda: token_in(stated)))
    elif _SECRET.fullmatch(stated):
        secrets.append(Source(stated, Seldom(lambda: secret_token(stated), _REST, time.monotonic)))
    elif stated:
        raise UsageError(
            f"HPCTOOLS_API_TOKEN_SOURCE={stated!r} is no place of a token",
            "name a file from / on, or the ARN of a secret of AWS Secrets Manager",
        )
    return RenewedService(service, held, [*files, *secrets]), RenewedService(service, held, files)


def secret_token(arn: str) -> str:
    """The text of a secret, by the aws command, as the nodes' own step has it: boto3 is not on every node.

    Raises:
        HpctoolsError: it cannot be had; never with the secret in the message.
    """
    from hpctools.slurm.run import run

    argv = ["aws", "secretsmanager", "get-secret-value", "--secret-id", arn, "--query", "SecretString"]
    done = run([*argv, "--output", "text", "--region", arn.split(":")[3]], timeout=_SECONDS, check=False)
    if done.code:
        words = [line for line in done.stderr.splitlines() if line.strip()]
        raise _unreadable(arn, words[-1] if words else f"exit code {done.code}")
    token = done.stdout.strip()
    if not token or not token.isascii() or not token.isprintable():
        raise _unreadable(arn, "it is no token")
    return token


def _unreadable(arn: str, why: str) -> HpctoolsError:
    return HpctoolsError(
        f"the secret {arn} cannot be read: {why}", "check it, and the rights of this node's role"
    )
