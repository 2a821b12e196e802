"""The budget page: a statement as a department head wants to see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from markupsafe import Markup

from api.pages.chart import Trend, trend_svg
from api.pages.render import render
from api.pages.wording import day_name, moment_name, money, month_name, percentage
from hpctools.budget.money import difference, parts_to_places, to_places, total
from hpctools.budget.month import Month, moment
from hpctools.budget.statement import Part, Statement

_HEADINGS = {"site": "Departments", "department": "Labs", "lab": "People"}


@dataclass(frozen=True)
class Row:
    """One row of the breakdown.

    Attributes:
        link: the account's own page; empty when it has none.
        width: of its bar, percent of the longest.
    """

    name: str
    link: str
    amount: str
    share: str
    width: Decimal


@dataclass(frozen=True)
class Verdict:
    """How the account stands, in one sentence.

    Attributes:
        tone: `good`, `warn`, `bad` or `plain`.
    """

    tone: str
    text: str


def budget_page(cluster: str, statement: Statement, above: Sequence[str], present: Month) -> str:
    """The page of one account's month.

    Args:
        above: accounts that the visitor may go up to, topmost first.
        present: the present month; there is no link beyond it.
    """
    trend = _trend(statement)
    return render(
        "budget.html",
        cluster=cluster,
        s=statement,
        above=above,
        title=_title(statement),
        month=month_name(statement.month.start),
        previous=statement.month.previous,
        next=statement.month.next if statement.month < present else None,
        money=lambda amount: money(amount, statement.currency),
        percentage=percentage,
        used=_used(statement),
        verdict=verdict(statement),
        freshness=_freshness(statement),
        chart_wide=Markup(trend_svg(trend, 8.4, 3.2)),  # noqa: S704 - our own drawing, numbers only
        chart_narrow=Markup(trend_svg(trend, 3.6, 2.6)),  # noqa: S704
        chart_text=_chart_text(statement),
        heading=_HEADINGS[statement.account.level],
        rows=_rows(statement),
        parts_total=money(total(part.amount for part in statement.parts), statement.currency),
        others=[money(amount, code) for code, amount in statement.other_currencies.items()],
    )


def verdict(statement: Statement) -> Verdict:
    """How the account stands against its budget, now and at the month's end."""
    if statement.status == "none":
        return Verdict("plain", "This month has not been reconciled yet, so there are no figures.")
    if statement.budget is None or statement.left is None:
        return Verdict("plain", "No budget is set for this account; its department's budget covers it.")
    if statement.left < 0:
        return Verdict("bad", f"Over budget by {_money(statement, -statement.left)}.")
    if statement.projected is None:
        return Verdict("good", f"Ended within budget, {_money(statement, statement.left)} were left.")
    return _forecast(statement, statement.budget, statement.projected)


def _forecast(statement: Statement, budget: Decimal, projected: Decimal) -> Verdict:
    margin = difference(budget, projected)
    at_pace = f"At the pace of the last week the month ends at {_money(statement, projected)}, "
    if margin < 0:
        return Verdict("warn", f"{at_pace}{_money(statement, -margin)} over budget.")
    return Verdict("good", f"On track. {at_pace}{_money(statement, margin)} under budget.")


def _money(statement: Statement, amount: Decimal) -> str:
    return money(amount, statement.currency)


def _title(statement: Statement) -> str:
    if statement.account.level == "site":
        return "Whole site"
    return statement.account.title or statement.account.name


def _used(statement: Statement) -> Decimal:
    """How far the budget's bar is filled."""
    return min(Decimal(100), max(Decimal(0), statement.percent_used or Decimal(0)))


def _freshness(statement: Statement) -> str:
    if statement.as_of is None:
        return ""
    text = f"Data as of {moment_name(moment(statement.as_of))}."
    if statement.billed_through is not None:
        text += f" The bill reaches to {day_name(statement.billed_through)}."
    return text


def _trend(statement: Statement) -> Trend:
    return Trend(
        cumulative=tuple(to_places(point.cumulative) for point in statement.days),
        days=len(statement.month.days),
        budget=statement.budget,
        projected=statement.projected,
        label=money(Decimal(0), statement.currency, 0).removesuffix("0"),
    )


def _chart_text(statement: Statement) -> str:
    if not statement.days:
        return "No costs are known yet."
    last = statement.days[-1]
    text = f"By {day_name(last.day)}, {_money(statement, last.cumulative)} had been spent"
    if last.expected is not None:
        text += f"; an even pace would be {_money(statement, last.expected)}"
    return f"{text}."


def _rows(statement: Statement) -> list[Row]:
    longest = max((part.amount for part in statement.parts), default=Decimal(0))
    rounded = parts_to_places([part.amount for part in statement.parts])
    return [
        Row(
            name=_name(part, statement),
            link=f"/accounts/{part.name}" if part.level in ("department", "lab") else "",
            amount=_money(statement, cents),
            share=percentage(part.percent),
            width=to_places(max(Decimal(0), part.amount) * 100 / longest, 1) if longest > 0 else Decimal(0),
        )
        for part, cents in zip(statement.parts, rounded, strict=True)
    ]


def _name(part: Part, statement: Statement) -> str:
    """A charge of the account itself that is nobody's jobs is its part of idle nodes."""
    itself = part.level == "other" and part.name == statement.account.name
    return "Share of idle nodes" if itself else part.name
