"""The budget page: a statement as a department head wants to see it."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from markupsafe import Markup

from api.pages.chart import Trend, trend_svg
from api.pages.frame import Frame, title_of
from api.pages.render import render
from api.pages.wording import day_name, moment_name, money, percentage
from hpctools.budget.money import difference, percent, to_places, total
from hpctools.budget.month import day_of, moment
from hpctools.budget.statement import FORECAST_DAYS, Part, Statement
from hpctools.budget.tree import Account, BudgetSite

_HEADINGS = {"site": "Departments", "department": "Labs", "lab": "People"}


@dataclass(frozen=True)
class Row:
    """One row of the breakdown.

    Attributes:
        detail: the account's name where `name` is what people call it, and who leads it.
        link: the account's own page; empty when it has none.
        width: of its bar, percent of the longest.
    """

    name: str
    detail: str
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


def budget_page(frame: Frame, site: BudgetSite, statement: Statement) -> str:
    """The page of one account's month."""
    trend = _trend(statement)
    return render(
        "budget.html",
        frame=frame,
        s=statement,
        title=title_of(statement.account),
        known=statement.billed_through is not None,
        money=lambda amount: money(amount, statement.currency),
        percentage=percentage,
        used=_used(statement),
        verdict=verdict(statement),
        freshness=_freshness(statement),
        chart_wide=Markup(trend_svg(trend, 8.4, 3.2)),  # noqa: S704 - our own drawing, numbers only
        chart_narrow=Markup(trend_svg(trend, 3.6, 2.6)),  # noqa: S704
        chart_text=_chart_text(statement),
        heading=_HEADINGS[statement.account.level],
        rows=_rows(site, statement),
        nobody=_nobody(statement),
        jobs_percent=percent(statement.jobs, total((statement.jobs, statement.idle, statement.shared))),
        others=[money(amount, code) for code, amount in statement.other_currencies.items()],
    )


def verdict(statement: Statement) -> Verdict:
    """How the account stands against its budget, now and at the month's end."""
    if statement.status == "none":
        return Verdict("plain", "This month has not been reconciled yet, so there are no figures.")
    if statement.billed_through is None:
        return Verdict("plain", "No bill has arrived for this month yet, so no costs are known.")
    if statement.budget is None or statement.left is None:
        covered = "; its department's budget covers it" if statement.account.level == "lab" else ""
        return Verdict("plain", f"No budget is set for this account{covered}.")
    if statement.left < 0:
        return Verdict("bad", f"Over budget by {_money(statement, -statement.left)}.")
    if statement.other_currencies:
        return Verdict("warn", "Costs in other currencies are not counted against this budget.")
    if statement.projected is None:
        return _without_forecast(statement, _money(statement, statement.left))
    return _forecast(statement, statement.budget, statement.projected)


def _without_forecast(statement: Statement, left: str) -> Verdict:
    """At the end of a month, and at its beginning."""
    if statement.status == "final":
        return Verdict("good", f"Ended within budget, {left} were left.")
    if statement.as_of is not None and day_of(statement.as_of) >= statement.month.end:
        return Verdict("good", f"Ended within budget as far as the bill is known, {left} are left.")
    return Verdict("plain", f"{left} are left. It is too early to tell where the month ends.")


def _forecast(statement: Statement, budget: Decimal, projected: Decimal) -> Verdict:
    margin = difference(budget, projected)
    pace = "of the last week" if len(statement.days) > FORECAST_DAYS else "so far"
    at_pace = f"At the pace {pace} the month ends at {_money(statement, projected)}, "
    if margin < 0:
        return Verdict("warn", f"{at_pace}{_money(statement, -margin)} over budget.")
    return Verdict("good", f"On track. {at_pace}{_money(statement, margin)} under budget.")


def _money(statement: Statement, amount: Decimal) -> str:
    return money(amount, statement.currency)


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
        budget_label=f"budget {money(statement.budget or Decimal(0), statement.currency, 0)}",
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


def _rows(site: BudgetSite, statement: Statement) -> list[Row]:
    longest = max((part.amount for part in statement.parts), default=Decimal(0))
    return [_row(site, statement, part, longest) for part in statement.parts]


def _row(site: BudgetSite, statement: Statement, part: Part, longest: Decimal) -> Row:
    account = site.by_name.get(part.name) if part.level in ("department", "lab") else None
    return Row(
        name=title_of(account) if account else _name(part, statement),
        detail=_detail(account) if account else "",
        link=f"/accounts/{part.name}" if account else "",
        amount=_money(statement, part.amount),
        share=percentage(part.percent),
        width=to_places(max(Decimal(0), part.amount) * 100 / longest, 1) if longest > 0 else Decimal(0),
    )


def _detail(account: Account) -> str:
    lead = f"led by {account.supervisor}" if account.supervisor else ""
    return ", ".join(filter(None, (account.name if account.title else "", lead)))


def _name(part: Part, statement: Statement) -> str:
    if part.level != "own":
        return part.name
    return "Share of idle nodes" if statement.account.level == "lab" else "Charged to the account itself"


def _nobody(statement: Statement) -> list[Row]:
    """What nobody is charged with, as rows of the whole site's bill."""
    uncharged = statement.uncharged
    parts = (
        ("Idle", "paid for while no job used it", uncharged.idle),
        ("Shared", "login nodes and the like", uncharged.shared),
        ("Untagged", "support, tax and what the bill names no nodes for", uncharged.untagged),
    )
    return [
        Row(
            name,
            detail,
            "",
            _money(statement, amount),
            percentage(percent(amount, statement.spent)),
            Decimal(0),
        )
        for name, detail, amount in parts
    ]
