"""Accounts and their statements."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends

from api.deps import Bearer, Ctx, Site, get_account, get_month, get_own
from api.routers import problems
from api.schemas.account import AccountOut, AccountsOut
from api.schemas.statement import StatementOut
from api.services.statements import read_statement
from hpctools.budget.month import Month
from hpctools.budget.tree import Account

router = APIRouter(prefix="/v1/accounts", tags=["accounts"])


@router.get("", responses=problems(401, 403))
def list_accounts(site: Site, principal: Bearer, own: Annotated[Account, Depends(get_own)]) -> AccountsOut:
    """Every account that the token may see."""
    seen = [account for name, account in site.by_name.items() if principal.may_see(site, name)]
    return AccountsOut(accounts=[AccountOut.of(account) for account in seen])


@router.get("/{name}/statement/{month}", responses=problems(401, 404, 422))
def get_statement(
    context: Ctx,
    site: Site,
    account: Annotated[Account, Depends(get_account)],
    month: Annotated[Month, Depends(get_month)],
) -> StatementOut:
    """What an account spent in a month, as it is known now."""
    return StatementOut.of(read_statement(context.engine, site, account, month))
