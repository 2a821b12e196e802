"""What may be spent, period after period: carry-over, and what was approved beyond the budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctools.budget.allowance import Approval, Carry, Period, Spec, Version
from hpctools.budget.money import total
from hpctools.budget.spendable import spendable, spendable_together
from hpctools.errors import BudgetError

OCTOBER = Period(date(2026, 10, 1), date(2026, 11, 1))
NOVEMBER = Period(date(2026, 11, 1), date(2026, 12, 1))
DECEMBER = Period(date(2026, 12, 1), date(2027, 1, 1))
JANUARY = Period(date(2027, 1, 1), date(2027, 2, 1))
MONTHS = (OCTOBER, NOVEMBER, DECEMBER, JANUARY)
DAYS = [OCTOBER.first + timedelta(days=number) for number in range((JANUARY.end - OCTOBER.first).days)]


def usd(amount: str, **more: object) -> Spec:
    return Spec(Decimal(amount), "USD", **more)  # type: ignore[arg-type]


def since(day: date, spec: Spec) -> Version:
    return Version(day, spec)


@dataclass(frozen=True)
class Account:
    """One that has 1,000 a month since October.

    Attributes:
        spent: by day.
    """

    carry: Carry
    approvals: tuple[Approval, ...]
    spent: dict[date, Decimal]

    def of(self, period: Period) -> Decimal:
        return total(amount for day, amount in self.spent.items() if day in period)

    def may(self, periods: Sequence[Period], today: date) -> Decimal:
        """All that may be spent in some months, as of a day."""
        versions = [since(OCTOBER.first, usd("1000", carry=self.carry))]
        return spendable_together(versions, periods, self.of, self.approvals, today=today).total

    def left(self, today: date) -> Decimal:
        """Of the month of a day."""
        (month,) = (each for each in MONTHS if today in each)
        return self.may((month,), today) - self.of(Period(month.first, today + timedelta(days=1)))


@pytest.mark.parametrize(
    ("carry", "most", "spent", "expected"),
    [
        ("none", None, "600", "0"),
        ("surplus", None, "600", "800"),  # 400 left of September, 400 of October beside them
        ("surplus", "500", "600", "500"),
        ("surplus", None, "1300", "0"),
        ("balance", None, "1300", "-600"),
        ("balance", "100", "600", "100"),
    ],
)
def test_what_is_carried_into_november(carry: str, most: str | None, spent: str, expected: str) -> None:
    """1,000 a month since September; the same was spent in September and in October."""
    spec = usd("1000", carry=carry, carry_at_most=Decimal(most) if most else None)
    found = spendable([since(date(2026, 9, 10), spec)], NOVEMBER, lambda _: Decimal(spent))
    assert (found.amount, found.carried) == (Decimal(1000), Decimal(expected))
    assert found.total == Decimal(1000) + Decimal(expected)


def test_nothing_is_carried_over_from_before_anything_was_known() -> None:
    versions = [since(date(2020, 1, 1), usd("1000", carry="surplus"))]
    found = spendable(versions, NOVEMBER, lambda _: Decimal(0), since=date(2026, 10, 5))
    assert found.carried == 1000


def test_a_period_has_the_newest_budget_that_counts_in_it() -> None:
    versions = [
        since(date(2026, 9, 1), usd("1000", carry="surplus")),
        since(date(2026, 10, 20), usd("2000", carry="surplus")),
        since(date(2026, 12, 1), usd("9", carry="surplus")),
    ]
    found = spendable(versions, NOVEMBER, lambda _: Decimal(900))
    assert (found.amount, found.carried) == (
        Decimal(2000),
        Decimal(1200),
    )  # 100 of September, 1,100 of October


def test_a_budget_in_another_currency_carries_nothing_over() -> None:
    versions = [
        since(date(2026, 9, 1), Spec(Decimal(1000), "EUR", carry="surplus")),
        since(date(2026, 11, 1), usd("2000", carry="surplus")),
    ]
    assert spendable(versions, NOVEMBER, lambda _: Decimal(0)).carried == 0


def test_there_is_none_before_the_first() -> None:
    with pytest.raises(BudgetError, match="no budget from 2026-11-01 to 2026-11-30"):
        spendable([since(date(2026, 12, 1), usd("5"))], NOVEMBER, lambda _: Decimal(0))


@pytest.mark.parametrize(
    ("today", "expected"),
    [(None, 500), (date(2026, 11, 9), 200), (date(2026, 11, 20), 500), (date(2026, 11, 10), 700)],
)
def test_approvals_count_while_they_last(today: date | None, expected: int) -> None:
    approvals = [
        Approval(date(2026, 11, 1), Decimal(200), date(2026, 11, 15)),
        Approval(date(2026, 11, 10), Decimal(500), date(2027, 1, 1)),
        Approval(date(2026, 9, 1), Decimal(5000), date(2026, 11, 1)),
    ]
    versions = [since(date(2026, 11, 1), usd("1000"))]
    found = spendable(versions, NOVEMBER, lambda _: Decimal(0), approvals, today=today)
    assert found.approved == expected


def spent(**days: str) -> dict[date, Decimal]:
    """All of October's, and so much on days such as `nov_25`."""
    months = {"oct": 10, "nov": 11, "dec": 12}
    told = {date(2026, months[day[:3]], int(day[4:])): Decimal(amount) for day, amount in days.items()}
    return {date(2026, 10, 9): Decimal(1000), **told}


