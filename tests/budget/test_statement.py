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
from hpctools.budget.statement import Against, DayPoint, Knowledge, Part, Statement, Uncharged, held_against
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
    # 4 November, 00:00: three of thirty days are complete and cost 100 a day.
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
        spent=Decimal(300),
        jobs=Decimal(280),
        idle=Decimal(20),
        days=(
            DayPoint(date(2026, 11, 1), Decimal(150), Decimal(150), None),
            DayPoint(date(2026, 11, 2), Decimal(50), Decimal(200), None),
            DayPoint(date(2026, 11, 3), Decimal(100), Decimal(300), None),
        ),
        parts=(
            Part("nlp-a", "lab", Decimal(150), Decimal("50.0")),
            Part("nlp", "own", Decimal(100), Decimal("33.3")),
            Part("nlp-b", "lab", Decimal(50), Decimal("16.7")),
        ),
        uncharged=Uncharged(Decimal(11), Decimal(13), Decimal(17)),
        other_currencies={"EUR": Decimal(9)},
    )


def test_a_month_is_held_against_all_that_may_be_spent_in_it(make_site: Make) -> None:
    told = state(make_site, "nlp", known(date(2026, 11, 4)))
    against = Against(
        budget=Decimal(3600),
        carried=Decimal(500),
        approved=Decimal(100),
        alert_at=(8, 9, 50),
        unbilled=Decimal(24),
        projected=Decimal("2900.00"),
    )
    even = (Decimal("120.00"), Decimal("240.00"), Decimal("360.00"))
    assert held_against(told, against) == replace(
        told,
        budget=Decimal(3600),
        carried=Decimal(500),
        approved=Decimal(100),
        left=Decimal(3276),
        percent_used=Decimal("9.0"),
        projected=Decimal("2900.00"),
        reached=(8, 9),
        unbilled=Decimal(24),
        days=tuple(replace(day, expected=part) for day, part in zip(told.days, even, strict=True)),
    )


def test_without_a_budget_it_is_known_where_a_month_leads(make_site: Make) -> None:
    told = state(make_site, "nlp-a", known(date(2026, 11, 4)))
    against = Against(unbilled=Decimal(24), projected=Decimal("2900.00"))
    assert held_against(told, against) == replace(told, unbilled=Decimal(24), projected=Decimal("2900.00"))


def test_a_lab_shows_its_people(make_site: Make) -> None:
    result = state(make_site, "nlp-a", known(date(2026, 11, 4)))
    assert [(part.name, part.level, part.amount) for part in result.parts] == [
        ("nlp1", "user", 100),
        ("nlp2", "user", 30),
        ("nlp-a", "own", 20),
    ]


def test_the_whole_site_is_the_whole_bill(make_site: Make) -> None:
    result = state(make_site, "root", known(date(2026, 11, 4)))
    assert result.spent == total(c.amount for c in CHARGES if c.currency == "USD") == 748
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
    assert (result.spent, result.coverage) == (0, None)


def test_before_the_first_reconciliation_nothing_is_known(make_site: Make) -> None:
    result = state(make_site, "nlp", None, [])
    assert (result.status, result.as_of, result.days) == ("none", None, ())


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
        told = state(make_site, "nlp", known(date(2026, 11, 4)), charges)
        return held_against(told, Against(Decimal(3000), alert_at=(50, 90))).reached

    assert [reached("1490"), reached("1500"), reached("2700"), reached("9000")] == [
        (),
        (50,),
        (50, 90),
        (50, 90),
    ]


def test_overspending_leaves_less_than_nothing(make_site: Make) -> None:
    charges = [charge(1, "attributed", "cv", "cv1", "600.000001")]
    told = state(make_site, "cv", known(date(2026, 11, 4)), charges)
    assert held_against(told, Against(Decimal(600))).left == Decimal("-0.000001")


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
