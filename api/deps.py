"""What a route may ask for: who asks, the site, the store. Permissions are here and nowhere else.

What waits for nothing is `async`: everything else is carried to a thread and back, for each request anew. So
who asks, and the site, are found out on one way there where a route needs both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Path, Query, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.auth.identify import Context, identify, identify_browser, identify_request
from api.auth.principal import Principal, Scope
from api.one_way import waited
from api.problems import ProblemError, forbidden, not_found, unauthorized
from api.rooted import route_of
from api.services.budgets import with_budgets
from hpctools.budget.month import Month, day_of
from hpctools.budget.tree import Account, BudgetSite
from hpctools.errors import BudgetError

COOKIE = "hpctools_token"

_bearer = HTTPBearer(auto_error=False, description="A token made with `hpctools-api token create`.")


async def get_context(request: Request) -> Context:
    """The application's context."""
    context: Context = request.app.state.context
    return context


Ctx = Annotated[Context, Depends(get_context)]


async def get_bearer(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> Principal:
    """Who asks, by `Authorization: Bearer`. The cookie does not count here: /v1 needs no CSRF protection."""
    return await _identified(request, identify_request)


async def get_visitor(request: Request) -> Principal:
    """Who asks, by the cookie of a browser."""
    return await _identified(request, _by_cookie)


async def get_site(context: Ctx, request: Request) -> BudgetSite:
    """The site as its file is now, with the budgets that people set over it."""
    by = identify_request if route_of(request.scope).startswith("/v1/") else _by_cookie

    def read() -> tuple[Principal | None, BudgetSite]:
        today = day_of(context.clock())
        return by(request), with_budgets(context.engine, context.site_file.current(), today)

    principal, site = await waited(read)
    request.state.identified = by, principal
    return site


async def _identified(request: Request, by: Callable[[Request], Principal | None]) -> Principal:
    """Who asks; found out with the site where that was asked for before.

    Raises:
        ProblemError: 401, nobody whom we know.
    """
    before, principal = getattr(request.state, "identified", (None, None))
    if before is not by:
        principal = await waited(by, request)
    if principal is None:
        raise unauthorized()
    known_one: Principal = principal
    return known_one


def _by_cookie(request: Request) -> Principal | None:
    return identify_browser(request.app.state.context, request.cookies.get(COOKIE, ""))


def require(scope: Scope) -> Callable[[Principal], Awaitable[Principal]]:
    """A dependency: who asks by `Authorization: Bearer`, if they have a scope anywhere; else 403.

    The principal remembers the scope, and `visible_account` demands it of the account as well.

    >>> Writer = Annotated[Principal, Depends(require("write"))]
    """

    async def get(principal: Annotated[Principal, Depends(get_bearer)]) -> Principal:
        if not principal.has(scope):
            raise forbidden(scope)
        return principal.acts(scope)

    return get


Bearer = Annotated[Principal, Depends(require("read"))]
Anybody = Annotated[Principal, Depends(get_bearer)]
Writer = Annotated[Principal, Depends(require("write"))]
Enforcer = Annotated[Principal, Depends(require("enforce"))]
Admin = Annotated[Principal, Depends(require("admin"))]
Visitor = Annotated[Principal, Depends(get_visitor)]
Site = Annotated[BudgetSite, Depends(get_site)]
AccountName = Annotated[str, Path(max_length=128, examples=["nlp"])]
MonthName = Annotated[
    str,
    # For the description only: our own message says more than that of a pattern.
    Path(examples=["2026-11"], json_schema_extra={"pattern": r"^2[01]\d{2}-(0[1-9]|1[0-2])$"}),
]


@dataclass(frozen=True)
class Reader:
    """What a route needs that reads, in one dependency: each takes FastAPI 0.1 ms, and those below it too."""

    context: Context
    site: BudgetSite
    principal: Principal

    def account(self, name: str) -> Account:
        """An account that they may see; ProblemError as `visible_account`."""
        return visible_account(self.site, self.principal, name)


async def get_reader(
    request: Request,
    name: AccountName,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
) -> Reader:
    """Who asks by `Authorization: Bearer` and may read an account; 401, 403 or 404 else.

    It is looked for here: whoever may not see it hears so before anything else of what
    they sent is judged.
    """
    context = await get_context(request)
    site = await get_site(context, request)
    principal = await require("read")(await get_bearer(request, credentials))
    reader = Reader(context, site, principal)
    reader.account(name)
    return reader


def visible_account(site: BudgetSite, principal: Principal, name: str) -> Account:
    """An account that the principal may see, and may do with what the route does.

    Raises:
        ProblemError: 404, the same for accounts that do not exist and for those of others; 403 for one
            that may be read, where the route asks for more.
    """
    account = site.by_name.get(name)
    if account is None or not principal.may_see(site, name):
        raise not_found("account of this name")
    if not principal.may(principal.acting, site, name):
        raise forbidden(principal.acting)
    return account


def own_account(site: BudgetSite, principal: Principal) -> Account:
    """The topmost account that the principal may see; the first of several.

    Raises:
        ProblemError: 403, the site file does not know any account of theirs (any more).
    """
    for name, account in site.by_name.items():
        if principal.may_see(site, name):
            return account
    raise ProblemError(
        HTTPStatus.FORBIDDEN,
        "Your token is for an account that is no longer on this site. Ask for a new one.",
    )


async def get_own(site: Site, principal: Bearer) -> Account:
    """The topmost account of a program's token."""
    return own_account(site, principal)


async def get_account(name: AccountName, site: Site, principal: Bearer) -> Account:
    """The account in a path of /v1."""
    return visible_account(site, principal, name)


async def get_visited(name: Annotated[str, Path(max_length=128)], site: Site, principal: Visitor) -> Account:
    """The account in a page's path."""
    return visible_account(site, principal, name)


async def get_month(month: MonthName) -> Month:
    """The month in a path."""
    return month_of(month)


async def get_page_month(context: Ctx, month: Annotated[str | None, Query()] = None) -> Month:
    """The month in a page's query; the present one when there is none."""
    return month_of(month) if month is not None else Month.of(day_of(context.clock()))


def month_of(text: str) -> Month:
    """A month as somebody wrote it.

    Raises:
        ProblemError: 422, it is none.
    """
    try:
        return Month.parse(text)
    except BudgetError as error:
        field = {"field": "month", "message": str(error)}
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, f"{error}.", errors=(field,)) from None


def known(context: Context, secret: str) -> Principal:
    """Who a secret belongs to.

    Raises:
        ProblemError: 401, nobody.
    """
    principal = identify(context, secret)
    if principal is None:
        raise unauthorized()
    return principal
