"""The application."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request, Response

from api import openapi, problems
from api.db.engine import connect
from api.deps import Context
from api.routers import accounts, health, pages, session
from api.services.site_file import SiteFile
from api.settings import Settings

_DESCRIPTION = (
    "What departments and labs spent on the cluster: the cloud bill joined to Slurm's jobs. "
    "Amounts are exact decimal strings; errors are problem details (RFC 9457)."
)

# No scripts at all; styles stand in the page itself.
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def create_app(settings: Settings, clock: Callable[[], int] = lambda: int(time.time())) -> FastAPI:
    """The service, ready to be served; the database's tables must exist.

    Args:
        clock: Unix seconds now.
    """
    app = FastAPI(
        title="hpctools budgets", version="1", description=_DESCRIPTION, docs_url=None, redoc_url=None
    )
    app.state.context = Context(
        connect(settings.database_url), SiteFile(settings.site, settings.metric), clock
    )
    problems.install(app)
    app.middleware("http")(_add_headers)
    for module in (accounts, health, session, pages):
        app.include_router(module.router)
    openapi.install(app)
    return app


async def _add_headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    response = await call_next(request)
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    return response
