"""What of an account's spending bore no fruit."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends

from api.deps import Ctx, Site, get_account
from api.periods import Days, KnownOn
from api.queries import StrictRoute
from api.routers import problems
from api.schemas.waste import WasteOut
from api.services.books import Moment
from api.services.waste import read_waste
from hpctools.budget.tree import Account

router = APIRouter(prefix="/v1/accounts", tags=["costs"], route_class=StrictRoute)


@router.get("/{name}/waste", responses=problems(401, 404, 422))
def get_waste(
    context: Ctx,
    site: Site,
    account: Annotated[Account, Depends(get_account)],
    period: Days,
    known_on: KnownOn,
) -> WasteOut:
    """What of an account's spending bore no fruit, and how idle the site's nodes were.

    Jobs are the account's own and those below it; `jobs` with `state` lists them. Nodes are the whole site's,
    since idle nodes are nobody's.
    """
    return WasteOut.of(period, read_waste(context.engine, site, account, period, Moment(known_on)))
