"""The audit trail."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from api.db.engine import reading
from api.deps import Admin, Ctx
from api.paging import Paged
from api.queries import StrictRoute
from api.routers import problems
from api.schemas.access import AuditOut, AuditTrailOut
from api.services import audit

router = APIRouter(prefix="/v1/audit", tags=["operation"], route_class=StrictRoute)

Word = Annotated[str | None, Query(max_length=256, pattern=r"^[^\x00-\x1f\x7f]+$")]


@router.get("", responses=problems(401, 403, 422))
def read_audit_trail(
    context: Ctx, admin: Admin, page: Paged, principal: Word = None, action: Word = None, subject: Word = None
) -> AuditTrailOut:
    """Every change, the newest first: who, when, what, and from what to what."""
    with reading(context.engine) as session:
        wanted = audit.Wanted(principal, action, subject)
        found, following = audit.listed(session, page, wanted)
        return AuditTrailOut(entries=[AuditOut.of(entry) for entry in found], next=following)
