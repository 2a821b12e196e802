"""Alerts."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from api.deps import Bearer, Ctx, Site, visible_account
from api.paging import Paged
from api.queries import StrictRoute
from api.routers import problems
from api.schemas.alert import AlertOut, AlertsOut
from api.services.alerts import listed

router = APIRouter(prefix="/v1/alerts", tags=["budgets"], route_class=StrictRoute)

Name = Annotated[
    str | None, Query(max_length=128, description="Only it and what is below it.", examples=["nlp"])
]


@router.get("", responses=problems(401, 403, 404, 422))
def list_alerts(context: Ctx, site: Site, principal: Bearer, page: Paged, account: Name = None) -> AlertsOut:
    """Alerts of the accounts that the token may see, the newest first."""
    if account is not None:
        visible_account(site, principal, account)
    names = site.subtree(account) if account is not None else site.by_name
    seen = {name for name in names if principal.may_see(site, name)}
    listing = f"/v1/alerts?account={account}"
    after = page.after(listing, [int])
    found = listed(context.engine, seen, before=int(after[0]) if after else None, limit=page.limit + 1)
    alerts, following = page.next(listing, found, lambda alert: (alert.id,))
    return AlertsOut(alerts=[AlertOut.of(alert) for alert in alerts], next=following)
