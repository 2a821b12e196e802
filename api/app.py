"""The application."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from anyio import CapacityLimiter
from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool

from api import openapi, problems
from api.auth.identify import Context, identify_request
from api.db.engine import connect
from api.db.in_loop import InLoop
from api.db.login_store import LoginStore
from api.edge import Edge
from api.etags import Conditional
from api.idempotency import Idempotency
from api.limits import Limits
from api.metrics import Metrics
from api.routers import (
    accounts,
    alerts,
    audit,
    budgets,
    costs,
    enforcement,
    health,
    jobs,
    login,
    login_often,
    page_alerts,
    page_budgets,
    page_costs,
    page_enforcement,
    page_login_nodes,
    page_reconciliation,
    page_statements,
    pages,
    rates,
    reconciliations,
    session,
    tokens,
    waste,
)
from api.services.scheduler import Scheduler
from api.services.site_file import SiteFile
from api.services.site_work import SiteWork
from api.services.slurm_limits import SlurmLimits
from api.services.warming import Warming
from api.services.watching import SiteWatch, Watching
from api.settings import Settings

if TYPE_CHECKING:
    from api.auth.oidc import Oidc
    from api.auth.sign_in import SignIn

_STOP_SECONDS = 5.0
# Of a server an answer is waited for without the interpreter; a file answers at once.
_LOGIN_THREADS = {"sqlite": 1, "postgresql": 2}
_THREADS = {"sqlite": 2, "postgresql": 4}
_OFTEN = (login_often, accounts, pages)
_PAGES = (
    page_alerts,
    page_budgets,
    page_costs,
    page_enforcement,
    page_login_nodes,
    page_reconciliation,
)
_API = (
    costs,
    waste,
    jobs,
    budgets,
    alerts,
    rates,
    enforcement,
    reconciliations,
    audit,
    tokens,
    login,
)

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
        title="hpctools budgets",
        version="1",
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        lifespan=_alive,
    )
    engine, site_file = connect(settings.database_url), SiteFile(settings.site, settings.metric)
    app.state.context = Context(engine, site_file, clock, *_oidc(settings))
    app.state.settings, app.state.limits_of = settings, SlurmLimits
    app.state.metrics = Metrics()
    app.state.one_way_threads = CapacityLimiter(_THREADS[engine.dialect.name])
    app.state.login_threads = CapacityLimiter(_LOGIN_THREADS[engine.dialect.name])
    app.state.login_store = LoginStore(engine, clock)
    app.state.scheduler = Scheduler(
        engine, SiteWork(settings, site_file, engine), settings.metric, settings.reconcile_every, clock
    )
    watch = SiteWatch(settings, site_file, engine)
    app.state.watching = Watching(engine, watch, settings.watch_every, clock)
    app.state.warming = Warming(engine, site_file, clock)
    problems.install(app)
    _stand_in_front(app, settings)
    # Routes are tried one after the other. An included router is looked through twice, and makes its routes
    # anew at the first request: a quarter of a second.
    # page_statements has /jobs/7.csv, which would be a number of page_costs.
    for module in (*_OFTEN, *_API, health, session, page_statements, *_PAGES):
        app.router.routes.extend(module.router.routes)
    openapi.install(app)
    return app


@asynccontextmanager
async def _alive(app: FastAPI) -> AsyncIterator[None]:
    """While the service is served."""
    works = (app.state.scheduler, app.state.watching, app.state.warming)
    for work in works:
        work.start()
    engine = app.state.context.engine
    app.state.in_loop = InLoop(engine) if engine.dialect.name == "postgresql" else None
    yield
    for work in works:
        await run_in_threadpool(work.stop, _STOP_SECONDS)
    if app.state.in_loop is not None:
        await app.state.in_loop.close()
    app.state.context.engine.dispose()


def _stand_in_front(app: FastAPI, settings: Settings) -> None:
    """What every request passes; the last one that is added is the first."""
    app.add_middleware(Idempotency, identify=identify_request)
    app.add_middleware(Conditional)
    app.add_middleware(
        Limits,
        most_bytes=settings.most_request_bytes,
        most_at_once=settings.most_at_once,
        seconds=settings.answer_seconds,
    )
    app.add_middleware(Edge, metrics=app.state.metrics)


def _oidc(settings: Settings) -> tuple[Oidc | None, SignIn | None]:
    """The OpenID provider, for programs and for people with browsers.

    Raises:
        UsageError: its URL, or the file with our password there, cannot be used.
    """
    provider, client = settings.provider(), settings.client()
    if provider is None:
        return None, None
    from api.auth.oidc import Oidc
    from api.auth.sign_in import SignIn, read_secret

    oidc = Oidc(provider)
    if client is None:
        return oidc, None
    read_secret(client)
    return oidc, SignIn(provider.issuer, client, oidc)
