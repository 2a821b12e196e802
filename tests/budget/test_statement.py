from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctools.budget.attribution import Coverage
from hpctools.budget.money import total
from hpctools.budget.month import Month, day_start
from hpctools.budget.statement import DayPoint, Knowledge, Part, Statement, Uncharged
from hpctools.budget.tree import Account, BudgetSite
from tests.budget.plain_charges import Charge, stated

MONTH = Month(2026, 11)
Make = Callable[..., Any]


def charge(day: int, kind: Any, account: str, user: str, amount: str, currency: str = "USD") -> Charge:
    return Charge(date(2026, 11, day), kind, account, user, currency, Decimal(amount))


def known(as_of: date, billed: int = 3, estimated: bool = True, **coverage: Coverage) -> Knowledge:
    return Knowledge(day_start(as_of), date(2026, 11, billed), estimated, coverage)


CHARGES = [
    charge(1, "attributed", "nlp-a", "nlp1", "100"),
    charge(1, "attributed", "nlp-b", "nlp3", "50"),
    charge(2, "attributed", "nlp-a", "nlp2", "30"),
    charge(2, "idle", "nlp-a", "", "20"),
    charge(3, "attributed", "nlp", "nlp-head", "100"),
    charge(3, "attributed", "cv", "cv1", "400"),
    charge(3, "attributed", "stray", "who", "7"),
    charge(1, "idle", "", "", "11"),
    charge(1, "shared", "", "", "13"),
    charge(1, "untagged", "", "", "17"),
    charge(3, "attributed", "nlp-a", "nlp1", "9", "EUR"),
]


def state(make_site: Make, name: str, knowledge: Knowledge | None, charges: Any = CHARGES) -> Statement:
    site: BudgetSite = make_site()
    return stated(site, site.by_name[name], MONTH, charges, knowledge)


def test_a_department_in_the_middle_of_a_month(make_site: Make) -> None:
    # 4 November, 00:00: three of thirty days are complete and cost 100 a day; 3000 are allowed.
    coverage = {"nlp-a": Coverage(60, 100), "nlp": Coverage(15, 25), "cv": Coverage(0, 10**6)}
    result = state(make_site, "nlp", known(date(2026, 11, 4), **coverage))
    assert result == Statement(
        account=make_site().by_name["nlp"],
        month=MONTH,
        currency="USD",
        status="estimated",
        as_of=day_start(date(2026, 11, 4)),
        billed_through=date(2026, 11, 3),
        coverage=Decimal("60.0"),
        budget=Decimal(3000),
        spent=Decimal(300),
        jobs=Decimal(280),
        idle=Decimal(20),
        left=Decimal(2700),
        percent_used=Decimal("10.0"),
        projected=Decimal("3000.00"),
        reached=(),
        days=(
            DayPoint(date(2026, 11, 1), Decimal(150), Decimal(150), Decimal("100.00")),
            DayPoint(date(2026, 11, 2), Decimal(50), Decimal(200), Decimal("200.00")),
            DayPoint(date(2026, 11, 3), Decimal(100), Decimal(300), Decimal("300.00")),
        ),
        parts=(
            Part("nlp-a", "lab", Decimal(150), Decimal("50.0")),
            Part("nlp", "own", Decimal(100), Decimal("33.3")),
            Part("nlp-b", "lab", Decimal(50), Decimal("16.7")),
        ),
        uncharged=Uncharged(Decimal(11), Decimal(13), Decimal(17)),
        other_currencies={"EUR": Decimal(9)},
    )


def test_a_lab_shows_its_people_and_needs_no_budget(make_site: Make) -> None:
    result = state(make_site, "nlp-a", known(date(2026, 11, 4)))
    assert (result.budget, result.left, result.percent_used, result.reached) == (None, None, None, ())
    assert [(part.name, part.level, part.amount) for part in result.parts] == [
        ("nlp1", "user", 100),
        ("nlp2", "user", 30),
        ("nlp-a", "own", 20),
    ]


def test_the_whole_site_is_the_whole_bill(make_site: Make) -> None:
    result = state(make_site, "root", known(date(2026, 11, 4)))
    assert result.spent == total(c.amount for c in CHARGES if c.currency == "USD") == 748
    assert result.budget == 3600
    assert [(part.name, part.level, part.amount) for part in result.parts] == [
        ("cv", "department", 400),
        ("nlp", "department", 300),
        ("stray", "other", 7),
    ]


def test_labs_that_ran_nothing_are_listed_with_nothing(make_site: Make) -> None:
    result = state(make_site, "nlp", known(date(2026, 11, 4)), [])
    assert [(part.name, part.amount, part.percent) for part in result.parts] == [
        ("nlp-a", 0, None),
        ("nlp-b", 0, None),
    ]
    assert (result.spent, result.coverage, result.projected) == (0, None, Decimal("0.00"))


def test_before_the_first_reconciliation_nothing_is_known(make_site: Make) -> None:
    result = state(make_site, "nlp", None, [])
    assert (result.status, result.as_of, result.days, result.projected) == ("none", None, (), None)


