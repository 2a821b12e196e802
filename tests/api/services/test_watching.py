"""Rounds of watching budgets by the service's own clock."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from threading import Event
from typing import Any

import pytest
from sqlalchemy import Engine, insert

from api.db.budget_models import BurnReading
from api.db.engine import connect, writing
from api.services.delivery import Delivered
from api.services.watch import Watched, Watcher
from api.services.watching import Watching
from hpctools.budget.burn import Burn
from hpctools.budget.tree import BudgetSite
from hpctools.errors import UnreachableError
from hpctools.slurm.accounting import JobRecord

NOTHING = Watched(0, Delivered(), None)


class Rounds:
    """Counts rounds; each stores a measurement, as every round begins with one."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.made: list[int] = []

    def __call__(self, now: int) -> Watched:
        self.made.append(now)
        with writing(self.engine) as session:
            session.execute(insert(BurnReading), [{"at": now, "account": "", **vars(Burn()), "days": "{}"}])
        return NOTHING


def test_rounds_are_made_at_their_pace_whoever_made_the_last(engine: Engine, now: int) -> None:
    rounds = Rounds(engine)

    def tick(later: int) -> bool:
        """By a service that was started just now."""
        return Watching(engine, rounds, 300, lambda: now + later).tick()

    assert [tick(0), tick(0), tick(299), tick(300), tick(-9000)] == [True, False, False, True, True]
    assert rounds.made == [now, now + 300, now - 9000]
    assert not Watching(engine, rounds, 0, lambda: now + 9000).tick()


def test_of_two_replicas_one_makes_a_round(engine: Engine, database_url: str, now: int) -> None:
    begun, go, rounds = Event(), Event(), Rounds(engine)

    def slow(at: int) -> Watched:
        begun.set()
        assert go.wait(60)
        return rounds(at)

    other = connect(database_url)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(Watching(engine, slow, 300, lambda: now).tick)
        try:
            assert begun.wait(60)
            assert not Watching(other, rounds, 300, lambda: now).tick()
        finally:
            go.set()
        assert first.result(60)
    assert rounds.made == [now]
    other.dispose()


def test_a_round_that_fails_is_made_again_a_rounds_time_later(engine: Engine, now: int) -> None:
    clock = [now]
    tried: list[int] = []

    def fail(at: int) -> Watched:
        tried.append(at)
        raise UnreachableError("slurmdbd does not answer")

    watching = Watching(engine, fail, 300, lambda: clock[0])
    for later in (0, 5, 299, 300):
        clock[0] = now + later
        if later in (0, 300):
            with pytest.raises(UnreachableError):
                watching.tick()
        else:
            assert not watching.tick()
    assert tried == [now, now + 300]


def test_without_slurmdbd_alerts_go_out_and_limits_stay(
    engine: Engine, site: BudgetSite, now: int, reconcile_november: Any
) -> None:
    class Away:
        def since(self, day: date, now: int) -> Iterable[JobRecord]:
            raise UnreachableError("slurmdbd does not answer")

    class Mailbox:
        def __init__(self) -> None:
            self.got = 0

        def send(self, message: Any) -> None:
            self.got += 1

    reconcile_november()
    mailbox = Mailbox()
    # No method of a cluster's limits is there: the first call of one would fail otherwise than expected.
    watcher = Watcher(engine, Away(), {"mail": mailbox}, slurm=object())  # type: ignore[arg-type]
    with pytest.raises(UnreachableError, match="slurmdbd"):
        watcher.look(site, now)
    assert mailbox.got > 0


def test_a_served_application_watches_until_it_ends(sqlite_service: Any, now: int) -> None:
    done = Event()

    def look(at: int) -> Watched:
        done.set()
        return NOTHING

    watching = Watching(sqlite_service.engine, look, 300, lambda: now)
    sqlite_service.app.state.watching = watching
    with sqlite_service.anonymous():
        assert done.wait(60)