UNTIL_24_DECEMBER = Approval(date(2026, 11, 20), Decimal(2000), date(2026, 12, 24))


@pytest.mark.parametrize("carry", ["none", "surplus", "balance"])
def test_what_was_spent_on_an_approval_is_used_up_and_no_debt(carry: Carry) -> None:
    """All of it was spent in November: December has its own 1,000, also when the approval has ended."""
    account = Account(carry, (UNTIL_24_DECEMBER,), spent(nov_25="3000"))
    assert account.left(date(2026, 11, 30)) == 0
    for day in (date(2026, 12, 1), date(2026, 12, 23), date(2026, 12, 24), date(2026, 12, 31)):
        assert account.left(day) == 1000, day


def test_the_rest_of_an_approval_is_there_in_the_next_period_until_it_ends() -> None:
    account = Account("balance", (UNTIL_24_DECEMBER,), spent(nov_25="1500"))
    december = (date(2026, 12, 1), date(2026, 12, 23), date(2026, 12, 24))
    assert [account.left(day) for day in december] == [2500, 2500, 1000]
    # What is spent on it in December until it ends stays paid for.
    account.spent[date(2026, 12, 10)] = Decimal(1800)
    assert [account.left(day) for day in (date(2026, 12, 23), date(2026, 12, 24))] == [700, 0]
    assert account.may((JANUARY,), JANUARY.first) == 1000


def test_what_is_spent_after_an_approval_is_overspent() -> None:
    account = Account("balance", (UNTIL_24_DECEMBER,), spent(nov_2="1000", dec_26="1300"))
    assert account.left(date(2026, 12, 31)) == -300
    account = Account("balance", (UNTIL_24_DECEMBER,), spent(nov_2="1000", dec_26="2300"))
    assert account.may((JANUARY,), JANUARY.first) == 1000 - 1300


def test_an_approval_pays_no_debt_of_earlier_periods() -> None:
    until = Approval(date(2026, 11, 5), Decimal(700), date(2026, 11, 15))
    account = Account("balance", (until,), spent(oct_9="2500"))
    lasting = (date(2026, 11, 4), date(2026, 11, 14), date(2026, 11, 15))
    assert [account.left(day) for day in lasting] == [-500, 200, -500]
    assert account.may((DECEMBER,), DECEMBER.first) == 500


