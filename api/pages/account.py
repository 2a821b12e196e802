"""The page of an account: what it spent in some days, against what, on what, and for nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from api.pages.breakdown import (
    HEADINGS,
    capacities,
    ended_table,
    groups_table,
    parts_table,
    use_table,
)
from api.pages.chart import SIZES, Trend
from api.pages.frame import Frame, title_of
from api.pages.periods import months_of, name_period
from api.pages.render import render
from api.pages.tables import Column, Table, text
from api.pages.verdict import verdict
from api.pages.wording import day_name, moment_name, money, month_name, percentage
from api.services.books import Quality as BookQuality
from api.services.overview import Overview
from api.services.reports import Report
from api.services.standing import Allowed, Standing
from api.services.waste import LOST
from hpctools.budget.forecast import COVERS
from hpctools.budget.money import ZERO, percent, to_places, total
from hpctools.budget.month import Month, moment
from hpctools.budget.tree import BudgetSite

_LONGEST_TABLE = 45


@dataclass(frozen=True)
class Quality:
    """How sure figures are, for `parts.quality`."""

    status: str
    corrected: bool
    text: str


@dataclass(frozen=True)
class Chart:
    """A drawing and its alternatives, for `parts.chart`.

    Attributes:
        wide, narrow: addresses of pictures.
        height: of the wide one, in CSS pixels.
        text: the same in a sentence.
    """

    wide: str
    narrow: str
    height: int
    text: str
    table: Table


def account_page(frame: Frame, site: BudgetSite, shown: Overview) -> str:
    """The page of one account's days."""
    report, standing = shown.report, shown.standing
    allowed = standing.allowed
    return render(
        "account.html",
        frame=frame,
        r=report,
        title=title_of(report.account),
        known=report.billed_through is not None,
        verdict=verdict(report, standing),
        quality=quality_of(report),
        standing=standing,
        budget_detail=_budget_detail(allowed) if allowed else "",
        range_detail=_range_detail(report, standing),
        covers=COVERS,
        money=lambda amount: money(amount, report.currency),
        percentage=percentage,
        chart=trend_chart(frame, report, standing) if report.days else None,
        heading=HEADINGS[report.account.level],
        parts_table=parts_table(site, report, frame.period, shown.budgets),
        groups_table=groups_table(site, report, frame.period),
        capacities=capacities(site, report),
        ended_table=ended_table(report, shown.waste.ended, frame.period),
        use_table=use_table(report, shown.waste.groups),
        lost=_lost(shown),
        others=[money(amount, code) for code, amount in report.others.items()],
        uncharged=report.uncharged,
        months=[(str(month), month_name(month.start)) for month in months_of(report.period)[-12:]],
    )


def quality_of(report: Report) -> Quality:
    """How sure an account's figures are."""
    return told_quality(report.quality, report.billed_through)


def told_quality(told: BookQuality, billed_through: date | None = None) -> Quality:
    """How sure figures are, as a page tells it."""
    return Quality(told.status, told.corrected, _quality_words(told, billed_through))


def _quality_words(told: BookQuality, billed_through: date | None) -> str:
    """When figures are of, and how much they cover."""
    if told.as_of is None:
        return ""
    parts = [f"Data as of {moment_name(moment(told.as_of))}."]
    if billed_through is not None:
        parts.append(f"The bill reaches to {day_name(billed_through)}.")
    if told.coverage is not None:
        parts.append(f"It covers {percentage(told.coverage)} of the node time that was used.")
    if told.status == "estimated":
        parts.append("The provider may still change it.")
    return " ".join(parts)


def trend_of(report: Report, standing: Standing) -> Trend:
    """What is drawn."""
    ahead, allowed = standing.forecast, standing.allowed
    return Trend(
        period=report.period,
        cumulative=tuple(to_places(amount) for _, _, amount in _cumulative(report)),
        budget=allowed.total if allowed else None,
        ahead=(ahead.expected, ahead.low, ahead.high) if ahead else None,
        budget_label=f"budget {money(allowed.total, report.currency, 0)}" if allowed else "",
        label=money(ZERO, report.currency, 0).removesuffix("0"),
    )


def trend_chart(frame: Frame, report: Report, standing: Standing) -> Chart:
    """The drawing of the trend, where it is, and its alternatives."""
    address = f"/accounts/{report.account.name}/trend.svg{frame.period}&size="
    return Chart(
        wide=f"{address}wide",
        narrow=f"{address}narrow",
        height=int(SIZES["wide"][1] * 100),
        text=_chart_text(report, standing),
        table=_days_table(report),
    )


def _cumulative(report: Report) -> Iterator[tuple[date, Decimal, Decimal]]:
    """Each day: spent on it, and until its end."""
    spent = ZERO
    for day, amount in report.days:
        spent = total((spent, amount))
        yield day, amount, spent


def _days_table(report: Report) -> Table:
    """By day; by month where there are many."""
    rows = list(_cumulative(report))
    daily = len(rows) <= _LONGEST_TABLE
    spent: defaultdict[str, Decimal] = defaultdict(Decimal)
    until: dict[str, Decimal] = {}
    for day, amount, cumulative in rows:
        name = str(day if daily else Month.of(day))
        spent[name] = total((spent[name], amount))
        until[name] = cumulative
    return Table(
        f"Spent in {name_period(report.period)}",
        (Column("Day" if daily else "Month"), Column("Spent", "number"), Column("Until its end", "number")),
        tuple(
            (text(name), text(_money(report, spent[name])), text(_money(report, until[name])))
            for name in until
        ),
    )


def _chart_text(report: Report, standing: Standing) -> str:
    last = report.days[-1][0]
    said = [f"By the end of {day_name(last)} {_money(report, report.spent)} had been spent."]
    if standing.allowed:
        said.append(f"The budget is {_money(report, standing.allowed.total)}.")
    if standing.forecast:
        within = _range_detail(report, standing)
        expected = _money(report, standing.forecast.expected)
        said.append(f"Expected by the end: {expected}{f' ({within})' if within else ''}.")
    return " ".join(said)


def _budget_detail(allowed: Allowed) -> str:
    parts = []
    if allowed.carried:
        parts.append(f"{money(allowed.carried, allowed.currency)} from before")
    if allowed.approved:
        parts.append(f"{money(allowed.approved, allowed.currency)} approved beyond it")
    return f"{money(allowed.amount, allowed.currency)}, and {' and '.join(parts)}" if parts else ""


def _range_detail(report: Report, standing: Standing) -> str:
    ahead = standing.forecast
    if ahead is None or ahead.low == ahead.high:
        return ""
    return f"{_money(report, ahead.low)} to {_money(report, ahead.high)}"


def _lost(shown: Overview) -> tuple[str, str] | None:
    """What jobs cost that did not complete, and its share of what all jobs cost."""
    ended = shown.waste.ended
    whole = total(each.amount for each in ended)
    lost = total(each.amount for each in ended if each.state in LOST)
    return (_money(shown.report, lost), percentage(percent(lost, whole))) if whole > 0 else None


def _money(report: Report, amount: Decimal) -> str:
    return money(amount, report.currency)
