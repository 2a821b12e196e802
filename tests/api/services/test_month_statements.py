"""Statements say of a budget what the pages say: for every month its own, in every form."""

from __future__ import annotations

import csv
from dataclasses import replace
from datetime import date
from decimal import Decimal
from io import StringIO
from typing import Any

import pytest
from sqlalchemy import insert

from api.db.access_models import Reconciliation, ReconciliationEvent
from api.db.budget_models import BurnReading
from api.db.engine import writing
from api.formats.pdf import as_pdf
from api.services.books import month_period
from api.services.budgets import Change, approve, set_budget, with_budgets
from api.services.month_statements import read_month_statement
from api.services.reconcile import reconcile
from api.services.reports import read_report
from api.services.standing import Standing, read_standing
from hpctools.budget.allowance import Calendar, Spec
from hpctools.budget.month import Month, day_of, day_start
from hpctools.budget.statement import Statement
from hpctools.budget.tree import BudgetSite

NOVEMBER, OCTOBER, DECEMBER = Month(2026, 11), Month(2026, 10), Month(2026, 12)
DAY = 86400


def said(engine: Any, site: BudgetSite, name: str, month: Month, now: int) -> Statement:
    asked = with_budgets(engine, site, day_of(now))
    return read_month_statement(engine, asked, asked.by_name[name], month, now)


def shown(engine: Any, site: BudgetSite, name: str, month: Month, now: int) -> Standing:
    """What the page has."""
    asked = with_budgets(engine, site, day_of(now))
    report = read_report(engine, asked, asked.by_name[name], month_period(month))
    return read_standing(engine, asked, report, now)


def same(statement: Statement, page: Standing) -> None:
    allowed = page.allowed
    assert (statement.budget, statement.carried, statement.approved) == (
        (allowed.total, allowed.carried, allowed.approved) if allowed else (None, None, None)
    )
    assert (statement.left, statement.percent_used) == (page.left, page.percent_used)
    assert statement.projected == (page.forecast.expected if page.forecast else None)
    assert (statement.spent, statement.unbilled) == (page.spent, page.burn.unbilled)


@pytest.fixture
def lively(november_service: Any, site: BudgetSite, bills: Any, jobs: Any, now: int) -> Any:
    """Something was approved in November, something runs, and October is known, too."""
    engine = november_service.engine
    reconcile(engine, site, OCTOBER, bills, jobs, now)
    change = Change("head", now, "deadline")
    approve(engine, site.by_name["nlp"], Decimal("2000.00"), date(2026, 12, 24), change)
    row = {"at": now + 1, "account": "nlp-lab-a", "per_hour": Decimal(9), "unbilled": Decimal(81), "jobs": 2}
    with writing(engine) as session:
        session.execute(insert(BurnReading), [row])
    return engine


@pytest.mark.parametrize("month", [OCTOBER, NOVEMBER, DECEMBER])
@pytest.mark.parametrize("name", ["root", "nlp", "nlp-lab-a", "cv", "dl-lab-a"])
def test_a_statement_has_the_pages_figures(
    lively: Any, site: BudgetSite, name: str, month: Month, now: int
) -> None:
    same(said(lively, site, name, month, now), shown(lively, site, name, month, now))


def test_what_was_carried_over_and_approved_may_be_spent(lively: Any, site: BudgetSite, now: int) -> None:
    """nlp carries 5,000 at most of October into November, and was approved 2,000 more."""
    found = said(lively, site, "nlp", NOVEMBER, now)
    assert (found.budget, found.carried, found.approved) == (32000, 5000, 2000)
    assert found.left == 32000 - found.spent - 81
    assert found.projected is not None
    assert found.projected > found.spent
    assert found.days[0].expected == Decimal("1066.67")


