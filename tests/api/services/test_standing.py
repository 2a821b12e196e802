from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest

from api.services.budgets import Change, approve, set_budget
from api.services.reports import read_report
from api.services.spending import read_forecast
from api.services.standing import read_allowances, read_standing
from hpctools.budget.allowance import Calendar, Period, Spec
from hpctools.budget.month import Month, day_start
from hpctools.budget.statement import DayPoint
from hpctools.budget.tree import BudgetSite

QUARTER = Period(date(2026, 10, 1), date(2027, 1, 1))


@dataclass(frozen=True)
class Steady:
    """A month in which every day until a day cost ten."""

    month: Month
    until: date

    def of(self, *_: Any) -> Steady:
        """Whatever the account."""
        return self

    @property
    def days(self) -> tuple[DayPoint, ...]:
        begun = [day for day in self.month.days if day <= self.until]
        return tuple(DayPoint(day, Decimal(10), Decimal(10 * day.day), None) for day in begun)

    @property
    def as_of(self) -> int:
        return day_start(self.until + timedelta(days=1))

    @property
    def billed_through(self) -> date:
        return self.until


@pytest.mark.parametrize("until", [date(2026, 10, 20), date(2026, 11, 20), date(2026, 12, 30)])
def test_what_was_spent_before_the_days_that_make_the_pace_counts_too(
    sqlite_service: Any, site: BudgetSite, monkeypatch: pytest.MonkeyPatch, until: date
) -> None:
    monkeypatch.setattr("api.services.spending.read_month_days", lambda *given: Steady(given[-1], until))
    now = day_start(until + timedelta(days=1))
    found = read_forecast(sqlite_service.engine, site, site.by_name["nlp"], QUARTER, now)
    assert found is not None
    assert (found.expected, found.low, found.high) == (Decimal(920), Decimal(920), Decimal(920))


def test_a_budget_is_compared_with_whole_periods_of_it(
    sqlite_service: Any, site: BudgetSite, now: int
) -> None:
    def allowed(name: str, first: date, end: date) -> Decimal | None:
        wanted = [site.by_name[name], site.by_name["nlp"]]
        found = read_allowances(sqlite_service.engine, site, wanted, Period(first, end), now)[name]
        return found.amount if found else None

    november, december = date(2026, 11, 1), date(2026, 12, 1)
    assert allowed("nlp", november, december) == Decimal(25000)
    assert allowed("nlp", QUARTER.first, QUARTER.end) == Decimal(75000)
    assert allowed("root", november, december) == Decimal(25000 + 18000 + 12000)
    assert allowed("nlp", date(2026, 11, 2), december) is None
    assert allowed("nlp-lab-a", november, december) is None


def test_days_that_are_over_keep_the_periods_that_they_had(sqlite_service: Any, site: BudgetSite) -> None:
    """A budget is of months until the end of December, and of quarters after it."""
    engine, nlp = sqlite_service.engine, site.by_name["nlp"]
    november, december, january = date(2026, 11, 1), date(2026, 12, 1), date(2027, 1, 1)
    quarterly = Spec(Decimal(90000), "USD", Calendar("quarterly"))
    set_budget(engine, site, nlp, quarterly, january, Change("nlp-head", day_start(date(2026, 11, 10))))
    for seen in (date(2026, 11, 20), date(2027, 1, 5), date(2027, 6, 1)):
        for first, end in ((november, december), (december, january)):
            found = read_allowances(engine, site, [nlp], Period(first, end), day_start(seen))["nlp"]
            assert (found.amount if found else None) == Decimal(25000), (seen, first)


def test_an_approval_counts_once_in_days_of_several_periods(
    sqlite_service: Any, site: BudgetSite, now: int
) -> None:
    """It was granted in November until January: in a quarter of months it is not there twice."""
    engine, nlp = sqlite_service.engine, site.by_name["nlp"]
    approve(engine, nlp, Decimal(500), date(2027, 1, 15), Change("head", day_start(date(2026, 11, 10))))
    quarter = read_allowances(engine, site, [nlp, site.by_name["root"]], QUARTER, now)
    assert {name: found.approved for name, found in quarter.items() if found} == {
        "nlp": Decimal(500),
        "root": Decimal(500),
    }


def test_who_looks_at_a_month_is_told_of_the_budget_that_was_set_last(
    sqlite_service: Any, site: BudgetSite, now: int
) -> None:
    """The site file's was for a month, so the page of a month said to choose a month."""
    engine, nlp = sqlite_service.engine, site.by_name["nlp"]
    lab = site.by_name["nlp-lab-a"]
    quarterly = Spec(Decimal(75000), "USD", Calendar("quarterly"))
    set_budget(engine, site, nlp, quarterly, QUARTER.first, Change("dean", now))
    month = Period(date(2026, 11, 1), date(2026, 12, 1))

    def other(period: Period, account: Any = nlp) -> str | None:
        return read_standing(engine, site, read_report(engine, site, account, period), now).other_period

    assert (other(month), other(QUARTER), other(month, lab)) == ("quarterly", None, None)
    yearly = replace(quarterly, amount=Decimal(10000), calendar=Calendar("yearly"))
    lone = replace(site, accounts=tuple(replace(each, spec=None) for each in site.accounts))
    set_budget(engine, lone, lone.by_name["dl"], yearly, date(2026, 1, 1), Change("dean", now))
    assert other(month, lone.by_name["dl"]) == "yearly"
