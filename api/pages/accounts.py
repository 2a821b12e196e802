"""The list of accounts."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from api.pages.breakdown import used_tone
from api.pages.frame import Frame, title_of
from api.pages.render import render
from api.pages.tables import Column, Row, Table, bar, text
from api.pages.wording import DASH, money, percentage
from api.services.listing import Listed
from hpctools.budget.money import percent

_DEPTHS = {"site": "", "department": "in1", "lab": "in2"}


def accounts_page(frame: Frame, found: Sequence[Listed]) -> str:
    """Every account that the visitor may see, and what it spent; parents before children."""
    longest = max((each.spent for each in found), default=Decimal(0))
    columns = (
        Column("Account"),
        Column("Led by", minor=True),
        Column("", "bar"),
        Column("Spent", "number"),
        Column("Budget", "number", minor=True),
        Column("Used", "number"),
    )
    rows = tuple(_row(frame, each, longest) for each in found)
    return render("accounts.html", frame=frame, title="Accounts", table=Table("Accounts", columns, rows))


def _row(frame: Frame, each: Listed, longest: Decimal) -> Row:
    account, allowed = each.account, each.allowed
    used = percent(each.spent, allowed.total) if allowed else None
    name = account.name if account.title else ""
    return (
        text(title_of(account), f"/accounts/{account.name}{frame.period}", name, _DEPTHS[account.level]),
        text(account.supervisor),
        bar(each.spent, longest),
        text(money(each.spent, each.currency)),
        text(money(allowed.total, allowed.currency) if allowed else DASH),
        text(percentage(used), tone=used_tone(used)),
    )
