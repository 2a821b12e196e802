"""How jobs ended: each is counted on one day, once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import Engine

from api.services.books import Moment
from api.services.waste import read_waste
from hpctools.budget.allowance import Period
from hpctools.budget.month import Month, day_start
from hpctools.budget.tree import BudgetSite

Reconcile = Callable[..., Any]
NOVEMBER = Period(date(2026, 11, 1), date(2026, 12, 1))


def ended(engine: Engine, site: BudgetSite, period: Period, moment: Moment = Moment()) -> dict[str, int]:  # noqa: B008
    found = read_waste(engine, site, site.by_name["root"], period, moment)
    return {each.state: each.jobs for each in found.ended if each.jobs}


def test_a_job_that_ended_at_midnight_ended_on_the_day_that_it_ran_on(
    engine: Engine, site: BudgetSite, jobs: Any, reconcile_november: Reconcile
) -> None:
    one = next(job for job in jobs.records if job.end and job.start > day_start(date(2026, 11, 3)))
    third, fourth = day_start(date(2026, 11, 3)), day_start(date(2026, 11, 4))
    jobs.records = [
        replace(one, dbindex=1, job_id=1, start=third + 3600, end=fourth, state="FAILED"),
        replace(one, dbindex=2, job_id=2, start=third + 3600, end=fourth + 1, state="TIMEOUT"),
        replace(one, dbindex=3, job_id=3, start=third, end=third + 1, state="CANCELLED"),
    ]
    reconcile_november()
    days = [Period(day, day + timedelta(days=1)) for day in (date(2026, 11, 2 + n) for n in range(4))]
    assert [ended(engine, site, day) for day in days] == [
        {},
        {"FAILED": 1, "CANCELLED": 1},
        {"TIMEOUT": 1},
        {},
    ]
    assert ended(engine, site, NOVEMBER) == {"FAILED": 1, "CANCELLED": 1, "TIMEOUT": 1}


def test_a_job_that_is_billed_in_two_currencies_ended_once(
    engine: Engine,
    site: BudgetSite,
    november: Month,
    bills: Any,
    jobs: Any,
    reconcile_november: Reconcile,
) -> None:
    jobs.records = [job for job in jobs.records if job.end is not None]
    reconcile_november()
    before = ended(engine, site, NOVEMBER)
    rows = bills.rows(november)
    support = [replace(row, currency="EUR", usage="support", node_hours=Decimal(0)) for row in rows]
    bills.months[november] = (*rows, *support)
    reconcile_november()
    assert ended(engine, site, NOVEMBER) == before
    assert sum(before.values()) > 100


def test_waste_is_told_as_it_was_known(
    engine: Engine, site: BudgetSite, jobs: Any, reconcile_november: Reconcile, now: int
) -> None:
    reconcile_november()
    jobs.records = [replace(job, state="FAILED") if job.end else job for job in jobs.records]
    reconcile_november(now + 60)
    told = read_waste(engine, site, site.by_name["nlp"], NOVEMBER, Moment(now))
    assert (told.currency, told.quality.as_of) == ("USD", now)
    assert {each.state for each in told.ended} == {"COMPLETED", "FAILED", "CANCELLED", "RUNNING"}
    assert set(ended(engine, site, NOVEMBER)) == {"FAILED"}
