"""Clocks and calendars: time zones, clocks that are wrong, records and bills that come late, replicas."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from sqlalchemy import Engine, text

from api.db.engine import connect, reading, writing
from api.db.migrate import upgrade
from api.services import runs
from api.services.books import month_period
from api.services.entries import entries
from api.services.reconcile import Outcome, Sacct, reconcile
from api.services.scheduler import Scheduler, by_hand
from api.services.statements import read_statement
from hpctools.budget.bill import BillRow
from hpctools.budget.month import Month
from hpctools.budget.statement import Statement
from hpctools.budget.tree import BudgetSite
from hpctools.errors import BudgetError, UnreachableError

DAY = 86400
Reconcile = Callable[..., Any]


def everything(engine: Engine, site: BudgetSite, month: Month) -> list[Statement]:
    return [read_statement(engine, site, account, month) for account in site.by_name.values()]


def seconds(stated: str) -> int:
    return int(datetime.fromisoformat(stated).replace(tzinfo=timezone.utc).timestamp())


# --- time zones --------------------------------------------------------------------------------------------

# The hour that is there twice in Berlin, and the one in New York a week later; a job over the end of October.
JOBS = (
    ("2026-10-24T22:30:00", "2026-10-25T02:30:00"),
    ("2026-10-25T00:15:00", "2026-10-25T00:45:00"),
    ("2026-10-25T01:15:00", "2026-10-25T01:45:00"),
    ("2026-10-31T23:00:00", "2026-11-01T07:00:00"),
)
SACCT = """#!/bin/bash
# As Slurm's: moments in the time zone of whoever asks.
at() {{ date -d "@$1" +%Y-%m-%dT%H:%M:%S; }}
{lines}
"""
LINE = (
    'echo "{0}|uni-gpu|{0}|cv1|cv-lab-a|cv|medium|$(at {1})|$(at {1})|$(at {2})|00:00:00|COMPLETED|'
    'cpu=96,gres/gpu=8,mem=1G,node=1|reserved-{0}|"'
)


@dataclass(frozen=True)
class Hourly:
    """A bill of one unit for each hour of four nodes."""

    name: str = "aws-ce"

    def rows(self, month: Month) -> list[BillRow]:
        money = Decimal(96)
        return [
            BillRow("aws-ce", day, "reserved", "use", "NetAmortizedCost", "USD", money, money)
            for day in month.days
        ]


@pytest.fixture
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    "zone", ["UTC", "Europe/Berlin", "America/New_York", "Pacific/Kiritimati"], indirect=True
)
def test_days_are_the_bills_wherever_the_service_is(
    sqlite_service: Any, site: BudgetSite, zone: str, tmp_path: Path
) -> None:
    """Also on days of 23 or 25 hours."""
    program = tmp_path / "sacct"
    lines = (LINE.format(n, seconds(begin), seconds(end)) for n, (begin, end) in enumerate(JOBS, 1))
    program.write_text(SACCT.format(lines="\n".join(lines)))
    program.chmod(0o755)
    engine, october, site = sqlite_service.engine, Month(2026, 10), replace(site, idle="unallocated")
    spent: dict[str, Decimal] = {}
    for month in (october, october.next):
        reconcile(engine, site, month, Hourly(), Sacct(program, 30), seconds("2026-11-05T00:00:00"))
        statement = read_statement(engine, site, site.by_name["cv-lab-a"], month)
        assert statement.days[0].day == month.start
        spent |= {f"{point.day:%m-%d}": point.amount for point in statement.days if point.amount}
    assert spent == {
        "10-24": Decimal("1.5"),
        "10-25": Decimal("3.5"),
        "10-31": Decimal(1),
        "11-01": Decimal(7),
    }


# --- clocks that are wrong ---------------------------------------------------------------------------------


def test_a_clock_that_is_set_back_in_the_middle(
    engine: Engine, site: BudgetSite, november: Month, bills: Any, jobs: Any, now: int
) -> None:
    times = iter([now] * 4 + [now - 7200] * 20)
    clock = {"now": now}

    def tick() -> int:
        clock["now"] = next(times, clock["now"])
        return clock["now"]

    def work(month: Month, at: int) -> Outcome:
        return reconcile(engine, site, month, bills, jobs, at)

    with writing(engine) as session:
        run = runs.ask(session, november, "head", now)
    assert Scheduler(engine, work, site.metric, 0, tick).tick() == 1
    with reading(engine) as session:
        found = runs.get(session, run.id)
    assert found is not None
    assert (found.state, found.outcome and found.outcome.superseded) == ("done", False)
    before = everything(engine, site, november)
    # What is read meanwhile is older by the clock and changes nothing; then all goes on.
    assert work(november, now - 7000).superseded
    assert everything(engine, site, november) == before
    bills.months[november] = tuple(replace(row, amount=row.amount * 2) for row in bills.rows(november))
    assert work(november, now + 1).entries > 0
    assert read_statement(engine, site, site.by_name["root"], november).spent == before[0].spent * 2


def test_a_clock_that_was_ahead_is_told_and_not_taken_for_newer_data(
    engine: Engine, site: BudgetSite, november: Month, reconcile_november: Reconcile, now: int
) -> None:
    reconcile_november(now + 40 * DAY)
    before = everything(engine, site, november)
    with pytest.raises(
        BudgetError, match="the last reconciliation of 2026-11 is of 2026-12-31, which is to come"
    ):
        reconcile_november()
    assert everything(engine, site, november) == before
    assert not reconcile_november(now + 41 * DAY).superseded


# --- late --------------------------------------------------------------------------------------------------


def test_slurmdbd_is_away_for_two_days_and_records_arrive_late(
    engine: Engine, site: BudgetSite, november: Month, bills: Any, jobs: Any, now: int, tmp_path: Path
) -> None:
    """Afterwards everything is as if it had never been away, and the entries say why they came."""
    two_days_ago = now - 2 * DAY
    complete = list(jobs.records)
    known = [job for job in complete if job.start is not None and job.start < two_days_ago]
    away = True

    class Slurmdbd:
        def windows(self, month: Month, at: int) -> Any:
            if away and at > two_days_ago:
                raise UnreachableError("slurmdbd does not answer")
            return jobs.windows(month, at)

    def work(month: Month, at: int) -> Outcome:
        return reconcile(engine, site, month, bills, Slurmdbd(), at)

    def tick(at: int) -> str:
        with writing(engine) as session:
            run = runs.ask(session, november, "head", at)
        assert Scheduler(engine, work, site.metric, 0, lambda: at).tick() == 1
        with reading(engine) as session:
            found = runs.get(session, run.id)
        assert found is not None
        return found.state

    jobs.records = [
        job if job.end is not None and job.end <= two_days_ago else replace(job, end=None, state="RUNNING")
        for job in known
    ]
    assert tick(two_days_ago) == "done"
    before = everything(engine, site, november)
    assert [tick(two_days_ago + hours * 3600) for hours in (1, 24, 47)] == ["failed"] * 3
    assert everything(engine, site, november) == before

    away, jobs.records = False, complete
    assert tick(now) == "done"
    undisturbed = connect(f"sqlite:///{tmp_path}/undisturbed.sqlite")
    upgrade(undisturbed)
    reconcile(undisturbed, site, november, bills, jobs, now)
    assert everything(engine, site, november) == everything(undisturbed, site, november)
    undisturbed.dispose()
    late = entries(engine, site, site.by_name["root"], month_period(november), limit=10_000).entries
    reasons = {entry.reason for entry in late if entry.run == max(each.run for each in late)}
    assert any("jobs" in reason for reason in reasons)


def test_a_bill_is_restated_three_months_later(
    engine: Engine, site: BudgetSite, november: Month, bills: Any, jobs: Any, now: int
) -> None:
    """The service looks by itself; what it finds are corrections of that month alone."""
    jobs.records = [job for job in jobs.records if job.end is not None]
    final = tuple(replace(row, estimated=False) for row in bills.rows(november))
    bills.months[november] = final
    december = november.next
    bills.months[december] = tuple(
        replace(row, day=row.day.replace(month=12)) for row in final if row.day.day < 20
    )

    def work(month: Month, at: int) -> Outcome:
        return reconcile(engine, site, month, bills, jobs, at)

    def tick(days: int) -> None:
        Scheduler(engine, work, site.metric, 3600, lambda: now + days * DAY).tick()

    tick(15)
    tick(45)
    then = [everything(engine, site, month) for month in (november, december)]
    assert (then[0][0].status, then[1][0].status) == ("final", "final")
    bills.months[november] = tuple(replace(row, amount=row.amount * Decimal("1.1")) for row in final)
    tick(45 + 92)
    whole = read_statement(engine, site, site.by_name["root"], november)
    assert (whole.status, whole.corrected, whole.spent) == ("final", True, then[0][0].spent * Decimal("1.1"))
    assert everything(engine, site, december) == then[1]
    as_known = read_statement(engine, site, site.by_name["root"], november, known_on=now + 45 * DAY)
    assert (as_known.status, as_known.corrected, as_known.spent) == ("final", False, then[0][0].spent)


# --- replicas ----------------------------------------------------------------------------------------------


def test_two_replicas_and_somebody_by_hand_at_once(
    engine: Engine,
    database_url: str,
    site: BudgetSite,
    november: Month,
    bills: Any,
    jobs: Any,
    now: int,
    november_service: Any,
) -> None:
    """The work is done once, whoever did it; each has its connections."""
    with writing(engine) as session:
        runs.ask(session, november, "head", now)
    engines, together = [connect(database_url) for _ in range(3)], Barrier(3)

    def work_of(own: Engine) -> Callable[[Month, int], Outcome]:
        return lambda month, at: reconcile(own, site, month, bills, jobs, at)

    def replica(own: Engine) -> int:
        together.wait(60)
        return Scheduler(own, work_of(own), site.metric, 0, lambda: now).tick()

    def operator(own: Engine) -> Outcome:
        together.wait(60)
        return by_hand(own, november, work_of(own), now)

    with ThreadPoolExecutor(3) as pool:
        replicas = [pool.submit(replica, own) for own in engines[:2]]
        hand = pool.submit(operator, engines[2])
        counts, _ = [each.result(100) for each in replicas], hand.result(100)
    for own in engines:
        own.dispose()
    assert sum(counts) <= 1
    assert everything(engine, site, november) == everything(november_service.engine, site, november)
    with engine.connect() as connection:
        posted = connection.scalar(text("SELECT count(*) FROM attribution_run"))
        states = connection.execute(text("SELECT state FROM reconciliation_event")).scalars().all()
    assert posted == 1
    assert set(states) <= {"running", "done"}
