"""Alerts are told once each, whoever looks how often; a changed budget tells anew."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import Engine, select

from api.db.budget_models import AlertMessage
from api.db.engine import reading
from api.services.alerts import Alert, listed, raise_alerts
from api.services.budgets import Change, approve, set_budget, versions
from hpctools.budget.allowance import Enforcement, Notify, Policy, Spec, in_effect
from hpctools.budget.money import to_places
from hpctools.budget.month import day_of
from hpctools.budget.tree import BudgetSite

FIRST = date(2026, 11, 1)


def only(site: BudgetSite, name: str, spec: Spec) -> BudgetSite:
    """The site with one budget."""
    accounts = tuple(replace(each, spec=spec if each.name == name else None) for each in site.accounts)
    return replace(site, accounts=accounts)


@pytest.fixture
def small(site: BudgetSite, spend: Callable[[str, str], None]) -> BudgetSite:
    """A department that has spent more than three quarters of its budget of 1,000."""
    spend("nlp-lab-b", "789.01")
    notify = Notify(("head@uni.example", "dean@uni.example"), "", "https://chat.example/hook")
    return only(site, "nlp", Spec(Decimal(1000), "USD", alert_at=(50, 75), notify=notify))


def kinds(alerts: list[Alert]) -> list[tuple[str, int]]:
    return [(each.kind, each.threshold) for each in alerts]


def test_each_threshold_is_told_once(engine: Engine, small: BudgetSite, now: int) -> None:
    assert raise_alerts(engine, small, now) == 2
    assert raise_alerts(engine, small, now + 60) == 0
    found = listed(engine, {"nlp"})
    assert kinds(found) == [("spent", 75), ("spent", 50)]
    assert found[0].deliveries == (
        ("mail", "head@uni.example", "waiting"),
        ("mail", "dean@uni.example", "waiting"),
        ("webhook", "https://chat.example/hook", "waiting"),
    )
    assert (found[0].period_first, found[0].allowed, found[0].currency) == (FIRST, Decimal(1000), "USD")
    assert found[0].reached == Decimal("789.01")


def test_a_month_that_is_over_keeps_the_budget_that_the_site_file_gave_it(
    engine: Engine, site: BudgetSite, now: int
) -> None:
    """1,000 until the file says 700 in November and 500 in December; nobody has spent anything."""
    december = now + 20 * 86400
    for amount, at in ((1000, now - 3600), (700, now), (700, now + 60), (500, december)):
        said = only(site, "nlp", Spec(Decimal(amount), "USD"))
        assert raise_alerts(engine, said, at) == 0
    with reading(engine) as session:
        known = versions(session, said.by_name["nlp"], day_of(december))
    days = (date(2026, 10, 31), date(2026, 11, 1), date(2026, 12, 1))
    found = [in_effect(known, day) for day in days]
    assert [each.spec.amount if each else None for each in found] == [1000, 700, 500]


def test_several_services_at_once_tell_it_once(engine: Engine, small: BudgetSite, now: int) -> None:
    with ThreadPoolExecutor(4) as pool:
        raised = [pool.submit(raise_alerts, engine, small, now) for _ in range(4)]
        assert sorted(each.result(60) for each in raised) == [0, 0, 0, 2]
    assert len(listed(engine, None)) == 2


def test_a_changed_budget_tells_anew_and_an_approval_does_not(
    engine: Engine, small: BudgetSite, now: int
) -> None:
    raise_alerts(engine, small, now)
    nlp, change = small.by_name["nlp"], Change("operator:root", now, "more")
    assert nlp.spec is not None
    approve(engine, nlp, Decimal(1), date(2026, 12, 1), change)
    assert raise_alerts(engine, small, now) == 0
    set_budget(engine, small, nlp, replace(nlp.spec, amount=Decimal(1001)), FIRST, change)
    assert raise_alerts(engine, small, now) == 2
    assert len(listed(engine, None)) == 4


def test_what_is_expected_is_told_before_it_is_spent(
    engine: Engine, site: BudgetSite, now: int, reconcile_november: Callable[..., Any]
) -> None:
    reconcile_november()
    spent = sum_of(engine, site, now)
    spec = Spec(to_places(spent + 1), "USD", alert_at=(100,), alert_on_forecast=(100, 1000))
    assert raise_alerts(engine, only(site, "nlp", spec), now) == 1
    assert kinds(listed(engine, None)) == [("forecast", 100)]


def sum_of(engine: Engine, site: BudgetSite, now: int) -> Decimal:
    from api.services.spending import read_outlook

    found = read_outlook(engine, site, site.by_name["nlp"], now)
    assert found is not None
    return found.billed


def test_nothing_spent_reaches_nothing(engine: Engine, site: BudgetSite, now: int) -> None:
    assert raise_alerts(engine, site, now) == 0
    assert listed(engine, None) == []


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("warn", "No job is kept from running by this."),
        (
            "block",
            "From 2026-11-21 12:00 UTC on no new jobs are accepted, unless its supervisor approves more.",
        ),
    ],
)
def test_an_alert_says_what_happens_to_who_has_used_a_budget_up(
    engine: Engine, small: BudgetSite, now: int, policy: Policy, said: str
) -> None:
    notify = Notify(("head@uni.example",))
    over = only(small, "nlp", Spec(Decimal(700), "USD", enforcement=Enforcement(policy), notify=notify))
    assert raise_alerts(engine, over, now) == 1
    with reading(engine) as session:
        text = json.loads(session.scalars(select(AlertMessage)).one().body)["text"]
    assert text.startswith("nlp has spent 789.01 of 700.00 USD (100 % or more)")
    assert said in text


def test_others_alerts_are_not_listed(engine: Engine, small: BudgetSite, now: int) -> None:
    raise_alerts(engine, small, now)
    assert listed(engine, {"cv"}) == []
    newest = listed(engine, {"nlp"}, limit=1)
    assert kinds(newest) == [("spent", 75)]
    assert kinds(listed(engine, {"nlp"}, before=newest[0].id)) == [("spent", 50)]
