"""Notices of a cloud that a node will be taken away: the agent asks the instance metadata service.

IMDSv2: a token first, then `spot/instance-action` (two minutes before a spot instance is interrupted) and
`events/recommendations/rebalance` (an elevated risk, without a time); both are 404 while there is nothing.
Source: Amazon EC2 user guide, "Spot Instance interruption notices" and "EC2 instance rebalance
recommendations", which say to look every 5 seconds.

Where no such service answers, it is asked three times and never again. $AWS_EC2_METADATA_SERVICE_ENDPOINT
names another one, $AWS_EC2_METADATA_DISABLED=true turns it off, as for the AWS SDKs.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlsplit

from hpctools.elastic.processes import in_own_thread

ENDPOINT = "http://169.254.169.254"
POLL_SECONDS = 5.0
ATTEMPTS = 3
ANSWER_SECONDS = 1.0
TOKEN_SECONDS = 21600
REPEAT_SECONDS = 30.0
SPOT_PATH = "/latest/meta-data/spot/instance-action"
REBALANCE_PATH = "/latest/meta-data/events/recommendations/rebalance"
LONGEST_ANSWER = 1 << 14

Say = Callable[..., None]


@dataclass(frozen=True)
class Notice:
    """The node is going to be taken away.

    Attributes:
        what: `spot` or `rebalance`.
        at: when, Unix seconds; None when nobody said.
    """

    what: str
    at: float | None = None


class NoService(Exception):
    """Nobody that speaks IMDSv2 answers."""


class Metadata:
    """The instance metadata service; blocking, each question for a second at most.

    Args:
        endpoint: its URL.

    Raises:
        ValueError: that is none.
    """

    def __init__(self, endpoint: str) -> None:
        parts = urlsplit(endpoint if "//" in endpoint else f"//{endpoint}")
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._token = ""
        self._renew_at = 0.0

    def notice(self) -> Notice | None:
        """What is announced; the more urgent when there is more than one.

        Raises:
            NoService: no answer, or one that is not IMDSv2's.
        """
        action = self._read(SPOT_PATH)
        if action is not None:
            return Notice("spot", _time_of(action))
        return Notice("rebalance") if self._read(REBALANCE_PATH) is not None else None

    def _read(self, path: str) -> dict[str, object] | None:
        """A document; None when there is none."""
        status, body = self._ask("GET", path, {"X-aws-ec2-metadata-token": self._fresh_token()})
        if status == http.client.UNAUTHORIZED:
            self._token = ""
            status, body = self._ask("GET", path, {"X-aws-ec2-metadata-token": self._fresh_token()})
        if status not in (http.client.OK, http.client.NOT_FOUND):
            raise NoService(f"{path}: status {status}")
        if status == http.client.NOT_FOUND:
            return None
        document = _object_of(body)
        if document is None:
            raise NoService(f"{path}: the answer is no JSON object")  # a proxy's page, say
        return document

    def _fresh_token(self) -> str:
        if not self._token or time.monotonic() >= self._renew_at:
            lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_SECONDS)}
            status, body = self._ask("PUT", "/latest/api/token", lifetime)
            if status != http.client.OK or not body.isprintable():
                raise NoService(f"no token: status {status}")
            self._token, self._renew_at = body, time.monotonic() + TOKEN_SECONDS / 2
        return self._token

    def _ask(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, str]:
        try:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=ANSWER_SECONDS)
            with contextlib.closing(connection):
                connection.request(method, path, headers=dict(headers))
                answer = connection.getresponse()
                return answer.status, answer.read(LONGEST_ANSWER).decode(errors="replace").strip()
        except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: a name that is none
            raise NoService(str(error)) from None


class Lookout:
    """Asks again and again, and tells the coordinator.

    Args:
        say: sends a message to the coordinator; what stands is told again every half minute, and when
            `forget` was called, since coordinators come and go.
        environ: the process's environment.
    """

    def __init__(self, say: Say, environ: Mapping[str, str], poll_seconds: float = POLL_SECONDS) -> None:
        self._say = say
        self._poll = poll_seconds
        self._metadata = _metadata_of(environ)
        self._told: tuple[Notice, float] | None = None

    async def keep(self) -> None:
        """Look until cancelled; returns where there is no such service."""
        failures, answered, metadata = 0, False, self._metadata
        while metadata is not None and (answered or failures < ATTEMPTS):
            try:
                notice = await in_own_thread(metadata.notice)
            except NoService:
                failures += 1
            else:
                answered = True
                self._tell(notice, time.monotonic())
            await asyncio.sleep(self._poll)

    def forget(self) -> None:
        """Who listens from now on was told nothing: what stands is told again when it is looked at next."""
        self._told = None

    def _tell(self, notice: Notice | None, now: float) -> None:
        if notice is None:
            self._told = None
            return
        if self._told is not None and self._told[0] == notice and now - self._told[1] < REPEAT_SECONDS:
            return
        self._told = (notice, now)
        seconds = None if notice.at is None else max(0.0, notice.at - time.time())
        self._say("notice", what=notice.what, seconds=seconds)


def _metadata_of(environ: Mapping[str, str]) -> Metadata | None:
    """The service that the environment names; None: it is turned off, or what is named cannot be one."""
    if environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return None
    endpoint = environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or ENDPOINT
    try:
        return Metadata(endpoint)
    except ValueError as error:
        print(
            f"elastic: AWS_EC2_METADATA_SERVICE_ENDPOINT={endpoint} is no URL ({error}); "
            "spot and rebalance notices will not be seen until it is one",
            file=sys.stderr,
            flush=True,
        )
        return None


def _object_of(body: str) -> dict[str, object] | None:
    """What a document says; None when it is none of IMDS."""
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def _time_of(action: dict[str, object]) -> float | None:
    """The `time` of an instance-action document, `2026-09-18T08:22:00Z`; None when it has none."""
    try:
        return datetime.fromisoformat(str(action["time"]).replace("Z", "+00:00")).timestamp()
    except (ValueError, KeyError, OverflowError):
        return None
