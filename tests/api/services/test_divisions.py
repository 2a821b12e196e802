"""Which days of the store are divided again, and by which rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import Engine

import api.services.division as division
from api.services.division import policy_digest
from api.services.reconcile import reconcile
from api.services.statements import read_statement
from hpctools.budget.bill import BillRow
from hpctools.budget.month import Month, day_start
from hpctools.budget.tree import BudgetSite, Weights


@pytest.fixture
def divided(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The days that are divided from now on."""
    days: list[Any] = []
    whole = division.divide_day

    def counting(*given: Any) -> Any:
        days.append(given[3])
        return whole(*given)

    monkeypatch.setattr(division, "divide_day", counting)
    return days


def test_only_the_days_that_changed_are_divided_again(
    engine: Engine,
    november: Month,
    bills: Any,
    jobs: Any,
    reconcile_november: Callable[..., Any],
    divided: list[Any],
) -> None:
    jobs.records = [job for job in jobs.records if job.end is not None]
    reconcile_november()
    divided.clear()
    reconcile_november()
    assert divided == []
    first = bills.rows(november)[0]
    bills.months[november] = (replace(first, amount=first.amount + 1), *bills.rows(november)[1:])
    reconcile_november()
    assert divided == [first.day]


def test_a_late_job_on_burst_nodes_is_charged_for_the_idle_day_after_too(
    engine: Engine, site: BudgetSite, november: Month, bills: Any, jobs: Any, now: int, divided: list[Any]
) -> None:
    """Spot nodes cost 50 on the 1st, and nothing ran on them; then a job of October's last day turns up."""
    burst = replace(site, burst=True)
    spot = next(group for group in burst.node_groups if group.role == "compute" and not group.always_on)
    day = november.start
    row = BillRow("aws-ce", day, spot.name, "u", site.metric, "USD", Decimal(50), Decimal(2))
    bills.months = {november: (row,)}
    late = replace(
        jobs.records[0],
        nodes=spot.nodes[0],
        account="cv-lab-a",
        submitted=day_start(day) - 7200,
        start=day_start(day) - 7200,
        end=day_start(day) - 60,
    )
    jobs.records = []

    def charged(at: int) -> Decimal:
        divided.clear()
        reconcile(engine, burst, november, bills, jobs, at)
        return read_statement(engine, burst, burst.by_name["cv"], november).idle

    assert (charged(now), divided) == (0, [day])
    jobs.records = [late]
    assert (charged(now + 1), divided) == (50, [day])
    assert (charged(now + 2), divided) == (50, [])


def test_a_rule_that_a_site_does_not_use_is_not_in_its_digest(site: BudgetSite) -> None:
    """Of a release before there were weights: every day of every store would be divided again."""
    plain = replace(site, node_groups=(), accounts=(), owners={}, pools={}, idle="unallocated")
    assert policy_digest(plain) == ("448e732f493deba074e4fb8111d79817198faa4c23e681e06997409fc6bcef37")
    assert policy_digest(replace(plain, weights=Weights(memory=50))) != policy_digest(plain)
