"""Signing in with a browser: with a token of ours, or through the site's OpenID provider.

What opens pages goes into a cookie that no script and no other site can use.
"""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Annotated
from urllib.parse import quote, unquote

from fastapi import APIRouter, Depends, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from api.auth.identify import Context
from api.auth.people import Person
from api.auth.sign_in import RefusedError, SignIn, new_secret
from api.deps import COOKIE, Ctx
from api.pages.render import render
from api.posting import local_path, root_of, same_origin
from api.problems import not_found
from api.services import sessions, tokens

router = APIRouter(include_in_schema=False)

FLOW = "hpctools_sign_in"
"""The cookie of a browser whose owner is at the provider."""
_TEN_MINUTES = 600
_CALLBACK = "/login/oidc/callback"

_log = logging.getLogger("hpctools.api")

Next = Annotated[str, Query(max_length=1000)]


@router.get("/login")
def show_login(context: Ctx, next: Next = "/") -> HTMLResponse:
    """The form, and the way to the provider."""
    return _form(context, next)


@router.post("/login", dependencies=[Depends(same_origin)])
def login(
    request: Request,
    context: Ctx,
    token: Annotated[str, Form(max_length=256)] = "",
    next: Annotated[str, Form(max_length=1000)] = "/",
) -> Response:
    """Sign in with a token."""
    secret = token.strip()
    if tokens.verify(context.engine, secret, context.clock()) is None:
        failed = "This token is not valid. It may have expired or been revoked."
        return _form(context, next, failed, HTTPStatus.UNAUTHORIZED)
    answer = RedirectResponse(f"{root_of(request)}{local_path(next)}", HTTPStatus.SEE_OTHER)
    _keep(answer, request, COOKIE, secret, sessions.SECONDS, "strict")
    return answer


@router.get("/login/oidc")
def begin_at_provider(request: Request, context: Ctx, next: Next = "/") -> Response:
    """Go to the provider. No form leads here: the page's policy lets forms end on this site only."""
    secret = new_secret()
    address = _sign_in(context).address(secret, _back(request))
    answer = RedirectResponse(address, HTTPStatus.SEE_OTHER)
    # Lax: the provider's answer is a link from another site.
    _keep(answer, request, FLOW, f"{secret}.{quote(local_path(next), safe='')}", _TEN_MINUTES, "lax")
    return answer


@router.get(_CALLBACK)
def come_back(request: Request, context: Ctx) -> Response:
    """Back from the provider."""
    secret, _, there = request.cookies.get(FLOW, "").partition(".")
    try:
        person = _sign_in(context).finish(secret, dict(request.query_params), _back(request), context.clock())
    except RefusedError as error:
        _log.warning("sign-in refused: %s", error)
        said = f"You could not be signed in: {error.message}. Try again."
        return _forget_flow(request, _form(context, unquote(there), said, HTTPStatus.FORBIDDEN))
    return _forget_flow(request, _opened(request, context, person, unquote(there)))


@router.post("/logout", dependencies=[Depends(same_origin)])
def logout(request: Request, context: Ctx) -> Response:
    """Sign out; a session ends here and now, whoever else has its cookie."""
    sessions.end(context.engine, request.cookies.get(COOKIE, ""))
    answer = RedirectResponse(f"{root_of(request)}/login", HTTPStatus.SEE_OTHER)
    answer.delete_cookie(COOKIE, _path(request), httponly=True, samesite="strict")
    return answer


def _opened(request: Request, context: Context, person: Person, there: str) -> Response:
    """A session for somebody, if anything is open to them."""
    assert context.oidc is not None  # noqa: S101 - nobody is signed in by a provider that is not there
    if not context.oidc.principal(person, context.site_file.people()).grants:
        said = (
            f"You are {person.user or person.subject}, and nothing is open to you here. Ask your system "
            "administrators: the site file or one of your groups has to name you."
        )
        return _form(context, there, said, HTTPStatus.FORBIDDEN)
    secret = sessions.begin(context.engine, person, context.clock())
    _log.info("%s signed in", person.name)
    answer = RedirectResponse(f"{root_of(request)}{local_path(there)}", HTTPStatus.SEE_OTHER)
    # Lax: this redirect, and links in mails of alerts, come from other sites; what changes anything is a
    # form with a token of its own.
    _keep(answer, request, COOKIE, secret, sessions.SECONDS, "lax")
    return answer


def _sign_in(context: Context) -> SignIn:
    if context.sign_in is None:
        raise not_found("OpenID provider to sign in at")
    return context.sign_in


def _back(request: Request) -> str:
    """Our address for the provider; scheme and host are the proxy's where it is trusted."""
    return f"{request.url.scheme}://{request.url.netloc}{root_of(request)}{_CALLBACK}"


def _form(context: Context, there: str, failed: str = "", status: HTTPStatus = HTTPStatus.OK) -> HTMLResponse:
    page = render(
        "login.html", failed=failed, provider=context.sign_in is not None, next=local_path(there), quote=quote
    )
    return HTMLResponse(page, status)


def _keep(answer: Response, request: Request, name: str, value: str, seconds: int, same_site: str) -> None:
    secure = request.url.scheme == "https"
    cookie: dict[str, object] = {"httponly": True, "samesite": same_site, "secure": secure}
    answer.set_cookie(name, value, max_age=seconds, path=_path(request), **cookie)  # type: ignore[arg-type]


def _path(request: Request) -> str:
    """Where cookies are sent: what else the host has under other paths gets none of ours."""
    return root_of(request) or "/"


def _forget_flow(request: Request, answer: Response) -> Response:
    answer.delete_cookie(FLOW, _path(request), httponly=True, samesite="lax")
    return answer
