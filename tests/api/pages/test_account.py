from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal

import pytest

from api.auth.principal import Grant, Principal
from api.pages.account import account_page, trend_of
from api.pages.frame import frame, trail_to
from api.pages.verdict import verdict
from api.services.books import Quality
from api.services.overview import Overview
from api.services.reports import Report, Slice
from api.services.standing import Allowed, Standing
from api.services.waste import Ended, GroupUse, Waste
from hpctools.budget.allowance import Period
from hpctools.budget.burn import Burn
from hpctools.budget.forecast import Forecast
from hpctools.budget.month import day_start
from hpctools.budget.tree import BudgetSite

ADMIN = Principal("admin", (Grant(None, frozenset({"admin", "read"})),))
NOVEMBER = Period(date(2026, 11, 1), date(2026, 12, 1))
Make = Callable[..., Overview]


def usd(amount: str) -> Decimal:
    return Decimal(amount)


@pytest.fixture
def shown(site: BudgetSite) -> Make:
    """Ten days of the same cost of cv, whose budget is 18,000."""

    def make(amount: str = "6000", account: str = "cv", forecast: Forecast | None = None) -> Overview:
        spent = usd(amount)
        slices = (
            Slice("attributed", "cv-lab-a", "cv1", "reserved", "", spent * 8 / 10),
            Slice("idle", "cv-lab-a", "", "reserved", "", spent / 10),
            Slice("shared", "cv", "", "login", "", spent / 10),
        )
        days = tuple((NOVEMBER.first + timedelta(days=n), spent / 10) for n in range(10))
        report = Report(
            account=site.by_name[account],
            period=NOVEMBER,
            currency="USD",
            quality=Quality("estimated", False, usd("98.5"), day_start(date(2026, 11, 11))),
            billed_through=date(2026, 11, 10),
            slices=slices,
            days=days,
            others={},
            uncharged={"idle": usd("12.5")},
        )
        standing = Standing(spent, Allowed("USD", usd("18000")), None, Burn(), forecast)
        ended = (Ended("COMPLETED", 9, spent * 6 / 10), Ended("OUT_OF_MEMORY", 1, spent * 2 / 10))
        use = (GroupUse("reserved", usd("75"), usd("25"), usd("200"), usd("100")),)
        return Overview(
            report, standing, Waste("USD", report.quality, ended, use), {"cv-lab-a": Allowed("USD", spent)}
        )

    return make


def html(site: BudgetSite, overview: Overview, visitor: Principal = ADMIN) -> str:
    account, period = overview.report.account, overview.report.period
    around = frame(site, visitor, "", trail_to(site, visitor, account, period), period, date(2026, 11, 21))
    return account_page(around, site, overview)


