"""A calendar month in UTC, the period of a statement.

Cloud bills close their days and months in UTC, so everything here does as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from reprlib import repr as clip

from hpctools.errors import BudgetError

DAY_SECONDS = 86400
_EPOCH = date(1970, 1, 1)
_YEARS = range(2000, 2200)
_FORM = re.compile(r"(\d{4})-(0[1-9]|1[0-2])")


@dataclass(frozen=True, order=True)
class Month:
    """One month of one year.

    Attributes:
        year: four digits.
        number: 1 for January.
    """

    year: int
    number: int

    @classmethod
    def parse(cls, text: str) -> Month:
        """Read `YYYY-MM`.

        Raises:
            BudgetError: it is not a month between 2000-01 and 2199-12.
        """
        match = _FORM.fullmatch(text) if text.isascii() else None
        if match is None or int(match[1]) not in _YEARS:
            raise BudgetError(f"{clip(text)} is not a month", "expected YYYY-MM, for example 2026-11")
        return cls(int(match[1]), int(match[2]))

    @classmethod
    def of(cls, when: date) -> Month:
        """The month that a day lies in."""
        return cls(when.year, when.month)

    def __str__(self) -> str:
        return f"{self.year:04d}-{self.number:02d}"

    @property
    def start(self) -> date:
        """The first day."""
        return date(self.year, self.number, 1)

    @property
    def end(self) -> date:
        """The first day of the next month (exclusive end)."""
        return self.next.start

    @property
    def next(self) -> Month:
        """The month after."""
        return Month(self.year + self.number // 12, self.number % 12 + 1)

    @property
    def previous(self) -> Month:
        """The month before."""
        return Month.of(self.start - timedelta(days=1))

    @property
    def days(self) -> tuple[date, ...]:
        """All its days in order."""
        return tuple(self.start + timedelta(days=n) for n in range((self.end - self.start).days))


def months_of(first: date, end: date) -> Iterator[Month]:
    """The months that some days lie in, in order; `end` is exclusive."""
    month = Month.of(first)
    while month.start < end:
        yield month
        month = month.next


FIRST_MONTH = Month(_YEARS[0], 1)
"""The earliest that can be asked for."""


def day_start(day: date) -> int:
    """Unix seconds at 00:00 UTC of a day."""
    return (day - _EPOCH).days * DAY_SECONDS


def day_of(seconds: int) -> date:
    """The UTC day that a moment (Unix seconds) lies in."""
    return _EPOCH + timedelta(days=seconds // DAY_SECONDS)


def moment(seconds: int) -> datetime:
    """Unix seconds as an aware UTC datetime."""
    return datetime.fromtimestamp(seconds, timezone.utc)
