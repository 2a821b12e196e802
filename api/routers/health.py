"""Whether the service works."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from api.db.migrate import HEAD, current
from api.deps import Ctx
from api.routers import problems
from hpctools.errors import UnreachableError

router = APIRouter(tags=["health"])


class Health(BaseModel):
    """The service works."""

    status: Literal["ok"] = "ok"


@router.get("/healthz", responses=problems(503))
def healthz(context: Ctx) -> Health:
    """Answers 200 when the database answers and its tables are up to date. Needs no token."""
    if current(context.engine) != HEAD:
        raise UnreachableError("the database's tables are not up to date", "run `hpctools-api migrate`")
    return Health()
