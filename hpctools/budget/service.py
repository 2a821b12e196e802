"""The budget service, asked over HTTP.

A token comes from a file that only its owner reads, or from the environment; never from an argument, which
everybody on the machine can see. It is sent over https, or to this machine.
"""

from __future__ import annotations

import http.client
import json
import math
import os
import stat
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hpctools.budget.answers import fault
from hpctools.budget.connections import HUNG_UP, Kept, connect, limit
from hpctools.errors import BudgetError, ConflictError, UnreachableError, UsageError

SECONDS = 30.0
LARGEST = 64 << 20
MOST_TOKEN = 16_384
"""Characters of a token: a provider's may be as long for the service."""
_HERE = ("localhost", "127.0.0.1", "::1")
_WHERE = "set HPCTOOLS_API=https://HOST"
_STRANGER = "it is not the service that answers (maintenance? a sign-in before it?)"
_AGAIN = "try again, or ask its operator"
_Question = tuple[str, str, bytes | None, dict[str, str]]
"""Method, path, body and headers."""


class TokenRefusedError(BudgetError):
    """The service does not take the token: it is not, or no longer, one of its own."""


class MissingError(BudgetError):
    """There is no such thing, or not for this token."""


@dataclass(frozen=True)
class Service:
    """Where the service is, and who asks.

    Attributes:
        scheme, host: of its address; `host` with the port.
        path: what comes before `/v1`.
        seconds: how long anything is waited for: a connection, the next part of an answer.
        within: seconds for the whole of it, for who holds up others meanwhile. Usually as long as it goes on:
            a month of a large site takes its time.
        kept: connections for the next question; None: each has its own.
    """

    scheme: str
    host: str
    path: str
    token: str
    seconds: float = SECONDS
    kept: Kept | None = None
    within: float = math.inf

    def ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, if_match: str = ""
    ) -> Any:
        """Ask, and return what is answered.

        Args:
            path: from `/v1` on, with its query.
            body: sent as JSON. A POST can be sent again by itself: it carries a key of its own.
            if_match: the tag that `look` told: it is changed only if it is still so.

        Raises:
            UnreachableError: it does not answer, or cannot; or something else answers in its place, which has
                not the words that the service has, or other things in them (`hpctools.budget.answers`).
            BudgetError: it refuses; the message is its own. A TokenRefusedError when the token does not hold,
                a MissingError for a 404, a ConflictError for a 409.
        """
        return self._asked(method, path, body, if_match)[0]

    def look(self, path: str) -> tuple[Any, str]:
        """What a GET answers, and the tag of its state, for `ask` to change it; empty where there is none.

        Raises:
            UnreachableError, BudgetError: as `ask`.
        """
        return self._asked("GET", path, None, "")

    def foreign(self, path: str, wrong: str) -> UnreachableError:
        """What is to be said of an answer that is not the service's.

        Args:
            path: that was asked.
            wrong: to be said after `answers`.
        """
        where = f"{self.scheme}://{self.host}{self.path}{path.partition('?')[0]}"
        return UnreachableError(f"{where} answers {wrong}: {_STRANGER}, or it is of another release", _AGAIN)

    def _asked(
        self, method: str, path: str, body: Mapping[str, Any] | None, if_match: str
    ) -> tuple[Any, str]:
        status, text, tag = self._exchange(method, path, body, {"If-Match": if_match} if if_match else {})
        answer = _json(text)
        if status < http.client.BAD_REQUEST:
            is_foreign = not isinstance(answer, (dict, list)) and status != http.client.NO_CONTENT
            if is_foreign or status >= http.client.MULTIPLE_CHOICES:
                raise _not_the_service(self.host, status, text)
            if wrong := fault(method, path, answer):
                raise self.foreign(path, wrong)
            return answer, tag
        detail = answer.get("detail") if isinstance(answer, dict) else None
        told = _readable(f"{detail or text[:200]!s}").rstrip(".")
        if status >= http.client.INTERNAL_SERVER_ERROR:
            raise UnreachableError(f"{self.host} answers {status}: {told}", "try again, or ask its operator")
        kind = _REFUSALS.get(status, BudgetError)
        raise kind(f"{self.host} refuses ({status}): {told}", _remedy(status, path))

    def _exchange(
        self, method: str, path: str, body: Mapping[str, Any] | None, conditions: Mapping[str, str]
    ) -> tuple[int, str, str]:
        """Status, text and tag of an answer."""
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "application/json", **conditions}
        data = None
        if body is not None:
            headers["Content-Type"], data = "application/json", json.dumps(body).encode()
        if method == "POST":
            headers["Idempotency-Key"] = uuid.uuid4().hex
        question: _Question = (method, f"{self.path}{path}", data, headers)
        until = time.monotonic() + self.within
        try:
            if self.kept is not None and (connection := self.kept.take()) is not None:
                with suppress(*HUNG_UP):  # in this moment
                    return self._answered(connection, question, until)
            return self._answered(connect(self.scheme, self.host, self.seconds), question, until)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise UnreachableError(f"{self.host} does not answer: {error}", _WHERE) from None

    def _answered(
        self, connection: http.client.HTTPConnection, question: _Question, until: float
    ) -> tuple[int, str, str]:
        """Ask over a connection, which is closed then, or kept."""
        done = False
        try:
            limit(connection, self.seconds, until)
            # http.client follows no redirections, so the token goes nowhere else.
            connection.request(*question)
            answer = connection.getresponse()
            text = answer.read(LARGEST).decode("utf-8", "replace")
            if http.client.MULTIPLE_CHOICES <= answer.status < http.client.BAD_REQUEST:
                text = answer.getheader("Location", "")  # the page beside it says the same
            done = answer.isclosed() and not answer.will_close
            return answer.status, text, answer.getheader("ETag", "")
        finally:
            if done and self.kept is not None:
                self.kept.give(connection)
            else:
                connection.close()


