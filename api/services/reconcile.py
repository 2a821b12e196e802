"""Reconcile a month: fetch the bill and the jobs, store them, attribute, post what changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from api.db.bill_store import append_pulled
from api.db.engine import reading, writing
from api.db.job_store import JobIntake
from api.db.ledger import last_run, post
from api.db.reservation_store import append_reservations, wanted
from api.services.division import Division, divide, head
from api.services.sources import BillSource, Combined, names, pull
from hpctools.budget.jobs import JobWindow
from hpctools.budget.month import DAY_SECONDS, Month, day_of
from hpctools.budget.tree import BudgetSite
from hpctools.errors import BudgetError
from hpctools.slurm.accounting import read_windows
from hpctools.slurm.reservations import Reservation, read_reservations

_ATTEMPTS = 3


class JobSource(Protocol):
    """Where jobs come from."""

    def windows(self, month: Month, now: int) -> Iterable[JobWindow]:
        """Every job known in a month until `now` (Unix seconds), some days at a time."""
        ...


class ReservationSource(Protocol):
    """Where reservations come from."""

    def reservations(self, month: Month) -> tuple[Reservation, ...]:
        """Every reservation known in a month."""
        ...


@dataclass(frozen=True)
class Sacct:
    """Slurm's own accounting, through its commands: sacct, and sacctmgr beside it.

    Attributes:
        timeout: seconds for one query of sacct.
    """

    program: Path
    timeout: float

    def windows(self, month: Month, now: int) -> Iterator[JobWindow]:
        """Every job known in a month until `now`, a window of days at a time."""
        end = min(month.end, day_of(now) + timedelta(days=1))
        answers = read_windows(month.start, end, sacct=self.program, timeout=self.timeout)
        return map(JobWindow.of_text, answers)

    def reservations(self, month: Month) -> tuple[Reservation, ...]:
        """Every reservation known in a month."""
        program = self.program.with_name("sacctmgr")
        return read_reservations(month.start, month.end, sacctmgr=program, timeout=self.timeout)


@dataclass(frozen=True)
class Outcome:
    """What a reconciliation did.

    Attributes:
        bill_days, jobs: how many were new or had changed.
        entries: how many ledger entries were posted.
        superseded: a run with newer data was there already, nothing was posted.
        kept_days: days that are over whose own nodes would have another bill by the site file of now.
    """

    month: Month
    bill_days: int = 0
    jobs: int = 0
    entries: int = 0
    superseded: bool = False
    kept_days: int = 0


def reconcile(
    engine: Engine,
    site: BudgetSite,
    month: Month,
    bills: BillSource | Combined,
    jobs: JobSource,
    now: int,
    reserved: ReservationSource | None = None,
) -> Outcome:
    """Bring the ledger of a month to what the bill and slurmdbd say now.

    What is fetched is stored as it comes, a window of jobs at a time, for it is true whatever follows. Then
    the days that it changed are divided, and all that follows from them is posted in one transaction: a crash
    leaves the statements as they were, two at once do the work once, and a replay changes nothing.

    Args:
        now: Unix seconds; running jobs are counted until here.
        reserved: asked where the site's idle policy is `reservation-owner`.

    Raises:
        UnreachableError: AWS, slurmdbd or the database does not answer.
        BudgetError: the bill or the jobs cannot be read; or a clock is wrong.
    """
    with reading(engine) as session:
        if _is_superseded(session, site, month, now):
            return Outcome(month, superseded=True)
    bill = pull(bills, month, site.metric)
    with writing(engine) as session:
        if _is_superseded(session, site, month, now):
            return Outcome(month, superseded=True)
        days = sum(append_pulled(session, pulled, now) for pulled in bill)
    changed, intake = 0, JobIntake()
    for window in jobs.windows(month, now):
        with writing(engine) as session:
            changed += intake.append(session, window, now)
    if reserved is not None and site.idle == "reservation-owner":
        _take_reservations(engine, month, reserved, now)
    return replace(_divided(engine, site, month, names(bills), now), bill_days=days, jobs=changed)


def _take_reservations(engine: Engine, month: Month, reserved: ReservationSource, now: int) -> None:
    with reading(engine) as session:
        if not wanted(session, month, now):
            return
    found = reserved.reservations(month)
    with writing(engine) as session:
        append_reservations(session, month, found, now)


def _is_superseded(session: Session, site: BudgetSite, month: Month, now: int) -> bool:
    """Whether a run knows more.

    Raises:
        BudgetError: it says that it is from a day to come, by the clock that was wrong then or is now.
    """
    last = last_run(session, month, site.metric)
    if last is not None and last.as_of > now + DAY_SECONDS:
        raise BudgetError(
            f"the last reconciliation of {month} is of {day_of(last.as_of)}, which is to come",
            "correct this machine's clock; if it was wrong then, restore the backup from before",
        )
    return last is not None and last.as_of > now


def _divided(engine: Engine, site: BudgetSite, month: Month, sources: tuple[str, ...], now: int) -> Outcome:
    """Divide what is stored, without the lock; post it under the lock if nothing was stored meanwhile."""
    for _ in range(_ATTEMPTS):
        with reading(engine) as session:
            division = divide(session, site, month, sources, now)
        with writing(engine) as session:
            if head(session) == division.head:
                return _posted(session, site, month, division)
    with writing(engine) as session:
        return _posted(session, site, month, divide(session, site, month, sources, now))


def _posted(session: Session, site: BudgetSite, month: Month, division: Division) -> Outcome:
    if _is_superseded(session, site, month, division.knowledge.as_of):
        return Outcome(month, superseded=True)
    return Outcome(month, entries=len(post(session, month, site.metric, division.days, division.knowledge)))
