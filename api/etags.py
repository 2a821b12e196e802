"""Entity tags (RFC 9110, 8.8.3): 304 for what a client has, 412 for changes to what it has not seen."""

from __future__ import annotations

import hashlib
import re
from http import HTTPStatus
from typing import Annotated

from fastapi import Header
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import ProblemError
from api.rooted import route_of

IfMatch = Annotated[
    str | None,
    Header(
        max_length=4096,
        description="The ETag of what is to be changed, as GET told it: only that is changed. "
        "Left out, or `*`: whatever it is.",
        examples=["*"],
    ),
]

_TAGS = re.compile(r'(?:W/)?"[\x21\x23-\x7e]*"')


def of(*parts: object) -> str:
    """The tag of a state that is told by these parts, for example a version number."""
    return f'"{hashlib.sha256(repr(parts).encode()).hexdigest()[:32]}"'


def demand(if_match: str | None, current: str) -> None:
    """Refuse a change by somebody who saw another state than the present one.

    Args:
        if_match: the request's If-Match; None for who does not care.
        current: the tag that GET answers with now.

    Raises:
        ProblemError: 412, it names another state.
    """
    # Strong comparison: a weak tag never matches (RFC 9110, 13.1.1).
    if any_state(if_match) or current in _TAGS.findall(if_match or ""):
        return
    raise overtaken()


def any_state(if_match: str | None) -> bool:
    """Whether a change is wanted whatever the present state is."""
    return if_match is None or if_match.strip() == "*"


def overtaken() -> ProblemError:
    """412: somebody else was faster."""
    return ProblemError(
        HTTPStatus.PRECONDITION_FAILED, "It has changed since you read it. Read it again and decide anew."
    )


class Conditional:
    """Gives every answer to GET under /v1 a tag, and answers 304 where the client names it.

    A route may set a tag of its own, for `demand`. Answers in several pieces pass as they are.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection, as ASGI describes it."""
        if scope["type"] != "http" or scope["method"] != "GET" or not route_of(scope).startswith("/v1/"):
            await self._app(scope, receive, send)
            return
        await self._app(scope, receive, _Tagging(Headers(scope=scope), send))


class _Tagging:
    """Holds the head of an answer back until its body is known."""

    def __init__(self, asked: Headers, send: Send) -> None:
        self._known = asked.get("if-none-match", "")
        self._send = send
        self._start: Message | None = None

    async def __call__(self, message: Message) -> None:
        """Pass a message on, or hold it."""
        if message["type"] == "http.response.start" and message["status"] == HTTPStatus.OK:
            self._start = message
            return
        if message["type"] == "http.response.body" and self._start is not None:
            start, self._start = self._start, None
            if not message.get("more_body"):
                message = self._tag(start, message)
            await self._send(start)
        await self._send(message)

    def _tag(self, start: Message, body: Message) -> Message:
        headers = MutableHeaders(scope=start)
        tag = headers.setdefault("ETag", of(body.get("body", b"")))
        headers["Cache-Control"] = "private, no-cache"
        headers.add_vary_header("Authorization")
        headers.add_vary_header("Accept")
        if self._known.strip() != "*" and tag not in _TAGS.findall(self._known.replace("W/", "")):
            return body
        start["status"] = HTTPStatus.NOT_MODIFIED.value
        for name in ("content-length", "content-type", "content-disposition"):
            del headers[name]
        return {**body, "body": b""}