@pytest.mark.parametrize(
    ("as_of", "estimated", "status"),
    [
        (date(2026, 11, 30), False, "estimated"),
        (date(2026, 12, 1), True, "estimated"),
        (date(2026, 12, 1), False, "final"),
    ],
)
def test_a_month_is_final_when_it_is_over_and_so_are_bill_and_jobs(
    make_site: Make, as_of: date, estimated: bool, status: str
) -> None:
    assert state(make_site, "nlp", known(as_of, 30, estimated)).status == status


def test_past_months_are_not_forecast(make_site: Make) -> None:
    assert state(make_site, "nlp", known(date(2026, 12, 5), 30)).projected is None


def forecast(make_site: Make, today: str, hours: int, billed: int = 15) -> Decimal | None:
    """For cv at so many hours of 15 November: 70 a day until the 7th, then 10 a day, and `today`."""
    charges = [charge(day, "attributed", "cv", "cv1", "70" if day <= 7 else "10") for day in range(1, 15)]
    if billed == 15:
        charges.append(charge(15, "attributed", "cv", "cv1", today))
    as_of = day_start(date(2026, 11, 15)) + hours * 3600
    return state(make_site, "cv", replace(known(date(2026, 11, 15), billed), as_of=as_of), charges).projected


def test_the_forecast_takes_the_last_seven_days_and_a_late_bill_of_today_does_not_lower_it(
    make_site: Make,
) -> None:
    # 7 * 70 + 7 * 10 until the 14th, then 16 days at 10.
    assert forecast(make_site, "0", 12, billed=14) == Decimal("720.00")
    assert forecast(make_site, "1", 12) == Decimal("720.00")
    assert forecast(make_site, "5", 12) == Decimal("720.00")


def test_the_forecast_sees_what_began_today(make_site: Make) -> None:
    # 560 + 80 until noon of the 15th, then 15.5 days at (70 + 80) / 7.5 a day.
    assert forecast(make_site, "80", 12) == Decimal("950.00")


def test_spending_only_today_is_not_the_end_of_the_month(make_site: Make) -> None:
    charges = [charge(21, "attributed", "cv", "cv1", "75")]
    noon = replace(known(date(2026, 11, 21), 21), as_of=day_start(date(2026, 11, 21)) + 43200)
    assert state(make_site, "cv", noon, charges).projected == Decimal("170.00")


def test_a_refund_of_today_is_not_expected_every_day(make_site: Make) -> None:
    assert forecast(make_site, "-300", 12) == Decimal("720.00")


def test_there_is_no_forecast_on_the_first_day(make_site: Make) -> None:
    evening = replace(known(date(2026, 11, 1), 1), as_of=day_start(date(2026, 11, 1)) + 80000)
    assert state(make_site, "nlp", evening, CHARGES[:2]).projected is None


def test_a_statement_of_a_large_site_looks_at_each_account_once(monkeypatch: pytest.MonkeyPatch) -> None:
    accounts = tuple(Account(f"d{n}", "department", "root") for n in range(50))
    site = BudgetSite("uni", accounts, ())
    asked: list[str] = []
    children = BudgetSite.children

    def counted(self: BudgetSite, name: str) -> tuple[Account, ...]:
        asked.append(name)
        return children(self, name)

    monkeypatch.setattr(BudgetSite, "children", counted)
    charges = [charge(1, "attributed", f"d{n % 50}", f"u{n}", "1") for n in range(1000)]
    assert stated(site, accounts[0], MONTH, charges, known(date(2026, 11, 4))).spent == 20
    assert len(asked) < 10


def test_thresholds_are_reached_from_their_percentage_on(make_site: Make) -> None:
    def reached(amount: str) -> tuple[int, ...]:
        charges = [charge(1, "attributed", "nlp", "x", amount)]
        return state(make_site, "nlp", known(date(2026, 11, 4)), charges).reached

    assert [reached("1490"), reached("1500"), reached("2700"), reached("9000")] == [
        (),
        (50,),
        (50, 90),
        (50, 90),
    ]


def test_overspending_leaves_less_than_nothing(make_site: Make) -> None:
    charges = [charge(1, "attributed", "cv", "cv1", "600.000001")]
    assert state(make_site, "cv", known(date(2026, 11, 4)), charges).left == Decimal("-0.000001")


@settings(deadline=None)
@given(
    st.lists(
        st.builds(
            Charge,
            st.sampled_from(MONTH.days),
            st.sampled_from(["attributed", "idle"]),
            st.sampled_from(["nlp", "nlp-a", "nlp-b", "cv", "stray", "root"]),
            st.sampled_from(["u1", "u2", ""]),
            st.just("USD"),
            st.decimals(-(10**12), 10**12, places=6),
        ),
        max_size=20,
    )
)
def test_every_breakdown_and_trend_adds_up_to_what_was_spent(make_site: Make, charges: list[Charge]) -> None:
    site: BudgetSite = make_site()
    for account in site.by_name.values():
        result = stated(site, account, MONTH, charges, known(date(2026, 12, 2), 30))
        nobody = result.uncharged if account.name == "root" else Uncharged(Decimal(0), Decimal(0), Decimal(0))
        assert total(part.amount for part in result.parts) + total(vars(nobody).values()) == result.spent
        assert result.days[-1].cumulative == result.spent == total((result.jobs, result.idle))
