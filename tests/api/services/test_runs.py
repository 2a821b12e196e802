from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from sqlalchemy import Engine

from api.db.alone import alone
from api.db.engine import StoreError, connect, reading, writing
from api.paging import Page
from api.problems import ProblemError
from api.services import audit, runs
from api.services.reconcile import Outcome
from api.services.scheduler import Scheduler, by_hand, is_due
from hpctools.budget.month import Month
from hpctools.errors import BudgetError, UnreachableError

NOVEMBER = Month(2026, 11)
NOW = 1_795_262_400  # 2026-11-21 12:00 UTC


def ask(engine: Engine, month: Month = NOVEMBER, by: str = "head", now: int = NOW) -> runs.Run:
    with writing(engine) as session:
        return runs.ask(session, month, by, now)


def states(engine: Engine) -> list[tuple[str, str, str]]:
    with reading(engine) as session:
        found, _ = runs.listed(session, Page(1000), None, None)
        return [(str(run.month), run.principal, run.state) for run in reversed(found)]


def scheduler(engine: Engine, work: Any, every: int = 0, now: int = NOW) -> Scheduler:
    return Scheduler(engine, work, "NetAmortizedCost", every, lambda: now)


def quick(month: Month, now: int) -> Outcome:
    return Outcome(month, 2, 3, 4)


def test_a_run_from_asking_to_its_outcome(engine: Engine) -> None:
    run = ask(engine)
    assert (run.state, ask(engine, by="other").id) == ("queued", run.id)
    assert scheduler(engine, quick).tick() == 1
    assert scheduler(engine, quick).tick() == 0
    with reading(engine) as session:
        found = runs.get(session, run.id)
        assert runs.get(session, run.id + 1) is None
        assert runs.counts(session) == {"queued": 0, "running": 0, "done": 1, "failed": 0, "lost": 0}
        assert audit.verify(session) is None
    assert found == runs.Run(
        run.id, NOVEMBER, "head", "done", NOW, NOW, NOW, Outcome(NOVEMBER, 2, 3, 4), None
    )


def test_a_failure_is_told_and_the_next_month_is_reconciled_all_the_same(engine: Engine) -> None:
    def work(month: Month, now: int) -> Outcome:
        if month == NOVEMBER:
            raise UnreachableError("AWS is away", "look at its status page")
        if month == NOVEMBER.previous:
            raise ZeroDivisionError
        return Outcome(month)

    for month in (NOVEMBER, NOVEMBER.previous, NOVEMBER.previous.previous):
        ask(engine, month)
    assert scheduler(engine, work).tick() == 3
    assert [state for _, _, state in states(engine)] == ["failed", "failed", "done"]
    with reading(engine) as session:
        run = runs.last(session, NOVEMBER)
    assert run is not None
    assert (run.error, run.remedy, run.ended_at) == ("AWS is away", "look at its status page", NOW)


def test_what_a_dead_process_had_begun_is_marked_as_lost(engine: Engine) -> None:
    run = ask(engine)
    with writing(engine) as session:
        runs.begun(session, run, NOW)
    ask(engine)
    assert scheduler(engine, quick).tick() == 1
    assert [state for _, _, state in states(engine)] == ["lost", "done"]


def test_what_was_cut_off_is_done_again_at_once(engine: Engine) -> None:
    with writing(engine) as session:
        runs.begun(session, runs.ask(session, NOVEMBER, "head", NOW), NOW)
    assert scheduler(engine, quick).tick() == 1
    assert scheduler(engine, quick).tick() == 0
    assert states(engine) == [("2026-11", "head", "lost"), ("2026-11", "schedule", "done")]


def test_a_run_under_which_the_database_went_away_is_done_again_at_once(engine: Engine) -> None:
    away = [StoreError("the database cannot be used: restarting", "check that it runs")]

    def work(month: Month, now: int) -> Outcome:
        if away:
            raise away.pop()
        return Outcome(month)

    run = ask(engine)
    assert scheduler(engine, work).tick() == 2
    assert states(engine) == [("2026-11", "head", "lost"), ("2026-11", "schedule", "done")]
    with reading(engine) as session:
        found = runs.get(session, run.id)
    assert found is not None
    assert (found.error, found.remedy) == ("the database cannot be used: restarting", "check that it runs")


