"""How an account stands, in one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from api.pages.periods import kind_of
from api.pages.wording import money
from api.services.reports import Report
from api.services.standing import Standing
from hpctools.budget.forecast import Forecast
from hpctools.budget.month import day_of

Tone = Literal["good", "warn", "bad", "plain"]

_PERIODS = {
    "monthly": "a month",
    "quarterly": "a quarter",
    "yearly": "a year",
    "terms": "a term",
    "once": "a span of its own",
}


@dataclass(frozen=True)
class Verdict:
    """How the account stands.

    Attributes:
        tone: the colour that it has.
    """

    tone: Tone
    text: str


def verdict(report: Report, standing: Standing) -> Verdict:
    """How an account stands against its budget, now and at the end of the days."""
    if report.quality.status == "none":
        return Verdict("plain", "These days have not been reconciled yet, so there are no figures.")
    if report.billed_through is None:
        return Verdict("plain", "No bill has arrived for these days yet, so no costs are known.")
    if standing.allowed is None or standing.left is None:
        return Verdict("plain", _without_budget(report, standing))
    if standing.left < 0:
        return Verdict("bad", f"Over budget by {_money(report, -standing.left)}.")
    if report.others:
        return Verdict("warn", "Costs in other currencies are not counted against this budget.")
    if standing.forecast is None:
        return _without_forecast(report, _money(report, standing.left))
    return _ahead(report, standing.forecast, standing.allowed.total)


def _without_budget(report: Report, standing: Standing) -> str:
    if standing.other_period:
        kind = _PERIODS[standing.other_period]
        return f"The budget of this account is for {kind}: choose that to compare with it."
    covered = "; its department's budget covers it" if report.account.level == "lab" else ""
    return f"No budget is set for this account{covered}."


def _without_forecast(report: Report, left: str) -> Verdict:
    """At the end of a period, and at its beginning."""
    if report.quality.status == "final":
        return Verdict("good", f"Ended within budget, {left} were left.")
    as_of = report.quality.as_of
    if as_of is not None and day_of(as_of) >= report.period.end:
        return Verdict("good", f"Ended within budget as far as the bill is known, {left} are left.")
    return Verdict("plain", f"{left} are left. It is too early to tell where {_noun(report)} ends.")


def _ahead(report: Report, forecast: Forecast, allowed: Decimal) -> Verdict:
    expected, high = _money(report, forecast.expected), _money(report, forecast.high)
    if forecast.expected > allowed:
        more = _money(report, forecast.expected - allowed)
        return Verdict(
            "warn", f"If spending goes on like this, {_noun(report)} ends at {expected}, {more} over budget."
        )
    less = _money(report, allowed - forecast.expected)
    if forecast.high > allowed:
        return Verdict(
            "warn",
            f"Expected to end at {expected}, {less} under budget, but {high} is within the range.",
        )
    return Verdict("good", f"On track: expected to end at {expected}, {less} under budget.")


def _noun(report: Report) -> str:
    kind = kind_of(report.period)
    return "the period" if kind == "days" else f"the {kind}"


def _money(report: Report, amount: Decimal) -> str:
    return money(amount, report.currency)
