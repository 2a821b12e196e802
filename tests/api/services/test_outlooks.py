"""Outlooks of all accounts at once: the same as one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import Engine, event, insert

from api.db.budget_models import BurnReading
from api.db.engine import writing
from api.services.budgets import Change, approve, split
from api.services.reconcile import reconcile
from api.services.spending import read_outlook, read_outlooks
from hpctools.budget.tree import BudgetSite


@pytest.fixture
def busy(
    engine: Engine,
    site: BudgetSite,
    bills: Any,
    jobs: Any,
    november: Any,
    now: int,
    reconcile_november: Callable[..., Any],
) -> Engine:
    """November and a bit of October, budgets of labs, an approval, jobs that run, an account that left."""
    gone = replace(jobs.records[0], account="closed", user="x")
    jobs.records[0] = gone
    reconcile_november()
    october = november.previous
    bills.months[october] = tuple(
        replace(row, day=october.days[-1]) for row in bills.rows(november) if row.day.day == 1
    )
    reconcile(engine, site, october, bills, jobs, now)
    change = Change("head", now, "as agreed")
    split(engine, site, site.by_name["nlp"], {"nlp-lab-a": Decimal(15000)}, change)
    approve(engine, site.by_name["nlp-lab-a"], Decimal(500), date(2026, 12, 24), change)
    with writing(engine) as session:
        for account in ("nlp-lab-a", "nlp-lab-b", "cv-lab-a", "closed"):
            row = {"at": now, "account": account, "per_hour": Decimal(3), "unbilled": Decimal(7), "jobs": 2}
            session.execute(insert(BurnReading), [row])
    return engine


@pytest.mark.parametrize("later", [0, 86400, 10 * 86400, 45 * 86400])
def test_all_at_once_is_as_one_by_one(busy: Engine, site: BudgetSite, now: int, later: int) -> None:
    single = [read_outlook(busy, site, account, now + later) for account in site.accounts]
    found = read_outlooks(busy, site, now + later)
    assert found == [outlook for outlook in single if outlook is not None]
    assert [outlook.account.name for outlook in found] == ["nlp", "nlp-lab-a", "cv", "dl", "dl-lab-a"]


def test_without_anything_known(engine: Engine, site: BudgetSite, now: int) -> None:
    single = [read_outlook(engine, site, account, now) for account in site.accounts]
    assert read_outlooks(engine, site, now) == [outlook for outlook in single if outlook is not None]


def test_more_accounts_need_no_more_queries(busy: Engine, site: BudgetSite, now: int) -> None:
    def queries(asked: BudgetSite) -> int:
        count: list[str] = []
        listener = lambda *given: count.append(given[2])  # noqa: E731
        event.listen(busy, "before_cursor_execute", listener)
        read_outlooks(busy, asked, now)
        event.remove(busy, "before_cursor_execute", listener)
        return len(count)

    head = site.by_name["nlp"]
    more = tuple(replace(head, name=f"more-{number}") for number in range(20))
    many = replace(site, accounts=(*site.accounts, *more))
    read_outlooks(busy, site, now)
    read_outlooks(busy, many, now)
    assert queries(many) == queries(site) < 20
