"""Who a secret belongs to: one of our own tokens, or one of the site's OpenID provider."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import Request
from sqlalchemy import Engine

from api.auth.principal import Principal
from api.services import tokens
from api.services.site_file import SiteFile

if TYPE_CHECKING:
    from api.auth.oidc import Oidc


@dataclass(frozen=True)
class Context:
    """What the application was started with.

    Attributes:
        clock: Unix seconds now.
        oidc: the site's OpenID provider, if it has one.
    """

    engine: Engine
    site_file: SiteFile
    clock: Callable[[], int]
    oidc: Oidc | None = None


def identify(context: Context, secret: str) -> Principal | None:
    """Who a secret belongs to; None when it opens nothing.

    Raises:
        UnreachableError: the database or the OpenID provider does not answer.
    """
    if context.oidc is not None and context.oidc.concerns(secret):
        return context.oidc.verify(secret, context.site_file.people(), context.clock())
    return tokens.verify(context.engine, secret, context.clock())


def bearer(request: Request) -> str:
    """The secret of `Authorization: Bearer`; empty when there is none."""
    kind, _, secret = request.headers.get("authorization", "").partition(" ")
    return secret.strip() if kind.lower() == "bearer" else ""


def identify_request(request: Request) -> Principal | None:
    """Who sends a request of a program."""
    return identify(request.app.state.context, bearer(request))
