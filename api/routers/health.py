"""Whether the service works."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from pydantic import BaseModel

from api.auth.identify import bearer
from api.auth.principal import Principal
from api.db.migrate import HEAD, current
from api.deps import Ctx, known
from api.problems import forbidden
from api.routers import problems
from api.services.login_overview import read_figures
from hpctools.budget.tree import SITE_ACCOUNT
from hpctools.errors import UnreachableError

router = APIRouter(tags=["health"])

_EXAMPLE = "# TYPE hpctools_api_database_up gauge\nhpctools_api_database_up 1.0\n"


class Health(BaseModel):
    """The service works."""

    status: Literal["ok"] = "ok"


@router.get("/livez")
def livez() -> Health:
    """Answers 200 while the process answers at all. Needs no token."""
    return Health()


@router.get("/healthz", responses=problems(503))
def healthz(context: Ctx) -> Health:
    """Answers 200 when the database answers and its tables are up to date. Needs no token."""
    if current(context.engine) != HEAD:
        raise UnreachableError("the database's tables are not up to date", "run `hpctools-api migrate`")
    return Health()


@router.get("/readyz", responses=problems(500, 503))
def readyz(context: Ctx) -> Health:
    """As /healthz, and the site file can be read. Needs no token."""
    context.site_file.current()
    return healthz(context)


@router.get(
    "/metrics",
    response_class=PlainTextResponse,
    responses={200: {"content": {"text/plain": {"example": _EXAMPLE}}}, **problems(401, 403, 500)},
)
def metrics(request: Request, context: Ctx) -> PlainTextResponse:
    """Figures for Prometheus. Needs a token of the whole site, or to come from here if that is set."""
    state = request.app.state
    settings = state.settings
    is_open = settings.metrics == "loopback" and _is_local(request)
    if not is_open and not _reads_all(known(context, bearer(request))):
        raise forbidden("read on the whole site")
    text = request.app.state.metrics.text(
        context.engine,
        settings.metric,
        context.clock(),
        lambda: read_figures(state.login_store, context.engine, context.site_file.in_force().rules),
    )
    return PlainTextResponse(text, media_type=CONTENT_TYPE_PLAIN_0_0_4)


def _reads_all(principal: Principal) -> bool:
    """Whether a token reads the whole site, which is above all accounts also while its file is broken."""
    return any(grant.allows("read") and grant.account in (None, SITE_ACCOUNT) for grant in principal.grants)


def _is_local(request: Request) -> bool:
    """Whether a request comes from this machine, and from no proxy on it."""
    forwarded = any(name in request.headers for name in ("x-forwarded-for", "forwarded", "via"))
    return not forwarded and request.client is not None and request.client.host in ("127.0.0.1", "::1")
