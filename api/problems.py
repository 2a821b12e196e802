"""Errors as HTTP: problem details (RFC 9457) for programs, a page for people. The only place that does it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException

from api.headers import HEADERS, ID, SCOPE_ID
from api.pages.render import render
from api.rooted import ROOT, root_of, route_of
from hpctools.errors import HpctoolsError, UnreachableError

MEDIA_TYPE = "application/problem+json"

_log = logging.getLogger("hpctools.api")


class ProblemError(Exception):
    """A request that cannot be answered.

    Args:
        status: the HTTP status.
        detail: what was wrong with this request, for a person.
        errors: what was wrong with which field.
    """

    def __init__(
        self,
        status: HTTPStatus,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        errors: tuple[dict[str, str], ...] = (),
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})
        self.errors = errors


def unauthorized() -> ProblemError:
    """Nobody is known to ask."""
    return ProblemError(
        HTTPStatus.UNAUTHORIZED,
        "A valid token is needed: Authorization: Bearer TOKEN.",
        headers={"WWW-Authenticate": "Bearer"},
    )


def not_found(what: str) -> ProblemError:
    """There is no such thing, or the one who asks may not know that there is."""
    return ProblemError(HTTPStatus.NOT_FOUND, f"There is no {what} that you may see.")


def forbidden(scope: str) -> ProblemError:
    """Who asks is known, and may not do this."""
    return ProblemError(HTTPStatus.FORBIDDEN, f"Your token lacks the scope {scope} for this.")


def install(app: FastAPI) -> None:
    """Make every error of an application a problem."""
    app.add_exception_handler(ProblemError, _on_problem)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(HpctoolsError, _on_failure)
    app.add_exception_handler(Exception, _on_bug)


async def _on_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, ProblemError)  # noqa: S101 - the handler's registration says so
    return respond(request, error)


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101
    status = HTTPStatus(error.status_code)
    said = error.detail if error.detail != status.phrase else f"{status.description or status.phrase}."
    return respond(request, ProblemError(status, said, headers=error.headers))


async def _on_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101
    fields = tuple(
        {"field": ".".join(str(part) for part in found["loc"]), "message": found["msg"]}
        for found in error.errors()
    )
    detail = "; ".join(f"{field['field']}: {field['message']}" for field in fields)
    return respond(request, ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, detail, errors=fields))


async def _on_failure(request: Request, error: Exception) -> Response:
    assert isinstance(error, HpctoolsError)  # noqa: S101
    return failure(request, error)


def failure(request: Request, error: HpctoolsError) -> Response:
    """Something behind us failed: the reason goes to the log, it may tell paths and hosts."""
    _log.error("%s %s: %s", request.method, request.url.path, error)
    if isinstance(error, UnreachableError):
        away = "Something that the service needs does not answer. Try again later."
        return respond(request, ProblemError(HTTPStatus.SERVICE_UNAVAILABLE, away))
    broken = "The service cannot answer. Its log tells the operator why."
    return respond(request, ProblemError(HTTPStatus.INTERNAL_SERVER_ERROR, broken))


async def _on_bug(request: Request, error: Exception) -> Response:
    # The server logs the traceback itself.
    _log.error("%s %s failed: %r", request.method, request.url.path, error)
    broken = "The service met an error of its own. Its log tells the operator more."
    return respond(request, ProblemError(HTTPStatus.INTERNAL_SERVER_ERROR, broken))


def respond(request: Request, problem: ProblemError) -> Response:
    """A problem as an answer: details for programs, a page for people."""
    # The answer to a bug goes past Edge, outside of which Starlette catches it.
    headers = HEADERS | problem.headers
    if SCOPE_ID in request.scope:
        headers[ID] = request.scope[SCOPE_ID]
    if not _wants_page(request):
        return JSONResponse(_body(request, problem), problem.status, media_type=MEDIA_TYPE, headers=headers)
    if problem.status == HTTPStatus.UNAUTHORIZED:
        return RedirectResponse(_login(request), HTTPStatus.SEE_OTHER)
    # Edge has told it to pages; the answer to a bug is made outside of it.
    ROOT.set(root_of(request.scope))
    page = render("problem.html", title=problem.status.phrase, detail=problem.detail)
    return HTMLResponse(page, problem.status, headers=headers)


def _body(request: Request, problem: ProblemError) -> dict[str, Any]:
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": problem.status.phrase,
        "status": problem.status.value,
        "detail": problem.detail,
        "instance": quote(request.url.path),
    }
    return body | ({"errors": list(problem.errors)} if problem.errors else {})


def _login(request: Request) -> str:
    """The form that leads back here; what was to be changed is asked for again."""
    root, path = root_of(request.scope), route_of(request.scope, request.url.path)
    if path == "/" or request.method not in ("GET", "HEAD"):
        return f"{root}/login"
    query = f"?{request.url.query}" if request.url.query else ""
    return f"{root}/login?next={quote(f'{path}{query}', safe='')}"


def _wants_page(request: Request) -> bool:
    return not route_of(request.scope).startswith("/v1/") and "text/html" in request.headers.get("accept", "")
