"""The application."""

from __future__ import annotations

import time
from collections.abc import Callable

from fastapi import FastAPI

from api import openapi, problems
from api.db.engine import connect
from api.deps import Context
from api.edge import Edge
from api.routers import accounts, health, pages, session
from api.services.site_file import SiteFile
from api.settings import Settings

_DESCRIPTION = (
    "What departments and labs spent on the cluster: the cloud bill joined to Slurm's jobs. "
    "Amounts are exact decimal strings; errors are problem details (RFC 9457)."
)


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
    app.add_middleware(Edge)
    for module in (accounts, health, session, pages):
        app.include_router(module.router)
    openapi.install(app)
    return app
