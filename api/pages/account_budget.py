"""The page of an account's budget: what is set, by whom, and forms for those who may change it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from api.db.budget_models import BudgetApproval
from api.pages.frame import Frame, title_of
from api.pages.render import render
from api.pages.tables import Column, Table, text
from api.pages.wording import day_name, moment_name, money, percentage
from api.services.budget_page import BudgetView, Rights
from api.services.budgets import Stored
from hpctools.budget.allowance import Calendar, Spec
from hpctools.budget.month import moment

_PERIODS = {
    "monthly": "a month",
    "quarterly": "a quarter",
    "yearly": "a year",
    "terms": "a term",
    "once": "once",
}
_CARRY = {
    "none": "nothing",
    "surplus": "what is left",
    "balance": "what is left, and what was overspent",
}
POLICIES = {
    "off": "nothing happens",
    "warn": "those who are told of alerts hear of it",
    "block": "no new jobs are accepted",
    "hold": "no new jobs, and those that wait are held",
    "lower-tier": "jobs run in a lower tier",
}


@dataclass(frozen=True)
class Sent:
    """A form that was sent and not taken.

    Attributes:
        form: `change`, `split` or `approve`; empty when none was sent.
        problem: why, for the person.
        fields: what was in it.
    """

    form: str = ""
    problem: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)

    def value(self, form: str, name: str, default: str) -> str:
        """What stands in a field."""
        return self.fields.get(name, default) if form == self.form else default


def account_budget_page(
    around: Frame, view: BudgetView, rights: Rights, form: str, sent: Sent, today: date, done: str = ""
) -> str:
    """The page.

    Args:
        form: the token of forms.
        done: what was done just now, for the person; empty for nothing.
    """
    spec = view.present.spec if view.present else None
    currency = view.currency
    return render(
        "account_budget.html",
        frame=around,
        title=f"Budget of {title_of(view.account)}",
        view=view,
        rights=rights,
        form=form,
        sent=sent,
        done=done,
        currency=currency,
        money=lambda amount: money(amount, currency),
        percentage=percentage,
        words=_words(spec) if spec else [],
        since=_since(view.present),
        policies=POLICIES,
        spec=spec,
        approvals=_approvals(view.approvals, currency, today),
        children=_parts(view),
        history=_history(view.versions),
        days=_days,
        tomorrow=date.fromordinal(today.toordinal() + 1).isoformat(),
    )


def _days(view: BudgetView) -> str:
    return (
        ""
        if view.outlook is None
        else f"{_day(view.outlook.period.first)} to {_last(view.outlook.period.end)}"
    )


def _words(spec: Spec) -> list[tuple[str, str]]:
    rule = spec.enforcement
    most = "" if spec.carry_at_most is None else f", at most {money(spec.carry_at_most, spec.currency)}"
    waits = rule.grace_seconds and rule.policy not in ("off", "warn")
    grace = f", {rule.grace_seconds / 3600:g} hours later" if waits else ""
    policy = POLICIES[rule.policy] + (f" ({rule.tier})" if rule.tier else "")
    notify = [*spec.notify.mail, *filter(None, (spec.notify.sns, spec.notify.webhook))]
    return [
        ("Amount", f"{money(spec.amount, spec.currency)} {_period(spec.calendar)}"),
        ("Carried into the next period", _CARRY[spec.carry] + (most if spec.carry != "none" else "")),
        ("Alerts at", _percentages(spec.alert_at)),
        ("Alerts on the forecast at", _percentages(spec.alert_on_forecast)),
        ("Told", ", ".join(notify) or "nobody"),
        (f"At {rule.at} %" if rule.policy != "off" else "When it is used up", policy + grace),
    ]


def _period(calendar: Calendar) -> str:
    if calendar.kind == "once" and calendar.first and calendar.end:
        return f"from {_day(calendar.first)} to {_last(calendar.end)}"
    return _PERIODS[calendar.kind]


def _percentages(found: Sequence[int]) -> str:
    return ", ".join(f"{each} %" for each in found) or "none"


def _since(present: Stored | None) -> str:
    if present is None:
        return ""
    if present.made_at is None or present.from_site:
        return "Set by the site file."
    return f"Set by {present.made_by} on {moment_name(moment(present.made_at))}: {present.why}"


def _approvals(found: Sequence[BudgetApproval], currency: str, today: date) -> Table:
    columns = (Column("Approved"), Column("From"), Column("Ends before"), Column("By"), Column("Why"))
    rows = tuple(
        (
            text(
                money(row.amount, currency),
                detail="" if row.granted <= today < row.until else "counts no more",
            ),
            text(_day(row.granted)),
            text(_day(row.until)),
            text(row.made_by),
            text(row.why),
        )
        for row in found
    )
    return Table(
        "Approvals, the newest first", columns, rows, empty="Nothing was approved beyond the budget."
    )


def _parts(view: BudgetView) -> list[dict[str, str]]:
    """The accounts below, as rows of a table and of the form."""
    return [
        {
            "name": child.name,
            "title": title_of(child),
            "detail": child.name if child.title else "",
            "amount": f"{stored.spec.amount:f}" if stored else "",
            "shown": f"{money(stored.spec.amount, stored.spec.currency)} {_period(stored.spec.calendar)}"
            if stored
            else "none of its own",
        }
        for child, stored in view.children
    ]


def _history(found: Sequence[Stored]) -> Table:
    columns = (Column("From"), Column("Amount", "number"), Column("Policy"), Column("Set by"), Column("Why"))
    rows = tuple(
        (
            text("the beginning" if row.effective.year <= 2000 else _day(row.effective)),
            text(money(row.spec.amount, row.spec.currency), detail=_period(row.spec.calendar)),
            text(row.spec.enforcement.policy),
            text(
                "the site file" if row.from_site else row.made_by,
                detail="" if row.made_at is None else moment_name(moment(row.made_at)),
            ),
            text("" if row.from_site else row.why),
        )
        for row in found
    )
    return Table("Every budget it had, the newest first", columns, rows, empty="It never had a budget.")


def _day(day: date) -> str:
    return f"{day_name(day)} {day.year}"


def _last(end: date) -> str:
    return _day(date.fromordinal(end.toordinal() - 1))
