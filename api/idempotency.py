"""Idempotency keys: a POST that is sent again with the same key is answered again, not carried out again.

As in the IETF's draft-ietf-httpapi-idempotency-key-header: the same key with another request is 422, with one
that is still being answered 409. Only answers of success are kept: what was refused changed nothing and may
be tried again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from http import HTTPStatus

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.auth.principal import Principal
from api.problems import ProblemError, failure, respond
from api.rooted import route_of
from api.services import answers
from api.services.answers import Answer, Asked
from hpctools.errors import HpctoolsError

HEADER = "idempotency-key"
IGNORING = frozenset({"/v1/tokens", "/v1/login/sessions", "/v1/login/leases"})
"""Whose answers are kept nowhere. That of a token has its secret. Who wants to log in is answered as things
are now, may ask again in any case, and must not wait for the books, which a reconciliation may have."""
LONGEST = 255

# What stands in front of the application makes these anew for each answer.
_KEPT_HEADERS = {"content-type", "location", "etag"}


class Idempotency:
    """Between the server and the application, for POST under /v1 but what is IGNORING keys.

    Args:
        identify: who asks, by their request; None for nobody.
    """

    def __init__(self, app: ASGIApp, identify: Callable[[Request], Principal | None]) -> None:
        self._app = app
        self._identify = identify

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection, as ASGI describes it."""
        if not self._concerns(scope):
            await self._app(scope, receive, send)
            return
        try:
            await self._handle(Request(scope, receive), send)
        except HpctoolsError as error:
            # What stands behind us makes answers of errors; here we are in front of it.
            await failure(Request(scope), error)(scope, receive, send)

    def _concerns(self, scope: Scope) -> bool:
        if scope["type"] != "http" or scope["method"] != "POST":
            return False
        route = route_of(scope)
        return route.startswith("/v1/") and route not in IGNORING

    async def _handle(self, request: Request, send: Send) -> None:
        key = request.headers.get(HEADER)
        if key is None or (principal := await run_in_threadpool(self._identify, request)) is None:
            await self._app(request.scope, request.receive, send)
            return
        if not (0 < len(key) <= LONGEST and key.isascii() and key.isprintable()):
            problem = _unusable(f"An Idempotency-Key has 1 to {LONGEST} printable ASCII characters.")
            await respond(request, problem)(request.scope, request.receive, send)
            return
        body = await request.body()
        asked = Asked(principal.name, _digest(key.encode()), _fingerprint(request, body))
        context = request.app.state.context
        found = await run_in_threadpool(answers.begin, context.engine, asked, context.clock())
        if found == "new":
            await self._carry_out(request, asked, body, send)
            return
        answer = _again(found) if isinstance(found, Answer) else respond(request, _conflict(found))
        await answer(request.scope, request.receive, send)

    async def _carry_out(self, request: Request, asked: Asked, body: bytes, send: Send) -> None:
        engine, seen = request.app.state.context.engine, _Seen()
        try:
            await self._app(request.scope, _once_more(body), seen)
        finally:
            if seen.status < HTTPStatus.BAD_REQUEST:
                await run_in_threadpool(answers.finish, engine, asked, seen.answer())
            else:
                await run_in_threadpool(answers.forget, engine, asked)
        for message in seen.messages:
            await send(message)


class _Seen:
    """An answer that is held back until it is kept."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.status = int(HTTPStatus.INTERNAL_SERVER_ERROR)

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        self.messages.append(message)

    def answer(self) -> Answer:
        headers = Headers(raw=self.messages[0]["headers"])
        kept = {name: value for name, value in headers.items() if name in _KEPT_HEADERS}
        body = b"".join(message.get("body", b"") for message in self.messages[1:])
        return Answer(self.status, kept, body)


def _again(answer: Answer) -> Response:
    headers = {**answer.headers, "Idempotent-Replayed": "true"}
    return Response(answer.body, answer.status, headers=headers)


def _conflict(found: str) -> ProblemError:
    if found == "other":
        return _unusable("This Idempotency-Key was used for another request. Choose a new one.")
    return ProblemError(
        HTTPStatus.CONFLICT,
        "The first request with this Idempotency-Key is not answered yet. If it never is, see what it did "
        "before you send it with a new key.",
        headers={"Retry-After": "5"},
    )


def _unusable(detail: str) -> ProblemError:
    told = {"field": f"header.{HEADER}", "message": detail}
    return ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, detail, errors=(told,))


def _once_more(body: bytes) -> Receive:
    """The body again, for those behind us."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return messages.pop() if messages else {"type": "http.disconnect"}

    return receive


def _fingerprint(request: Request, body: bytes) -> str:
    said = (request.method, request.url.path, request.url.query, request.headers.get("content-type", ""))
    return _digest(repr(said).encode() + body)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
