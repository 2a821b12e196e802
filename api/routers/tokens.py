"""Tokens: made, listed and revoked by administrators."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from api.deps import Admin, Ctx, Site
from api.paging import Paged, cut
from api.problems import ProblemError, not_found
from api.queries import StrictRoute
from api.routers import problems
from api.schemas.access import NewTokenOut, TokenIn, TokenOut, TokensOut, new_token
from api.services import tokens
from hpctools.errors import UsageError

router = APIRouter(prefix="/v1/tokens", tags=["operation"], route_class=StrictRoute)

Name = Annotated[
    str,
    Path(
        pattern=r"^(user:[A-Za-z_][A-Za-z0-9_.@-]{0,59}:)?[A-Za-z0-9][A-Za-z0-9._@-]{0,127}$",
        description="A token's name, as it is listed.",
        examples=["nlp-head"],
    ),
]


@router.get("", responses=problems(401, 403, 422))
def list_tokens(context: Ctx, admin: Admin, page: Paged) -> TokensOut:
    """All tokens by name, revoked ones too; never their secrets."""
    known = tokens.listed(context.engine)
    found, following = cut(known, page, "tokens", lambda info: (info.name,), [str])
    return TokensOut(tokens=[TokenOut.of(info) for info in found], next=following)


@router.post("", status_code=HTTPStatus.CREATED, responses=problems(401, 403, 409, 413, 422))
def create_token(
    context: Ctx, admin: Admin, site: Site, wanted: TokenIn, request: Request, response: Response
) -> NewTokenOut:
    """Make a token; the answer has its secret, once.

    An Idempotency-Key is ignored here: the answer is kept nowhere, and a name cannot be taken twice.
    """
    new, now = wanted.new(), context.clock()
    if new.account is not None and new.account not in site.by_name:
        raise _unusable("account", "The site has no account of this name.")
    if new.expires_at is not None and new.expires_at <= now:
        raise _unusable("expires_at", "This moment is over.")
    try:
        secret, info = tokens.issue(context.engine, new, admin, now)
    except tokens.TakenError as error:
        raise ProblemError(HTTPStatus.CONFLICT, f"{error}.") from None
    except UsageError as error:
        raise _unusable("scopes", f"{error}.") from None
    response.headers["Location"] = f"{request.scope.get('root_path', '')}/v1/tokens/{info.name}"
    return new_token(info, secret)


@router.delete("/{name}", responses=problems(401, 403, 404, 422))
def revoke_token(context: Ctx, admin: Admin, name: Name) -> TokenOut:
    """End a token at once. Its name stays taken; one that is revoked stays as it is."""
    try:
        return TokenOut.of(tokens.revoke(context.engine, name, context.clock(), admin))
    except UsageError:
        raise not_found("token of this name") from None


def _unusable(field: str, message: str) -> ProblemError:
    told = {"field": f"body.{field}", "message": message}
    return ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, message, errors=(told,))