def test_a_month_that_is_over_keeps_its_budget(lively: Any, site: BudgetSite, now: int) -> None:
    """October's statement is opened in November, when the budget is another one."""
    before = said(lively, site, "nlp", OCTOBER, now)
    spec = site.by_name["nlp"].spec
    assert spec is not None
    dearer = replace(spec, amount=Decimal(40000), alert_at=(1,))
    set_budget(lively, site, site.by_name["nlp"], dearer, NOVEMBER.start, Change("dean", now))
    assert (before.budget, before.projected) == (25000, None)
    assert said(lively, site, "nlp", OCTOBER, now) == replace(
        before, account=with_budgets(lively, site, day_of(now)).by_name["nlp"]
    )
    november = said(lively, site, "nlp", NOVEMBER, now)
    assert (november.budget, november.reached) == (47000, (1,))


def test_a_month_that_is_over_is_the_same_on_any_later_day(lively: Any, site: BudgetSite, now: int) -> None:
    seen = [said(lively, site, "nlp", NOVEMBER, day_start(date(2027, month, 5))) for month in (1, 6)]
    assert seen[0] == seen[1]
    assert (seen[0].budget, seen[0].unbilled, seen[0].projected) == (32000, 0, None)


def test_a_budget_for_other_periods_is_not_cut_into_months(lively: Any, site: BudgetSite, now: int) -> None:
    yearly = Spec(Decimal(300000), "USD", Calendar("yearly"))
    set_budget(lively, site, site.by_name["nlp"], yearly, date(2026, 1, 1), Change("dean", now))
    found = said(lively, site, "nlp", NOVEMBER, now)
    assert (found.budget, found.left, found.percent_used) == (None, None, None)
    assert found.projected is not None


def test_as_it_was_known_nothing_runs_and_nothing_is_expected(
    lively: Any, site: BudgetSite, now: int
) -> None:
    nlp = site.by_name["nlp"]
    found = read_month_statement(lively, site, nlp, NOVEMBER, now + DAY, known_on=now)
    assert (found.budget, found.unbilled, found.projected) == (32000, 0, None)
    assert found.left == 32000 - found.spent


def test_all_forms_have_the_same_figures(
    november_service: Any, lively: Any, site: BudgetSite, now: int
) -> None:
    client, url = november_service.client("nlp"), "/v1/accounts/nlp/statement/2026-11"
    told = client.get(url).json()
    expected = {
        name: told[name] for name in ("budget", "carried", "approved", "unbilled", "left", "projected")
    }
    rows = list(csv.DictReader(StringIO(client.get(f"{url}?format=csv").text)))
    assert {row["name"]: row["amount"] for row in rows if row["name"] in expected} == expected
    assert expected["approved"] == "2000"
    same_statement = said(lively, site, "nlp", NOVEMBER, now)
    assert client.get(f"{url}?format=pdf").content == as_pdf(same_statement)
    page = november_service.browser("nlp").get("/accounts/nlp?period=2026-11").text
    for name in ("budget", "left", "projected"):
        assert f"${Decimal(told[name]):,.2f}" in page


def test_who_asks_for_a_statement_after_another_asks_the_database_nothing(
    lively: Any, site: BudgetSite, now: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Allowances and what runs are read once for all accounts."""
    said(lively, site, "nlp", NOVEMBER, now)

    def never(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr("api.services.month_statements.read_allowances", never)
    monkeypatch.setattr("api.services.month_statements.burn_of_all", never)
    said(lively, site, "cv", NOVEMBER, now)


def test_what_ran_is_billed_once_a_reconciliation_has_ended_also_one_that_posted_nothing(
    lively: Any, site: BudgetSite, now: int
) -> None:
    """Statements went on telling it as unbilled until the next reading, and pages did."""
    assert said(lively, site, "nlp", NOVEMBER, now).unbilled == 81
    with writing(lively) as session:
        run = Reconciliation(month=str(NOVEMBER), principal="head", requested_at=now)
        session.add(run)
        session.flush()
        ended = {"reconciliation_id": run.id, "state": "done", "at": now + 2, "detail": "{}"}
        session.execute(insert(ReconciliationEvent), [ended])
    found = said(lively, site, "nlp", NOVEMBER, now)
    assert found.unbilled == 0
    same(found, shown(lively, site, "nlp", NOVEMBER, now))
