"""Jobs in the store: each once, the newest of what was seen, whatever came in which order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sqlalchemy import Engine, func, select

from api.db.engine import reading, writing
from api.db.job_store import JobIntake, JobsByDay, batches, current_jobs
from api.db.models import JobBatch
from hpctools.budget.jobs import JobWindow
from hpctools.budget.month import Month, day_start
from hpctools.slurm.accounting import JobRecord
from hpctools.slurm.accounting_table import to_records

NOVEMBER = Month(2026, 11)
START = day_start(NOVEMBER.start)
DAY = 86400


def job(dbindex: int, start: int | None, end: int | None, submitted: int | None = None) -> JobRecord:
    return JobRecord(
        cluster="uni",
        dbindex=dbindex,
        job_id=7,
        user="u",
        account="a",
        partition="p",
        qos="q",
        submitted=(start or START) if submitted is None else submitted,
        start=start,
        end=end,
        suspended_seconds=0,
        state="COMPLETED" if end else "RUNNING",
        cpus=1,
        memory_mb=1,
        gpus=0,
        shards=0,
        nodes="n-1",
        reservation="",
    )


def take(engine: Engine, records: Iterable[JobRecord], seen_at: int, month: Month = NOVEMBER) -> int:
    with writing(engine) as session:
        window = JobWindow.of_records(month.start, month.end, records)
        return JobIntake().append(session, window, seen_at)


def current(engine: Engine, month: Month = NOVEMBER) -> list[JobRecord]:
    with reading(engine) as session:
        return sorted(to_records(current_jobs(session, month)))


def test_the_same_again_stores_nothing_and_reads_nothing(engine: Engine) -> None:
    jobs = [job(1, START, START + 5), job(2, START + DAY, None)]
    assert take(engine, jobs, 100) == 2

    def refuse() -> None:
        raise AssertionError("read again")

    with writing(engine) as session:
        known = JobWindow.of_records(NOVEMBER.start, NOVEMBER.end, jobs)
        assert JobIntake().append(session, replace(known, table=refuse), 200) == 0  # type: ignore[arg-type]
        # Another window with the same jobs has another answer, and nothing new.
        other = JobWindow.of_records(NOVEMBER.start, NOVEMBER.days[9], jobs)
        assert JobIntake().append(session, other, 200) == 0
        assert session.scalar(select(func.count()).select_from(JobBatch)) == 2


def test_the_newest_that_was_seen_counts_and_an_older_look_changes_nothing(engine: Engine) -> None:
    running, ended = job(1, START, None), job(1, START, START + 50)
    assert take(engine, [running], 100) == 1
    assert take(engine, [ended], 200) == 1
    assert current(engine) == [ended]
    assert take(engine, [running], 150, NOVEMBER.previous) == 0
    assert current(engine) == [ended]


def test_jobs_that_never_started_are_left_out_and_recycled_ids_are_two(engine: Engine) -> None:
    two = [job(1, START, START + 5), job(2, START + 9, START + 12)]
    assert take(engine, [*two, job(3, None, None)], 100) == 2
    assert current(engine) == two


def test_a_job_of_an_older_month_counts_while_it_ran(engine: Engine) -> None:
    long = job(1, START - 40 * DAY, START + 10, submitted=START - 50 * DAY)
    before = job(2, START - 40 * DAY, START - 30 * DAY)
    assert take(engine, [long, before], 100) == 2
    assert current(engine) == [long]
    assert current(engine, NOVEMBER.next) == []


def test_days_have_the_jobs_that_ran_on_them(engine: Engine) -> None:
    jobs = [
        job(1, START - DAY, START + 2 * DAY),
        job(2, START + DAY, START + DAY + 5, submitted=START - 9 * DAY),
        job(3, START + DAY, None),
        job(4, START, START + DAY),
    ]
    take(engine, jobs, 100)
    with reading(engine) as session:
        by_day = JobsByDay(session, batches(session, NOVEMBER))
        ran = [sorted(record.dbindex for record in to_records(by_day.of(day))) for day in NOVEMBER.days[:4]]
    assert ran == [[1, 4], [1, 2, 3], [3], [3]]


def test_an_amended_end_touches_the_time_that_it_gave_back(engine: Engine) -> None:
    take(engine, [job(1, START, START + 5 * DAY)], 100)
    take(engine, [job(1, START, START + DAY)], 200)
    with reading(engine) as session:
        *_, last = batches(session, NOVEMBER)
    assert last.touches(START + 4 * DAY, START + 5 * DAY)
    assert not last.touches(START + 5 * DAY, START + 6 * DAY)
    assert current(engine) == [job(1, START, START + DAY)]