def find_service(environment: Mapping[str, str], where: str = _WHERE) -> Service:
    """The service that $HPCTOOLS_API names, with the token of $HPCTOOLS_API_TOKEN or of a file.

    The file is $HPCTOOLS_API_TOKEN_FILE, or ~/.hpctools/token.

    Args:
        where: what to do about an address that is none.

    Raises:
        UsageError: no service is named, its address is no https, there is no token, or others can read it.
    """
    return replace(named_service(environment, where), token=read_token(environment))


def named_service(environment: Mapping[str, str], where: str = _WHERE) -> Service:
    """The service that $HPCTOOLS_API names, for who has no token yet.

    Args:
        where: what to do about an address that is none.

    Raises:
        UsageError: no service is named, or its address is no https.
    """
    address = environment.get("HPCTOOLS_API", "")
    try:
        url = urlsplit(address)
        known = url.hostname
    except ValueError:
        known = None
    if not known:
        raise UsageError("no budget service is named" if not address else f"{address!r} is no address", where)
    if url.scheme != "https" and not (url.scheme == "http" and known in _HERE):
        raise UsageError(f"a token is not sent to {address}", "use https://")
    return Service(url.scheme, url.netloc.rpartition("@")[2], url.path.rstrip("/"), "")


def read_token(environment: Mapping[str, str]) -> str:
    """The token of $HPCTOOLS_API_TOKEN, or of the file $HPCTOOLS_API_TOKEN_FILE (~/.hpctools/token).

    Raises:
        UsageError: there is none, or others can read it.
    """
    stated = environment.get("HPCTOOLS_API_TOKEN", "").strip()
    if stated:
        return _printable(stated, "HPCTOOLS_API_TOKEN")
    return token_in(token_file(environment))


def token_file(environment: Mapping[str, str]) -> str:
    """The file that a token is looked for in: $HPCTOOLS_API_TOKEN_FILE, or ~/.hpctools/token."""
    home = environment.get("HOME", "/nonexistent")
    return environment.get("HPCTOOLS_API_TOKEN_FILE") or f"{home}/.hpctools/token"


def token_in(file: str) -> str:
    """The token in a file that only its owner reads.

    Raises:
        UsageError: there is none, or others can read it.
    """
    path = Path(file)
    try:
        with path.open(encoding="ascii") as opened:
            mode = stat.S_IMODE(os.fstat(opened.fileno()).st_mode)
            text = opened.read(MOST_TOKEN).strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UsageError(
            f"cannot read the token in {path}: {reason}", "ask your administrator for one (mode 0600)"
        ) from None
    if mode & 0o077:
        raise UsageError(f"others can read the token in {path}", f"chmod 600 {path}")
    return _printable(text, str(path))


def _printable(text: str, where: str) -> str:
    if not text or not text.isascii() or not text.isprintable():
        raise UsageError(f"there is no token in {where}", "ask your administrator for one")
    return text


_REFUSALS: dict[int, type[BudgetError]] = {
    http.client.UNAUTHORIZED: TokenRefusedError,
    http.client.NOT_FOUND: MissingError,
    http.client.CONFLICT: ConflictError,
}


_OF_LOGIN = {
    403: "ask your administrator for a token of your own (hpctools-api token create --user)",
    404: "see `hp-login --sessions` and `hpctools login nodes`",
}


def _readable(text: str) -> str:
    """Lines for a terminal, without what it would take for a command: whatever is in between may answer."""
    return "".join(char if char.isprintable() or char == "\n" else " " for char in text)


def _json(text: str) -> Any:
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None


def _not_the_service(host: str, status: int, text: str) -> UnreachableError:
    """A redirection (to `text`) or a page: something before the service has answered for it."""
    if status < http.client.MULTIPLE_CHOICES:
        told = f"{host} answers {status} with {'a page that is no JSON' if text else 'nothing'}"
        if _json(text) is not None or text == "null":
            told = f"{host} answers {status} with JSON that is none of the service's"
        return UnreachableError(f"{told}: {_STRANGER}", _AGAIN)
    place = "".join(char for char in text[:200] if " " < char <= "~")
    to = f" to {place}" if place else ""
    return UnreachableError(
        f"{host} answers {status} and sends on{to}: it is not the service that answers",
        f"{_WHERE} to the service's own address, or ask its operator",
    )


def _remedy(status: int, path: str) -> str:
    if path.startswith("/v1/login/") and status in _OF_LOGIN:
        return _OF_LOGIN[status]
    return {
        401: "ask your administrator for a token that is valid",
        403: "ask for a token that may do this",
        404: "see `hpctools budget status` for the accounts that you may see",
    }.get(status, "")
