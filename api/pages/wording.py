"""Figures as people read them."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

from hpctools.budget.money import to_places
from hpctools.budget.month import moment

_SIGNS = {"USD": "$", "EUR": "€", "GBP": "£"}
_HALF_A_CENT = Decimal("0.005")
_MINUS = "\N{MINUS SIGN}"
DASH = "\N{EN DASH}"
"""Where there is no figure."""
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def money(amount: Decimal, currency: str, places: int = 2) -> str:
    """`$1,234.50`, `CHF 12.00`; a minus sign goes before the currency."""
    rounded = to_places(amount, places)
    sign = _MINUS if rounded < 0 else ""
    return f"{sign}{_SIGNS.get(currency, f'{currency} ')}{abs(rounded):,}"


def fine_money(amount: Decimal, currency: str) -> str:
    """The same; what would be shown as nothing has six places."""
    return money(amount, currency, 2 if abs(amount) >= _HALF_A_CENT else 6)


def percentage(percent: Decimal | None) -> str:
    """`12.5 %`, or a dash when there is none."""
    return DASH if percent is None else f"{str(percent).replace('-', _MINUS)}\N{NO-BREAK SPACE}%"


def month_name(first: date) -> str:
    """`November 2026`."""
    return f"{_MONTHS[first.month - 1]} {first.year}"


def day_name(day: date) -> str:
    """`21 November`."""
    return f"{day.day} {_MONTHS[day.month - 1]}"


def moment_name(when: datetime) -> str:
    """`21 November 2026, 11:53 UTC`."""
    return f"{day_name(when.date())} {when.year}, {when:%H:%M} UTC"


def hours(amount: Decimal | None) -> str:
    """`1,234` or `0.25`, or a dash when nobody knows."""
    if amount is None:
        return DASH
    return f"{to_places(amount, 0 if abs(amount) >= 100 else 1 if abs(amount) >= 1 else 2):,}"


def time_name(seconds: int | None) -> str:
    """`21 November 2026, 11:53 UTC`, or nothing when there was none."""
    return "" if seconds is None else moment_name(moment(seconds))


def minute_name(seconds: int | None) -> str:
    """`2026-11-21 11:53`, or a dash when nobody knows."""
    return DASH if seconds is None else f"{moment(seconds):%Y-%m-%d %H:%M}"


def duration(seconds: int) -> str:
    """`2 d 3 h`, `3 h 20 min`, `20 min`, `12 s`."""
    minutes, rest = divmod(max(0, seconds), 60)
    whole, minutes = divmod(minutes, 60)
    days, whole = divmod(whole, 24)
    if days:
        return f"{days} d {whole} h" if whole else f"{days} d"
    if whole:
        return f"{whole} h {minutes} min" if minutes else f"{whole} h"
    return f"{minutes} min" if minutes else f"{rest} s"
