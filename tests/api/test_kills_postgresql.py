"""PostgreSQL is restarted in the middle of a reconciliation: the service survives, the next run does it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from sqlalchemy import Engine, event

from api.db.engine import connect, reading, writing
from api.db.migrate import upgrade
from api.paging import Page
from api.services import runs
from api.services.reconcile import reconcile
from api.services.scheduler import Scheduler
from hpctools.budget.month import Month
from hpctools.budget.tree import BudgetSite
from hpctools.errors import UnreachableError

PROBLEM = "application/problem+json"
ServeAt = Callable[[str, Engine], AbstractContextManager[Any]]


def ask(engine: Engine, month: Month, now: int) -> None:
    with writing(engine) as session:
        runs.ask(session, month, "head", now)


def statements(service: Any, site: BudgetSite, month: Month) -> list[bytes]:
    client = service.client(None)
    answers = [client.get(f"/v1/accounts/{name}/statement/{month}") for name in site.by_name]
    assert {answer.status_code for answer in answers} == {200}
    return [answer.content for answer in answers]


def stop_at(engine: Engine, point: int, stop: Callable[[], None]) -> Callable[[], int]:
    """Stop the database before one of the statements; returns how many there were so far."""
    seen = 0

    def on(*_: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == point:
            stop()

    event.listen(engine, "before_cursor_execute", on)
    return lambda: seen


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_restart_in_the_middle(
    own_postgres: Any,
    serve_at: ServeAt,
    november_service: Any,
    site: BudgetSite,
    november: Month,
    bills: Any,
    jobs: Any,
    now: int,
) -> None:
    """At the begin, at the end, and between: whatever was stored by then."""
    expected = statements(november_service, site, november)

    def disturbed(name: str, part: float, most: int) -> int:
        own_postgres.execute(f"CREATE DATABASE {name}")
        url = own_postgres.url(name)
        engine = connect(url)
        upgrade(engine)
        scheduler = Scheduler(
            engine,
            lambda month, at: reconcile(engine, site, month, bills, jobs, at),
            site.metric,
            0,
            lambda: now,
        )
        with serve_at(url, engine) as service:
            ask(engine, november, now)
            count = stop_at(engine, int(most * part), own_postgres.stop)
            if part:
                with pytest.raises(UnreachableError, match="the database cannot be used"):
                    scheduler.tick()
                is_away(service)
                own_postgres.start()
            assert scheduler.tick() == 1
            statements_of_it = count()
            assert statements(service, site, november) == expected
            with reading(engine) as session:
                found, _ = runs.listed(session, Page(10), None, None)
            assert [run.state for run in found] == (["done", "lost"] if part else ["done"])
        engine.dispose()
        return statements_of_it

    most = disturbed("quiet", 0, 0)
    for number, part in enumerate((0.2, 0.6, 0.95)):
        disturbed(f"away{number}", part, most)


def is_away(service: Any) -> None:
    """Programs get a problem, people a page, and the process itself is well."""
    client = service.anonymous()
    client.headers["Authorization"] = f"Bearer hpct_{'x' * 43}"
    answer = client.get("/v1/accounts")
    assert (answer.status_code, answer.headers["content-type"]) == (503, PROBLEM)
    assert answer.json()["title"] == "Service Unavailable"
    client.cookies.set("hpctools_token", f"hpct_{'x' * 43}")
    page = client.get("/", headers={"Accept": "text/html"})
    assert (page.status_code, page.headers["content-type"]) == (503, "text/html; charset=utf-8")
    assert client.get("/healthz").status_code == 503
    assert client.get("/livez").status_code == 200
