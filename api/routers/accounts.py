"""Accounts and their statements."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Response

from api.db.in_loop import takes_long
from api.deps import AccountName, Bearer, MonthName, Reader, Site, get_own, get_reader, month_of
from api.formats.answers import statement_file
from api.formats.negotiate import Format, chosen
from api.formats.tables import CSV_EXAMPLE
from api.one_look import OneLookRoute
from api.one_way import OneWayRoute
from api.periods import KnownOnText, known_moment
from api.queries import StrictRoute
from api.routers import problems
from api.schemas.account import AccountOut, AccountsOut
from api.schemas.statement import StatementOut
from api.services.month_statements import read_month_statement
from hpctools.budget.tree import Account


class _Route(StrictRoute, OneWayRoute, OneLookRoute):
    pass


router = APIRouter(prefix="/v1/accounts", tags=["accounts"], route_class=_Route)

STATEMENT_FORMATS: dict[str, Any] = {
    "description": "The statement.",
    "content": {
        "text/csv": {"schema": {"type": "string"}, "example": CSV_EXAMPLE},
        "application/pdf": {"schema": {"type": "string", "format": "binary"}, "example": "%PDF-1.3"},
    },
}


@router.get("", responses=problems(401, 403))
async def list_accounts(
    site: Site, principal: Bearer, own: Annotated[Account, Depends(get_own)]
) -> AccountsOut:
    """Every account that the token may see."""
    seen = [account for name, account in site.by_name.items() if principal.may_see(site, name)]
    return AccountsOut(accounts=[AccountOut.of(account) for account in seen])


@router.get(
    "/{name}/statement/{month}",
    response_model=StatementOut,
    responses={200: STATEMENT_FORMATS, **problems(401, 404, 406, 422)},
)
async def get_statement(
    reader: Annotated[Reader, Depends(get_reader)],
    name: AccountName,
    month: MonthName,
    known_on: KnownOnText = None,
    format: Annotated[
        Format | None, Query(description="Instead of Accept; `focus` is CSV as FOCUS has it.")
    ] = None,
    accept: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> StatementOut | Response:
    """What an account spent in a month, as it is known now or was known once: JSON, CSV, PDF or FOCUS."""
    site, account, of = reader.site, reader.account(name), month_of(month)
    moment, form = known_moment(known_on), chosen(format, accept)
    if form != "json":
        takes_long()
    context = reader.context
    statement = read_month_statement(context.engine, site, account, of, context.clock(), moment)
    if form == "json":
        # As bytes: FastAPI would check and copy our own model once more, for each request anew.
        return Response(StatementOut.of(statement).model_dump_json(), media_type="application/json")
    return statement_file(statement, form, site.cluster)
