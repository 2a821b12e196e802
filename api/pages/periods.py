"""Which days a page shows: a month, a quarter, a year, or any days; as addresses have them, as people say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache

from api.pages.wording import day_name, month_name
from hpctools.budget.allowance import Period
from hpctools.budget.month import FIRST_MONTH, Month
from hpctools.errors import BudgetError

MOST_DAYS = 1830
"""Five years: what is shown together."""

_MONTHS, _QUARTERS, _YEARS = 24, 8, 5
_DAY = timedelta(days=1)
_QUARTER = re.compile(r"(\d{4})-Q([1-4])")
_YEAR = re.compile(r"\d{4}")
_DAYS = re.compile(r"(\d{4}-\d\d-\d\d)\.\.(\d{4}-\d\d-\d\d)")
_NONE = "expected 2026-11, 2026-Q4, 2026 or 2026-11-01..2026-11-15"


def parse_period(text: str) -> Period:
    """Read what `spell_period` writes.

    Raises:
        BudgetError: it is no period, or one of more than `MOST_DAYS` days.
    """
    if quarter := _QUARTER.fullmatch(text):
        first = Month.parse(f"{quarter[1]}-{3 * int(quarter[2]) - 2:02d}")
        return Period(first.start, first.next.next.end)
    if _YEAR.fullmatch(text):
        return Period(Month.parse(f"{text}-01").start, Month.parse(f"{text}-12").end)
    if days := _DAYS.fullmatch(text):
        return any_days(days[1], days[2])
    try:
        month = Month.parse(text)
    except BudgetError as error:
        raise BudgetError(str(error).partition(":")[0].replace("a month", "a period"), _NONE) from None
    return Period(month.start, month.end)


def any_days(first: str, last: str) -> Period:
    """From one day to another, both included, as `YYYY-MM-DD`.

    Raises:
        BudgetError: one of them is no day, they are in the wrong order, or too far apart.
    """
    begin, end = _day(first), _day(last) + _DAY
    if end <= begin:
        raise BudgetError(f"{last} is before {first}", "the first day comes first")
    if (end - begin).days > MOST_DAYS:
        raise BudgetError(f"{first} to {last} are too many days", f"ask for {MOST_DAYS} at most")
    return Period(begin, end)


def spell_period(period: Period) -> str:
    """As an address has it."""
    kind, first = kind_of(period), period.first
    if kind == "month":
        return str(Month.of(first))
    if kind == "quarter":
        return f"{first.year}-Q{first.month // 3 + 1}"
    if kind == "year":
        return str(first.year)
    return f"{first}..{period.end - _DAY}"


def name_period(period: Period) -> str:
    """As people say it."""
    kind, first, last = kind_of(period), period.first, period.end - _DAY
    if kind == "month":
        return month_name(first)
    if kind == "quarter":
        return f"Quarter {first.month // 3 + 1}, {first.year}"
    if kind == "year":
        return str(first.year)
    if first == last:
        return f"{day_name(first)} {first.year}"
    begin = day_name(first) if first.year == last.year else f"{day_name(first)} {first.year}"
    return f"{begin} to {day_name(last)} {last.year}"


def kind_of(period: Period) -> str:
    """`month`, `quarter`, `year`, or `days` for others."""
    first, months = period.first, _whole_months(period)
    if months == 12 and first.month == 1:
        return "year"
    if months == 3 and first.month % 3 == 1:
        return "quarter"
    return "month" if months == 1 else "days"


def months_of(period: Period) -> list[Month]:
    """Every month that a period has a day of."""
    found = [Month.of(period.first)]
    while found[-1].end < period.end:
        found.append(found[-1].next)
    return found


def before(period: Period) -> Period | None:
    """The one of the same kind before; None where there is none that can be asked for."""
    months = _whole_months(period)
    first = _earlier(period.first, months) if months else period.first - timedelta(days=period.days)
    return Period(first, period.first) if first >= FIRST_MONTH.start else None


def after(period: Period) -> Period:
    """The one of the same kind after."""
    months = _whole_months(period)
    end = Month.of(period.end)
    for _ in range(months - 1):
        end = end.next
    return Period(period.end, end.end if months else period.end + timedelta(days=period.days))


@dataclass(frozen=True)
class Option:
    """A period to choose."""

    value: str
    name: str
    chosen: bool


@dataclass(frozen=True)
class Picker:
    """What the period is chosen with.

    Attributes:
        groups: options under a heading each.
        earlier, later: of the same kind, as addresses have them; empty for none.
        first, last: days, for the fields of any days.
        latest: no later day can be chosen.
    """

    name: str
    value: str
    groups: tuple[tuple[str, tuple[Option, ...]], ...]
    earlier: str
    later: str
    first: str
    last: str
    latest: str


@lru_cache(maxsize=512)
def picker(period: Period, today: date) -> Picker:
    """What a visitor may choose besides a period; nothing that has not begun."""
    earlier, later, value = before(period), after(period), spell_period(period)
    groups = {"Months": _MONTHS, "Quarters": _QUARTERS, "Years": _YEARS}
    offered = [
        (heading, tuple(_option(each, value) for each in _latest(heading, today, most)))
        for heading, most in groups.items()
    ]
    if not any(option.chosen for _, options in offered for option in options):
        offered.insert(0, ("Chosen", (_option(period, value),)))
    return Picker(
        name=name_period(period),
        value=value,
        groups=tuple(offered),
        earlier=spell_period(earlier) if earlier else "",
        later=spell_period(later) if later.first <= today else "",
        first=str(period.first),
        last=str(min(period.end - _DAY, max(today, period.first))),
        latest=str(today),
    )


def _option(period: Period, chosen: str) -> Option:
    value = spell_period(period)
    return Option(value, name_period(period), value == chosen)


def _latest(heading: str, today: date, most: int) -> Iterator[Period]:
    """The newest periods of a kind, the present one first."""
    texts = {
        "Months": str(Month.of(today)),
        "Quarters": f"{today.year}-Q{(today.month - 1) // 3 + 1}",
        "Years": str(today.year),
    }
    period: Period | None = parse_period(texts[heading])
    for _ in range(most):
        if period is None:
            return
        yield period
        period = before(period)


def _whole_months(period: Period) -> int:
    """How many months it is made of; 0 when it is not made of whole ones."""
    if period.first.day != 1 or period.end.day != 1:
        return 0
    return (period.end.year - period.first.year) * 12 + period.end.month - period.first.month


def _earlier(first: date, months: int) -> date:
    month = Month.of(first)
    for _ in range(months):
        month = month.previous
    return month.start


def _day(text: str) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise BudgetError(f"{text!r:.40} is not a day", "expected YYYY-MM-DD") from None
    Month.parse(f"{day:%Y-%m}")
    return day
