"""The page of reconciliation: a healthy one, and each way in which it is not."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from decimal import Decimal
from io import StringIO
from typing import Any

import pytest
from fastapi import Request

from api.db.engine import reading, writing
from api.deps import COOKIE
from api.pages.reconciliation import Settings, findings
from api.posting import form_token
from api.services import runs
from api.services.reconcile import Outcome, reconcile
from api.services.reconciliation_health import (
    JobsState,
    ReconciliationHealth,
    SourceState,
    read_reconciliation,
)
from api.services.runs import Run
from hpctools.budget.month import Month
from hpctools.budget.tree import BudgetSite

NOVEMBER = Month(2026, 11)
HOURLY = Settings(3600, 0)


def words(html: str) -> str:
    body = html.split("</header>")[1]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body)).replace("\xa0", " ")


def ended_well(service: Any, now: int) -> Run:
    with writing(service.engine) as session:
        run = runs.ask(session, NOVEMBER, "schedule", now)
        runs.begun(session, run, now)
        runs.done(session, run, Outcome(NOVEMBER, 21, 300, 890), now + 9)
    return run


@pytest.fixture
def healthy(november_service: Any, site: BudgetSite, now: int) -> ReconciliationHealth:
    ended_well(november_service, now)
    return read_reconciliation(november_service.engine, site, ["aws-ce"], now)


def told(health: ReconciliationHealth, now: int, settings: Settings = HOURLY) -> list[str]:
    return [each.what for each in findings(health, settings, now)]


def test_of_healthy_books_nothing_is_told(healthy: ReconciliationHealth, now: int) -> None:
    assert told(healthy, now) == []
    present = healthy.months[0]
    assert (present.month, present.done and present.done.ended_at) == (NOVEMBER, now + 9)
    (source,) = healthy.sources
    assert (source.name, source.pulled_at, source.billed_through) == ("aws-ce", now, date(2026, 11, 21))
    assert (source.estimated, source.changed_days) == (True, 21)
    assert healthy.jobs == JobsState(now, (), ())
    assert healthy.restatements == ()


def unhealthy(
    health: ReconciliationHealth, now: int
) -> dict[str, tuple[ReconciliationHealth, int, Settings]]:
    present, *earlier = health.months
    (source,) = health.sources
    failed = Run(9, NOVEMBER, "schedule", "failed", now, now, now, None, "AWS refuses: AccessDenied")
    statement = present.statement
    untagged = replace(statement.uncharged, untagged=statement.spent / 10)

    def of(**change: Any) -> ReconciliationHealth:
        return replace(health, months=(replace(present, **change), *earlier))

    def sources(**change: Any) -> ReconciliationHealth:
        return replace(health, sources=(replace(source, **change),))

    october = replace(earlier[0], statement=replace(earlier[0].statement, status="estimated"))
    return {
        "The last run ended 21 November 2026, 12:00 UTC without success: AWS refuses: AccessDenied.": (
            of(last=failed),
            now,
            HOURLY,
        ),
        "November 2026 was never reconciled.": (
            of(last=None, done=None, statement=replace(statement, as_of=None)),
            now,
            HOURLY,
        ),
        "The last success is from 21 November 2026, 12:00 UTC: nothing is brought up to date since.": (
            health,
            now + 9 + 3 * 3600 + 1,
            HOURLY,
        ),
        "The service begins no runs by itself (HPCTOOLS_API_RECONCILE_EVERY=0).": (
            health,
            now,
            Settings(0, 0),
        ),
        "Nothing was ever read of aws-ce.": (sources(pulled_at=None), now, HOURLY),
        "aws-ce has no rows of this month yet.": (sources(billed_through=None), now, HOURLY),
        "The bill of aws-ce ends on 18 November.": (sources(billed_through=date(2026, 11, 18)), now, HOURLY),
        "slurmdbd was not asked for 2 days (3 November to 4 November): their node time counts as idle.": (
            replace(health, jobs=JobsState(now, (date(2026, 11, 3), date(2026, 11, 4)), ())),
            now,
            HOURLY,
        ),
        "The bill has arrived for 89.9\xa0% of the node time that jobs used.": (
            of(coverage=0.8999),
            now,
            HOURLY,
        ),
        "October 2026 is still estimated.": (replace(health, months=(present, october)), now, HOURLY),
        "3 messages of alerts have not arrived.": (health, now, Settings(3600, 3)),
        "A message of an alert has not arrived.": (health, now, Settings(3600, 1)),
        f"10.0\xa0% of the bill (${statement.spent / 10:,.2f}) names no node group.": (
            of(statement=replace(statement, uncharged=untagged)),
            now,
            HOURLY,
        ),
    }


def test_each_unhealthy_state_is_told_with_what_to_do_next(healthy: ReconciliationHealth, now: int) -> None:
    for expected, (health, at, settings) in unhealthy(healthy, now).items():
        found = list(findings(health, settings, at))
        assert [each.what for each in found] == [expected]
        assert all(len(each.next) > 20 for each in found)


def test_a_restated_bill_is_told_with_what_it_changed(
    november_service: Any, site: BudgetSite, bills: Any, jobs: Any, now: int
) -> None:
    rows = bills.months[NOVEMBER]
    first = next(row for row in rows if row.amount > 0)
    bills.months[NOVEMBER] = tuple(
        replace(row, amount=row.amount + Decimal("12.34")) if row is first else row for row in rows
    )
    reconcile(november_service.engine, site, NOVEMBER, bills, jobs, now + 86400)
    (found,) = read_reconciliation(november_service.engine, site, ["aws-ce"], now).restatements
    assert (found.month, found.at, found.days, found.amount) == ("2026-11", now + 86400, 1, Decimal("12.34"))
    assert "bill" in found.reason
    assert not found.after_final


def test_days_that_nobody_asked_slurmdbd_for(sqlite_service: Any, site: BudgetSite, now: int) -> None:
    state = read_reconciliation(sqlite_service.engine, site, ["aws-ce"], now)
    assert state.jobs.told_at is None
    assert state.jobs.missing == tuple(NOVEMBER.days[:20])
    assert state.sources == (SourceState("aws-ce", None, None, True, 0, 0),)


def test_records_that_came_late(
    november_service: Any, site: BudgetSite, bills: Any, jobs: Any, now: int
) -> None:
    later = now + 15 * 86400
    jobs.records[0] = replace(jobs.records[0], gpus=1)
    reconcile(november_service.engine, site, NOVEMBER, bills, jobs, later)
    state = read_reconciliation(november_service.engine, site, ["aws-ce"], now)
    assert state.jobs.late == ((date(2026, 11, 1), date(2026, 11, 30), later),)


def test_the_page(november_service: Any, now: int) -> None:
    ended_well(november_service, now)
    page = words(november_service.browser(None).get("/reconciliation").text)
    # The tests' service begins no runs by itself.
    assert "What needs somebody The service begins no runs by itself" in page
    assert "November 2026 estimated 21 November 2026, 12:00 UTC 9 s 21 November 100.0 % $" in page
    assert "aws-ce 21 November 2026, 12:00 UTC 21 November may still change" in page
    assert (
        "1: 2026-11 done 21 November 2026, 12:00 UTC by schedule 9 s 21 bill days, 300 jobs, 890 ledger"
        in page
    )


def test_runs_as_csv(november_service: Any, now: int) -> None:
    ended_well(november_service, now)
    answer = november_service.browser(None).get("/reconciliation?format=csv")
    (row,) = csv.DictReader(StringIO(answer.text, newline=""))
    assert row == {
        "id": "1",
        "month": "2026-11",
        "state": "done",
        "principal": "schedule",
        "requested_at": "2026-11-21T12:00:00+00:00",
        "started_at": "2026-11-21T12:00:00+00:00",
        "ended_at": "2026-11-21T12:00:09+00:00",
        "bill_days": "21",
        "jobs": "300",
        "entries": "890",
        "error": "",
        "remedy": "",
    }


def test_a_month_is_queued_by_the_form(
    sqlite_service: Any, monkeypatch: pytest.MonkeyPatch, now: int
) -> None:
    browser, woken = sqlite_service.browser(None), []
    monkeypatch.setattr(sqlite_service.app.state.scheduler, "wake", lambda: woken.append(1))
    send: Callable[[str], Any] = lambda month: browser.post(  # noqa: E731
        "/reconciliation", data={"month": month, "form": form_of(browser)}
    )
    answer = send("2026-10")
    assert (answer.status_code, answer.headers["location"]) == (303, "/reconciliation#runs")
    with reading(sqlite_service.engine) as session:
        (run,) = runs.waiting(session)
    assert (run.month, run.requested_at, woken) == (Month(2026, 10), now, [1])
    assert "1: 2026-10 waits" in words(browser.get("/reconciliation").text)
    for wrong in ("2026-12", "2026-13", "x"):
        assert send(wrong).status_code == 422


def form_of(browser: Any) -> str:
    cookie = f"{COOKIE}={browser.cookies[COOKIE]}".encode()
    return form_token(Request({"type": "http", "headers": [(b"cookie", cookie)]}))
