"""Signing in with a browser: the token goes into a cookie that no script and no other site can use."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from api.deps import COOKIE, Ctx
from api.pages.render import render
from api.problems import ProblemError
from api.services import tokens

router = APIRouter(include_in_schema=False)

_TWELVE_HOURS = 12 * 3600


def same_origin(request: Request) -> None:
    """Refuse forms that another site's page sent.

    SameSite keeps the cookie from such requests; this keeps others from signing a visitor in as themselves.

    Raises:
        ProblemError: 403.
    """
    origin = request.headers.get("origin")
    if origin is not None and _host(origin) != request.headers.get("host"):
        raise ProblemError(HTTPStatus.FORBIDDEN, "This form came from another site.")


def _host(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


@router.get("/login")
def show_login() -> HTMLResponse:
    """The form."""
    return HTMLResponse(render("login.html", failed=False))


@router.post("/login", dependencies=[Depends(same_origin)])
def login(request: Request, context: Ctx, token: Annotated[str, Form(max_length=256)] = "") -> Response:
    """Sign in."""
    secret = token.strip()
    if tokens.verify(context.engine, secret, context.clock()) is None:
        return HTMLResponse(render("login.html", failed=True), HTTPStatus.UNAUTHORIZED)
    answer = RedirectResponse("/", HTTPStatus.SEE_OTHER)
    answer.set_cookie(
        COOKIE,
        secret,
        max_age=_TWELVE_HOURS,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer


@router.post("/logout", dependencies=[Depends(same_origin)])
def logout() -> Response:
    """Sign out."""
    answer = RedirectResponse("/login", HTTPStatus.SEE_OTHER)
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return answer