def test_what_is_cut_off_time_after_time_waits_for_the_schedule(engine: Engine) -> None:
    def work(month: Month, now: int) -> Outcome:
        raise StoreError("the database cannot be used: no space left")

    ask(engine)
    assert scheduler(engine, work).tick() == 3
    assert scheduler(engine, work).tick() == 0
    assert [state for _, _, state in states(engine)] == ["lost"] * 3
    assert scheduler(engine, quick, every=3600, now=NOW + 3600).tick() == 2


def test_the_present_month_by_the_clock_and_the_one_before_daily(engine: Engine) -> None:
    def tick(now: int) -> int:
        return scheduler(engine, quick, every=3600, now=now).tick()

    assert [tick(NOW), tick(NOW), tick(NOW + 3599), tick(NOW + 3600)] == [2, 0, 0, 1]
    assert tick(NOW + 86400) == 2
    assert {by for _, by, _ in states(engine)} == {"schedule"}
    with reading(engine) as session:
        # What the schedule does is no change that anybody made.
        assert audit.head(session) == audit.GENESIS


@pytest.mark.parametrize(
    ("last", "due"), [(NOW, False), (NOW - 3599, False), (NOW - 3600, True), (NOW + 1, True)]
)
def test_a_clock_that_was_set_back_keeps_nobody_waiting(last: int, due: bool) -> None:
    assert is_due(last, 3600, NOW) is due


def test_of_two_replicas_one_works(engine: Engine, database_url: str) -> None:
    begun, go, count = Event(), Event(), []

    def slow(month: Month, now: int) -> Outcome:
        count.append(month)
        begun.set()
        assert go.wait(60)
        return Outcome(month)

    other = connect(database_url)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(scheduler(engine, slow, every=3600).tick)
        try:
            assert begun.wait(60)
            assert scheduler(other, slow, every=3600).tick() == 0
        finally:
            go.set()
        assert first.result(60) == 2
    assert count == [NOVEMBER, NOVEMBER.previous]
    assert scheduler(other, slow, every=3600).tick() == 0
    other.dispose()


def test_the_lock_is_free_again_when_its_holder_ends(engine: Engine, database_url: str) -> None:
    other = connect(database_url)
    with alone(engine) as first, alone(other) as second:
        assert (first, second) == (True, False)
    with alone(other) as third:
        assert third
    with pytest.raises(ZeroDivisionError), alone(engine):
        raise ZeroDivisionError
    with alone(other) as fourth:
        assert fourth
    other.dispose()


def test_a_thread_does_what_was_asked_for_and_ends_when_told(engine: Engine) -> None:
    done = Event()

    def work(month: Month, now: int) -> Outcome:
        done.set()
        return Outcome(month)

    thread = scheduler(engine, work)
    thread.start()
    ask(engine)
    thread.wake()
    assert done.wait(60)
    thread.stop(60)
    assert states(engine) == [("2026-11", "head", "done")]


def test_by_hand(engine: Engine) -> None:
    def fail(month: Month, now: int) -> Outcome:
        raise BudgetError("no bill")

    assert by_hand(engine, NOVEMBER, quick, NOW) == Outcome(NOVEMBER, 2, 3, 4)
    with pytest.raises(BudgetError, match="no bill"):
        by_hand(engine, NOVEMBER, fail, NOW)
    assert [(by.partition(":")[0], state) for _, by, state in states(engine)] == [
        ("operator", "done"),
        ("operator", "failed"),
    ]


def test_pages_of_runs(engine: Engine) -> None:
    months = [Month(2026, number) for number in range(1, 8)]
    for month in months:
        ask(engine, month)
    seen: list[str] = []
    cursor = None
    with reading(engine) as session:
        while True:
            found, cursor = runs.listed(session, Page(3, cursor), None, "queued")
            seen += [str(run.month) for run in found]
            if cursor is None:
                break
            with pytest.raises(ProblemError, match="not one that this list gave"):
                runs.listed(session, Page(3, cursor), None, "done")
    assert seen == [str(month) for month in reversed(months)]
