"""How much a request may send, and how long its answer may take."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import ProblemError, respond
from api.rooted import route_of

_RETRY_SECONDS = "30"
_SOON_SECONDS = "2"
# How the service is must be told just when it has too much to do.
_ALWAYS = ("/livez", "/healthz", "/metrics")


class Limits:
    """Between the server and the application.

    Args:
        most_bytes: of a request's body; more is answered 413.
        most_at_once: requests that are being answered; one more is answered 503 at once, instead of waiting
            behind all of them.
        seconds: until an answer begins; then it is 503. What was begun in a thread is carried to its end all
            the same, its answer is dropped.
    """

    def __init__(self, app: ASGIApp, most_bytes: int, most_at_once: int, seconds: float) -> None:
        self._app = app
        self._most_at_once = most_at_once
        self._at_once = 0
        self._most = most_bytes
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection, as ASGI describes it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        length = Headers(scope=scope).get("content-length", "0")
        if not length.isdecimal() or int(length) > self._most:
            problem = ProblemError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, self._too_much())
            await respond(Request(scope), problem)(scope, receive, send)
            return
        if self._at_once >= self._most_at_once and route_of(scope) not in _ALWAYS:
            await respond(Request(scope), _too_many(self._at_once))(scope, receive, send)
            return
        await self._in_time(scope, self._counted(receive), send)

    def _counted(self, receive: Receive) -> Receive:
        seen = 0

        async def count() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._most:
                raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, self._too_much())
            return message

        return count

    async def _in_time(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = _Answer(send)
        task = asyncio.ensure_future(self._app(scope, receive, answer))
        self._at_once += 1
        task.add_done_callback(self._ended)
        try:
            done, _ = await asyncio.wait({task}, timeout=self._seconds)
            if not done and not answer.begun:
                answer.dropped = True
                problem = ProblemError(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    f"There was no answer within {self._seconds:g} seconds. Try again later.",
                    headers={"Retry-After": _RETRY_SECONDS},
                )
                await respond(Request(scope), problem)(scope, receive, send)
                task.add_done_callback(_forget)
                return
            await task
        except HTTPException as error:
            # Raised by `_counted` where nobody behind us made an answer of it.
            problem = ProblemError(HTTPStatus(error.status_code), error.detail)
            await respond(Request(scope), problem)(scope, receive, send)
        except asyncio.CancelledError:
            task.cancel()
            raise

    def _ended(self, _: asyncio.Future[None]) -> None:
        self._at_once -= 1

    def _too_much(self) -> str:
        return f"A request may have at most {self._most} bytes."


def _too_many(count: int) -> ProblemError:
    return ProblemError(
        HTTPStatus.SERVICE_UNAVAILABLE,
        f"{count} requests are being answered. Try again in some seconds.",
        headers={"Retry-After": _SOON_SECONDS},
    )


class _Answer:
    """What the application sends, until nobody waits for it any more."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False
        self.dropped = False

    async def __call__(self, message: Message) -> None:
        if not self.dropped:
            self.begun = True
            await self._send(message)


def _forget(task: asyncio.Future[None]) -> None:
    """Nobody asks for the outcome of what came too late; a failure was logged where it happened."""
    if not task.cancelled():
        task.exception()
