"""Figures as people read them."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

from hpctools.budget.money import to_places

_SIGNS = {"USD": "$", "EUR": "€", "GBP": "£"}
_MINUS = "\N{MINUS SIGN}"
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def money(amount: Decimal, currency: str, places: int = 2) -> str:
    """`$1,234.50`, `CHF 12.00`; a minus sign goes before the currency."""
    rounded = to_places(amount, places)
    sign = _MINUS if rounded < 0 else ""
    return f"{sign}{_SIGNS.get(currency, f'{currency} ')}{abs(rounded):,}"


def percentage(percent: Decimal | None) -> str:
    """`12.5 %`, or a dash when there is none."""
    return "\N{EN DASH}" if percent is None else f"{str(percent).replace('-', _MINUS)}\N{NO-BREAK SPACE}%"


def month_name(first: date) -> str:
    """`November 2026`."""
    return f"{_MONTHS[first.month - 1]} {first.year}"


def day_name(day: date) -> str:
    """`21 November`."""
    return f"{day.day} {_MONTHS[day.month - 1]}"


def moment_name(when: datetime) -> str:
    """`21 November 2026, 11:53 UTC`."""
    return f"{day_name(when.date())} {when.year}, {when:%H:%M} UTC"
