"""What is worked out once, also when many want it at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from typing import Any

import pytest
from sqlalchemy import Engine

from api.db.day_store import coverage
from api.services import books
from api.services.kept import Kept
from api.services.reports import read_report
from hpctools.budget.allowance import Period
from hpctools.budget.month import Month
from hpctools.budget.tree import BudgetSite

_LIMIT = 60.0


def test_of_many_that_want_the_same_at_once_one_makes_it() -> None:
    kept: Kept[int] = Kept(2)
    begun, go, made = Event(), Event(), []

    def make() -> int:
        made.append(1)
        begun.set()
        assert go.wait(_LIMIT)
        return 7

    with ThreadPoolExecutor(8) as threads:
        first = threads.submit(kept.get, "same", make)
        assert begun.wait(_LIMIT)
        others = [threads.submit(kept.get, "same", make) for _ in range(6)]
        # Another key waits for nobody.
        assert kept.get("other", lambda: 8) == 8
        go.set()
        assert [each.result(_LIMIT) for each in (first, *others)] == [7] * 7
    assert len(made) == 1
    assert kept.get("same", make) == 7


def test_what_could_not_be_made_is_told_to_all_that_wait_and_tried_again_by_the_next() -> None:
    kept: Kept[int] = Kept(2)
    begun, go, tries = Event(), Event(), []

    def fail() -> int:
        tries.append(1)
        begun.set()
        assert go.wait(_LIMIT)
        raise ValueError("away")

    ready = Barrier(3)

    def ask() -> int:
        ready.wait(_LIMIT)
        return kept.get("same", fail)

    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(kept.get, "same", fail)
        assert begun.wait(_LIMIT)
        others = [threads.submit(ask) for _ in range(2)]
        ready.wait(_LIMIT)
        go.set()
        for each in (first, *others):
            with pytest.raises(ValueError, match="away"):
                each.result(_LIMIT)
    assert kept.get("same", lambda: 9) == 9


def test_the_days_of_a_month_are_read_once_for_the_pages_of_all_accounts(
    engine: Engine,
    site: BudgetSite,
    november: Month,
    reconcile_november: Any,
    monkeypatch: pytest.MonkeyPatch,
    now: int,
) -> None:
    reconcile_november()
    read: list[int] = []

    def counted(*given: Any) -> Any:
        read.append(1)
        return coverage(*given)

    monkeypatch.setattr(books, "coverage", counted)
    period = Period(november.start, november.end)
    told = [read_report(engine, site, site.by_name[name], period).quality for name in ("root", "nlp", "cv")]
    assert len(read) == 1
    assert all(each.coverage is not None for each in told)
    reconcile_november(now + 86400)
    read_report(engine, site, site.by_name["nlp"], period)
    assert len(read) == 2
