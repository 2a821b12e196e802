"""The books of some days as they were at one moment: which runs count, and the days that these divided.

What a run has posted does not change, so whoever names the last run that counts sees the same again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from sqlalchemy import Engine, func, select
from sqlalchemy.orm import Session

from api.db.day_store import KnownDay, coverage, known_days
from api.db.ledger import corrected, last_run
from api.db.models import AttributionRun
from api.services.kept import Kept, KeptByStore
from hpctools.budget.allowance import Period
from hpctools.budget.attribution import Coverage
from hpctools.budget.money import percent
from hpctools.budget.month import Month, day_of, months_of
from hpctools.budget.statement import Status
from hpctools.budget.tree import SITE_ACCOUNT, Account, BudgetSite

_MONTHS = 60


@dataclass(frozen=True)
class Moment:
    """A state of the books.

    Attributes:
        known_on: Unix seconds, as it was known then; None for now.
        through: number of the last run that counts; None for the newest.
    """

    known_on: int | None = None
    through: int | None = None


@dataclass(frozen=True)
class Quality:
    """How sure figures about an account and some days are.

    Attributes:
        status: `none` before the first reconciliation; `final` when every month that the days lie in is.
        corrected: something of it was changed after a month had been final.
        coverage: percent of the account's node time whose bill has arrived; None when it ran nothing.
        as_of: Unix seconds of the last reconciliation; None for never.
    """

    status: Status
    corrected: bool
    coverage: Decimal | None
    as_of: int | None


@dataclass(frozen=True)
class Books:
    """The books of some days at one moment.

    Attributes:
        through: number of the last run that counts; 0 when there is none.
        runs: the last of each month that has one.
        days: the newest of each day, in order.
    """

    period: Period
    metric: str
    through: int
    runs: tuple[AttributionRun, ...]
    days: tuple[KnownDay, ...]

    @property
    def as_of(self) -> int | None:
        """Unix seconds of the last reconciliation that counts."""
        return max((run.as_of for run in self.runs), default=None)

    @property
    def day_ids(self) -> list[int]:
        """The days as the store names them."""
        return [day.id for day in self.days]


def open_books(session: Session, metric: str, period: Period, moment: Moment) -> Books:
    """The books of some days as they were at a moment."""
    through = moment.through if moment.through is not None else _newest(session, metric, moment.known_on)
    months = list(months_of(period.first, period.end))
    found = [last_run(session, month, metric, moment.known_on, through) for month in months]
    runs = tuple(run for run in found if run is not None)
    days = [
        day for run in runs for day in known_days(session, Month.parse(run.month), metric, run.id).values()
    ]
    return Books(period, metric, through, runs, tuple(day for day in days if day.day in period))


def quality(engine: Engine, session: Session, books: Books, site: BudgetSite, account: Account) -> Quality:
    """How sure what the books say of an account is."""
    mine = None if account.name == SITE_ACCOUNT else site.subtree(account.name)
    final = [run.final for run in books.runs]
    months = len(list(months_of(books.period.first, books.period.end)))
    late = any(
        corrected(session, Month.parse(run.month), books.metric, run.id, mine and sorted(mine))
        for run in books.runs
    )
    status: Status = "final" if all(final) and len(final) == months else "estimated"
    return Quality(
        status=status if books.runs else "none",
        corrected=late,
        coverage=_coverage(_covered(engine, session, books), mine),
        as_of=books.as_of,
    )


def counted_to(books: Books, day: date) -> int | None:
    """Unix seconds that a day's running jobs were counted to; None for a day that nobody divided."""
    return next((known.inputs.counted_to for known in books.days if known.day == day), None)


_Covered = Mapping[str, Coverage]

_kept: KeptByStore[Kept[_Covered]] = KeptByStore(lambda: Kept(_MONTHS))


def _covered(engine: Engine, session: Session, books: Books) -> list[_Covered]:
    """By account, of each month. Days in the store do not change: those of a month are read once."""
    months: defaultdict[Month, list[int]] = defaultdict(list)
    for day in books.days:
        months[Month.of(day.day)].append(day.id)

    def read(ids: tuple[int, ...]) -> _Covered:
        return _kept.of(engine).get(ids, lambda: coverage(session, ids))

    return [read(tuple(ids)) for ids in months.values()]


def _coverage(months: Iterable[_Covered], mine: Collection[str] | None) -> Decimal | None:
    everybody = ((name, found) for known in months for name, found in known.items())
    counted = [found for name, found in everybody if mine is None or name in mine]
    billed, used = sum(found.billed for found in counted), sum(found.used for found in counted)
    return percent(Decimal(billed), Decimal(used))


def _newest(session: Session, metric: str, known_on: int | None) -> int:
    query = select(func.max(AttributionRun.id)).where(AttributionRun.metric == metric)
    if known_on is not None:
        query = query.where(AttributionRun.as_of <= known_on)
    return session.scalar(query) or 0


def month_period(month: Month) -> Period:
    """All days of a month."""
    return Period(month.start, month.end)


def last_days(now: int, months: int) -> Period:
    """The present month and those before it, whole."""
    first = Month.of(day_of(now))
    end = first.end
    for _ in range(months - 1):
        first = first.previous
    return Period(first.start, end)
