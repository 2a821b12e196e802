"""Who a secret belongs to: one of our own tokens, or one of the site's OpenID provider."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import Request
from sqlalchemy import Engine

from api.auth.principal import Principal
from api.services import sessions, tokens
from api.services.site_file import SiteFile

if TYPE_CHECKING:
    from api.auth.oidc import Oidc
    from api.auth.sign_in import SignIn


@dataclass(frozen=True)
class Context:
    """What the application was started with.

    Attributes:
        clock: Unix seconds now.
        oidc: the site's OpenID provider, if it has one.
        sign_in: for its people with browsers, if they may.
    """

    engine: Engine
    site_file: SiteFile
    clock: Callable[[], int]
    oidc: Oidc | None = None
    sign_in: SignIn | None = None


def identify(context: Context, secret: str) -> Principal | None:
    """Who a secret belongs to; None when it opens nothing.

    Raises:
        UnreachableError: the database or the OpenID provider does not answer.
    """
    if context.oidc is not None and context.oidc.concerns(secret):
        return context.oidc.verify(secret, context.site_file.people(), context.clock())
    return tokens.verify(context.engine, secret, context.clock())


def identify_browser(context: Context, secret: str) -> Principal | None:
    """Who a browser's cookie belongs to: it has a token of ours, or a session that the provider opened.

    A session that another provider opened, before the settings named this one, opens nothing.

    Raises:
        UnreachableError: the database does not answer.
    """
    person = sessions.find(context.engine, secret, context.clock()) if context.oidc is not None else None
    if context.oidc is not None and person is not None and context.oidc.vouches(person):
        return context.oidc.principal(person, context.site_file.people())
    return tokens.verify(context.engine, secret, context.clock())


def bearer(request: Request) -> str:
    """The secret of `Authorization: Bearer`; empty when there is none."""
    kind, _, secret = request.headers.get("authorization", "").partition(" ")
    return secret.strip() if kind.lower() == "bearer" else ""


def identify_request(request: Request) -> Principal | None:
    """Who sends a request of a program."""
    return identify(request.app.state.context, bearer(request))
