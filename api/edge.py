"""What holds for every answer, whatever the route: its headers, HEAD, a line in the log and a figure."""

from __future__ import annotations

import logging
import time
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.headers import HEADERS, ID, SCOPE_ID
from api.logs import REQUEST_ID, request_id
from api.metrics import Metrics
from api.rooted import ROOT, root_of

# Others are whatever a client writes there, and each would be a series of its own.
_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

_log = logging.getLogger("hpctools.access")


class Edge:
    """Between the server and the application.

    HEAD is answered as GET is, without the body (RFC 9110, 9.3.2): FastAPI's routes answer 405.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection, as ASGI describes it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # The answer to a bug is made outside of us, and reads it there.
        scope[SCOPE_ID] = request_id(Headers(scope=scope).get(ID))
        begun = time.perf_counter()
        answer = _Answer(send, scope[SCOPE_ID], scope["method"] == "HEAD")
        inner = {**scope, "method": "GET"} if answer.is_head else scope
        mark, root = REQUEST_ID.set(scope[SCOPE_ID]), ROOT.set(root_of(scope))
        try:
            await self._app(inner, receive, answer)
        finally:
            self._tell(scope["method"], inner, answer.status, time.perf_counter() - begun)
            ROOT.reset(root)
            REQUEST_ID.reset(mark)

    def _tell(self, method: str, scope: Scope, status: int, seconds: float) -> None:
        route = _template(scope)
        self._metrics.answered(method if method in _METHODS else "", route, status, seconds)
        client = scope.get("client")
        _log.info(
            "%s %s %d",
            method,
            scope["path"],
            status,
            extra={
                "method": method,
                "path": scope["path"],
                "status": status,
                "seconds": round(seconds, 4),
                "client": client[0] if client else None,
            },
        )


class _Answer:
    """What is sent, with what every answer has."""

    def __init__(self, send: Send, name: str, is_head: bool) -> None:
        self._send = send
        self._name = name
        self.is_head = is_head
        self.status = int(HTTPStatus.INTERNAL_SERVER_ERROR)

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            headers[ID] = self._name
        elif self.is_head:
            message = {**message, "body": b""}
        await self._send(message)


def _template(scope: Scope) -> str:
    """The path's template, `/v1/accounts/{name}`; empty where no route was found."""
    return str(getattr(scope.get("route"), "path", ""))