def test_of_two_approvals_the_one_that_ends_first_is_spent_first() -> None:
    later = Approval(date(2026, 11, 2), Decimal(100), date(2027, 1, 10))
    account = Account("none", (later, UNTIL_24_DECEMBER), spent(nov_25="2500"))
    assert account.left(date(2026, 12, 24)) == 1100
    assert account.left(date(2027, 1, 9)) == 1100
    assert account.left(date(2027, 1, 10)) == 1000


def test_an_approval_counts_once_in_several_periods_whether_it_was_used_or_not() -> None:
    account = Account("none", (UNTIL_24_DECEMBER,), spent(nov_25="1500"))
    both = (NOVEMBER, DECEMBER)
    days = (date(2026, 11, 10), date(2026, 11, 21), date(2026, 12, 5), date(2026, 12, 24), date(2027, 1, 5))
    assert [account.may(both, day) for day in days] == [2000, 4000, 4000, 2500, 2500]


def test_a_refund_after_an_approval_is_nobodys_gain() -> None:
    ended = Approval(date(2026, 11, 20), Decimal(2000), date(2026, 11, 28))
    account = Account("balance", (ended,), spent(nov_25="3000", nov_30="-2900"))
    assert account.may((DECEMBER,), DECEMBER.first) == 1000 + 900


CARRIES: st.SearchStrategy[Carry] = st.sampled_from(["none", "surplus", "balance"])
APPROVALS = st.lists(
    st.builds(
        lambda first, amount, days: Approval(first, Decimal(amount), first + timedelta(days=days)),
        st.sampled_from(DAYS),
        st.integers(1, 2000),
        st.integers(1, 70),
    ),
    max_size=4,
).map(tuple)
WISHES = st.dictionaries(st.sampled_from(DAYS), st.integers(1, 3000).map(Decimal), max_size=15)


@given(CARRIES, APPROVALS, WISHES)
def test_who_never_spends_more_than_is_left_is_never_overspent(
    carry: Carry, approvals: tuple[Approval, ...], wishes: dict[date, Decimal]
) -> None:
    """Whichever approval ends, and whenever a month does."""
    account = Account(carry, approvals, {})
    for day in DAYS:
        left = account.left(day)
        assert left >= 0, day
        if day in wishes and left:
            account.spent[day] = min(left, wishes[day])


@given(CARRIES, APPROVALS, WISHES)
def test_nobody_spends_an_approval_twice(
    carry: Carry, approvals: tuple[Approval, ...], wishes: dict[date, Decimal]
) -> None:
    account = Account(carry, approvals, {})
    for day in DAYS:
        if day in wishes:
            account.spent[day] = min(account.left(day), wishes[day])
    assert total(account.spent.values()) <= 4000 + total(each.amount for each in approvals)


@given(APPROVALS, WISHES)
def test_approvals_that_have_ended_are_worth_what_was_spent_on_them_and_no_more(
    approvals: tuple[Approval, ...], spent: dict[date, Decimal]
) -> None:
    """However much was spent, permitted or not."""
    for month in MONTHS:
        last = month.end - timedelta(days=1)
        ended = tuple(each for each in approvals if each.until <= last)
        may = Account("balance", ended, spent).may((month,), last)
        plain = Account("balance", (), spent).may((month,), last)
        assert plain <= may <= plain + total(each.amount for each in ended)


def test_approvals_of_years_ago_are_not_gone_through_for_each_look() -> None:
    """One that had ended four years before had 61 months read, on each page."""
    read: list[Period] = []

    def spent(period: Period) -> Decimal:
        read.append(period)
        return Decimal(100)

    old = Approval(date(2022, 1, 10), Decimal(5), date(2022, 2, 10))
    present = Approval(date(2026, 10, 20), Decimal(500), date(2026, 12, 1))
    known = [Version(date(2021, 1, 1), Spec(Decimal(1000), "USD"))]
    november = Period(date(2026, 11, 1), date(2026, 12, 1))
    found = spendable(known, november, spent, (old, present), today=date(2026, 11, 15))
    assert (found.approved, min(each.first for each in read)) == (Decimal(500), date(2026, 10, 1))
