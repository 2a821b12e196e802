"""What another coordinator knows of the restarts after crashes that were counted before it."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from hpctools.elastic.coordinator import Coordinator
from hpctools.elastic.folder import Event, RunFolder
from hpctools.elastic.restart.budget import Budget, Charge, backoff, charges_of, read_charges
from hpctools.elastic.spec import RunSpec
from hpctools.testing.slurm import FakeSlurm

UTC = datetime(2026, 11, 21, 12, 0, 0, tzinfo=timezone.utc)
SPEC = RunSpec("t-1", "t", "nlp1", "", 1, 2, 1, ("true",), "/", (), "/r.sh", "now", mode="restart")


def charged(ago: float, **detail: Any) -> Event:
    return Event((UTC - timedelta(seconds=ago)).isoformat(), "charged", detail)


def test_events_tell_when_which_generation_was_counted_and_damaged_ones_nothing() -> None:
    events = [
        charged(90.0, generation=2, reason="rank 1 ended"),
        Event(charged(80.0).time, "crashed", {"generation": 2}),
        Event("at noon", "charged", {"generation": 3}),
        charged(70.0, reason="torn"),
        charged(10.0, generation=5, reason="hang"),
    ]
    assert charges_of(events, 1000.0, UTC) == [Charge(910.0, 2), Charge(990.0, 5)]


def test_a_clock_that_was_fast_makes_no_restart_count_for_longer() -> None:
    budget = Budget(60.0, charges_of([charged(-86400.0, generation=1)], 1000.0, UTC))
    assert budget.charge(1050.0, 2) == 2
    assert budget.charge(1070.0, 3) == 2


def test_earlier_restarts_count_within_the_period_and_ever() -> None:
    budget = Budget(60.0, [Charge(910.0, 2), Charge(990.0, 5)])
    assert (budget.ever, budget.last) == (2, 5)
    assert (budget.charge(1000.0, 6), budget.ever, budget.last) == (2, 3, 6)


def test_the_pause_before_another_try_grows_to_half_a_minute() -> None:
    assert [backoff(within) for within in (1, 2, 3, 6, 7, 99)] == [0.0, 1.0, 2.0, 16.0, 30.0, 30.0]


def test_who_takes_a_run_over_asks_its_folder(tmp_path: Path) -> None:
    """And one that cannot be read tells nothing."""
    folder = RunFolder.create(tmp_path / "run", SPEC)

    async def restarts(term: int) -> int:
        restart: Any = Coordinator(folder, FakeSlurm(), 12, term=term)._run.restart
        return int(restart._generations.restarts)

    for generation in (1, 2):
        folder.append_event("charged", generation=generation, reason="rank 0 ended")
    assert [asyncio.run(restarts(term)) for term in (1, 2)] == [0, 2]
    (charge, _) = read_charges(folder, 1000.0)
    assert 990.0 < charge.at <= 1000.0
    (folder.path / "events.jsonl").unlink()
    (folder.path / "events.jsonl").mkdir()
    assert read_charges(folder, 1000.0) == []