def words(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<style>.*?</style>|<[^>]+>", " ", page, flags=re.S))


@pytest.mark.parametrize(
    ("expected", "high", "tone", "text"),
    [
        ("17000", "17999.99", "good", "On track: expected to end at $17,000.00, $1,000.00 under budget."),
        (
            "17000",
            "18000.01",
            "warn",
            "Expected to end at $17,000.00, $1,000.00 under budget, but $18,000.01 is within the range.",
        ),
        (
            "18003",
            "19000",
            "warn",
            "If spending goes on like this, the month ends at $18,003.00, $3.00 over budget.",
        ),
    ],
)
def test_the_verdict_is_one_sentence(shown: Make, expected: str, high: str, tone: str, text: str) -> None:
    overview = shown(forecast=Forecast(usd(expected), usd("6000"), usd(high), 10))
    said = verdict(overview.report, overview.standing)
    assert (said.tone, said.text) == (tone, text)


def test_what_runs_unbilled_counts_before_its_bill_comes(shown: Make) -> None:
    overview = shown("17999")
    running = replace(overview.standing, burn=Burn(usd("1.5"), usd("1.01"), 3))
    assert verdict(overview.report, running).text == "Over budget by $0.01."
    assert verdict(overview.report, overview.standing).tone == "plain"


def test_the_verdict_of_other_cases(shown: Make, site: BudgetSite) -> None:
    overview = shown()
    report, standing = overview.report, overview.standing
    none = replace(standing, allowed=None)
    lab = replace(report, account=site.by_name["cv-lab-a"])
    over = replace(report.quality, as_of=day_start(date(2026, 12, 5)))

    def said(report: Report, standing: Standing) -> str:
        return verdict(report, standing).text

    assert said(lab, none) == "No budget is set for this account; its department's budget covers it."
    assert said(report, none) == "No budget is set for this account."
    assert said(report, replace(none, other_period="yearly")).startswith(
        "The budget of this account is for a year"
    )
    assert said(report, standing).startswith(
        "$12,000.00 are left. It is too early to tell where the month ends"
    )
    assert said(replace(report, quality=over), standing).startswith("Ended within budget as far as")
    final = replace(report, quality=replace(over, status="final"))
    assert said(final, standing) == "Ended within budget, $12,000.00 were left."
    assert said(replace(report, others={"EUR": usd("3")}), standing).startswith("Costs in other currencies")
    waiting = replace(report, billed_through=None)
    assert said(waiting, standing).startswith("No bill has arrived for these days")
    unknown = replace(report, quality=replace(report.quality, status="none"))
    assert said(unknown, standing).startswith("These days have not been reconciled")


def test_the_page_shows_the_figures_and_where_to_go_next(shown: Make, site: BudgetSite) -> None:
    page = html(site, shown(forecast=Forecast(usd("17000"), usd("16000"), usd("18000"), 10)))
    text = words(page)
    for expected in (
        "Computer Vision",
        "Spent $6,000.00 Budget $18,000.00 Left $12,000.00",
        "Expected by the end $17,000.00 $16,000.00 to $18,000.00",
        "33.3 % of the budget is spent",
        "Data as of 11 November 2026, 00:00 UTC. The bill reaches to 10 November. It covers 98.5 %",
        "Medical imaging cv-lab-a, led by cv-lead-a $5,400.00 90.0 % $6,000.00 90.0 %",
        "Ran out of memory 1 $1,200.00 25.0 %",
        "reserved 75.0 % 25.0 200 $100.00",
        "By the end of 10 November $6,000.00 had been spent. The budget is $18,000.00.",
        "2026-11-10 $600.00 $6,000.00",
        "Idle $12.50 paid for while no job used it",
    ):
        assert expected in text
    for link in (
        "/accounts/cv-lab-a?period=2026-11",
        "/accounts/root?period=2026-11",
        "/accounts/cv/jobs?period=2026-11&amp;state=OUT_OF_MEMORY",
        "/accounts/cv/entries?period=2026-11&amp;node_group=reserved",
        "?period=2026-10",
    ):
        assert f'href="{link}"' in page
    assert 'href="?period=2026-12"' not in page
    assert re.findall(r"https?://", page.replace("http://www.w3.org/", "")) == []
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="#|labelledby=")([^"]*)', page)) <= set(ids)


def test_a_head_is_not_led_to_what_they_may_not_see(shown: Make, site: BudgetSite) -> None:
    head = Principal("cv-head", (Grant("cv", frozenset({"read", "write"})),))
    page = html(site, shown(), head)
    assert "/accounts/root" not in page
    assert 'href="/reconciliation"' not in page
    assert 'href="/reconciliation"' in html(site, shown())


def test_names_are_escaped(shown: Make, site: BudgetSite) -> None:
    overview = shown(account="cv-lab-a")
    bad = (replace(overview.report.slices[0], user="<b>&u", part="cv-lab-a"),)
    page = html(site, replace(overview, report=replace(overview.report, slices=bad)))
    assert "&lt;b&gt;&amp;u" in page
    assert "user=%3Cb%3E%26u" in page
    assert "<b>&u" not in page


def test_without_a_bill_no_figure_is_told(shown: Make, site: BudgetSite) -> None:
    overview = shown()
    waiting = replace(overview.report, billed_through=None, slices=(), days=())
    page = html(site, replace(overview, report=waiting))
    assert "not known yet" in page
    assert "$0.00" not in page
    assert "trend.svg" not in page


def test_money_in_other_currencies_is_told_beside(shown: Make, site: BudgetSite) -> None:
    overview = shown()
    page = html(site, replace(overview, report=replace(overview.report, others={"EUR": usd("3.5")})))
    assert "Besides, in other currencies: €3.50." in page


def test_capacity_is_what_the_bill_tells_else_what_the_site_declares(shown: Make, site: BudgetSite) -> None:
    overview = shown()
    spot = replace(overview.report.slices[0], capacity="spot", amount=usd("4800"))
    page = words(
        html(
            site,
            replace(overview, report=replace(overview.report, slices=(spot, *overview.report.slices[1:]))),
        )
    )
    assert "Spot $4,800.00 80.0" in page
    assert "Reserved $600.00 10.0" in page
    assert "Shared $600.00 10.0" in page


def test_what_is_drawn_is_what_is_told(shown: Make) -> None:
    overview = shown(forecast=Forecast(usd("17000"), usd("16000"), usd("18000"), 10))
    drawn = trend_of(overview.report, overview.standing)
    assert drawn.cumulative == tuple(usd(f"{n * 600}.00") for n in range(1, 11))
    assert drawn.ahead == (usd("17000"), usd("16000"), usd("18000"))
    assert (drawn.budget, drawn.budget_label, drawn.label) == (usd("18000"), "budget $18,000", "$")
