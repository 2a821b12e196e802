"""Statements as files, for browsers."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query
from fastapi.responses import Response

from api.deps import Ctx, Site, get_month, get_visited
from api.formats.answers import statement_file
from api.services.statements import read_statement
from hpctools.budget.month import Month
from hpctools.budget.tree import Account

router = APIRouter(include_in_schema=False)


@router.get("/accounts/{name}/statement/{month}")
def download_statement(
    context: Ctx,
    site: Site,
    account: Annotated[Account, Depends(get_visited)],
    month: Annotated[Month, Depends(get_month)],
    format: Annotated[Literal["pdf", "csv", "focus"], Query()] = "pdf",
) -> Response:
    """What an account spent in a month, as it is known now, as a file."""
    statement = read_statement(context.engine, site, account, month)
    return statement_file(statement, format, site.cluster)
