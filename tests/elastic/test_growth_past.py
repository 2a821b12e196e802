"""What another coordinator knows about growing when it takes over."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from hpctools.elastic.assembly import FIRST_SECONDS
from hpctools.elastic.coordinator import Coordinator
from hpctools.elastic.deciding import GrowthFacts
from hpctools.elastic.folder import Event, RunFolder
from hpctools.elastic.growth import NEVER, Facts, Rate, Tenure
from hpctools.elastic.growth_history import GrowthHistory, Payback
from hpctools.elastic.growth_past import Past, past_of, read_past
from hpctools.elastic.history import Moment
from hpctools.elastic.policy import ElasticPolicy
from hpctools.elastic.spec import RunSpec
from hpctools.testing.slurm import FakeSlurm

UTC = datetime(2026, 11, 21, 12, 0, 0, tzinfo=timezone.utc)
NOW = 1000.0


def stamp(at: float) -> str:
    return (UTC - timedelta(seconds=NOW - at)).isoformat()


def event(at: float, kind: str, **detail: Any) -> Event:
    return Event(stamp(at), kind, detail)


def moment(at: float, size: int, speed: float | None) -> Moment:
    return Moment(stamp(at), 1, size, size, None, speed)


EVENTS = [
    event(100, "joined", worker="b0.0.0", node="n0", generation=1),
    event(100, "joined", worker="r7.0.0", node="n1", generation=1),
    event(100, "joined", worker="r7.1.0.0", node="n2", generation=1),
    event(110, "joined", worker="r7.0.1", node="n1", generation=2),  # its worker was started again
    event(200, "resize", **{"from": 2, "to": 3, "recovered": False, "pause_s": 0.5}),
    event(200, "joined", worker="r8.0.0", node="n3", generation=3),
    event(210, "left", job_id=7, node="n2", reason="preempted"),
    event(211, "resize", **{"from": 3, "to": 2, "recovered": True, "pause_s": 2}),
    event(300, "left", job_id=8, node="n3", reason="released"),
    event(400, "joined", worker="r9", node="n4", generation=4),  # as restart mode tells it
    Event("at noon", "resize", {"pause_s": 99.0}),
    event(500, "resize", **{"from": 2, "to": 4, "recovered": False}),
]


@pytest.mark.parametrize(
    "events",
    [
        [event(4500, "joined", worker="r7.0.0", node="n1")],
        [
            event(4500, "joined", worker="r7.0.0", node="n1"),
            event(950, "left", job_id=7, node="n1", reason="preempted"),
        ],
    ],
    ids=["it is there", "it has left"],
)
def test_a_clock_that_was_set_back_does_not_keep_the_run_from_growing(events: list[Event]) -> None:
    """Nobody stays for less than no time: that would be taken off what everybody else did."""
    payback = Payback()
    payback.history.restore(past_of(events, [], NOW, UTC))
    payback.history.arrived("r7", NOW)
    waiting = GrowthFacts(waiting_since=NOW - 60, last_ready=NOW - 60)
    verdict = payback.judge(NOW, 2, 3, waiting)
    assert verdict.grow
    assert verdict.numbers["expected_tenure_s"] >= 300


def test_events_tell_who_stayed_how_long_and_what_growing_brought() -> None:
    moments = [moment(100, 2, 10.0), moment(101, 2, 20.0), moment(102, 3, 99.0), moment(104, 3, 30.0)]
    idle = [moment(105, 0, 30.0), moment(106, 0, 30.0), moment(107, 2, 20.0), moment(110, 2, None)]
    assert past_of(EVENTS, [*moments, *idle], NOW, UTC) == Past(
        since={"r7": 100.0, "r9": 400.0},
        tenures=[Tenure(110.0, True, 210.0), Tenure(100.0, False, 300.0)],
        pauses=[0.5],
        growths=[(200.0, 211.0), (500.0, None)],
        rates={2: Rate(20.0, 1.0), 3: Rate(60.0, 2.0)},
        restarted=211.0,
        has_begun=True,
    )


BEGUN = event(100, "joined", worker="b0.0.0", node="n0", generation=1)


@pytest.mark.parametrize(
    ("events", "restarted"),
    [
        ([BEGUN], NEVER),
        ([event(99, "resumed", step=40, where="/c"), BEGUN], NEVER),
        ([BEGUN, event(300, "resumed", step=40, where="/c")], 300.0),
        ([BEGUN, event(300, "action", action="RestartAll", reason="why")], 300.0),
        ([BEGUN, event(300, "action", action="Depart", node="n0")], NEVER),
    ],
)
def test_the_first_start_is_no_restart_and_that_of_all_workers_is(
    events: list[Event], restarted: float
) -> None:
    past = past_of(events, [], NOW, UTC)
    assert (past.restarted, past.has_begun) == (restarted, True)


@pytest.mark.parametrize("taken_over", [False, True])
def test_the_snooze_is_for_restarts_with_one_coordinator_as_with_the_next(taken_over: bool) -> None:
    """Every first generation is formed as a recovery, with nobody before it."""
    payback = Payback(ElasticPolicy((1, 2), scale_up_snooze_s=2000.0))
    history = payback.history
    waits = GrowthFacts(waiting_since=0.0, last_ready=0.0)
    if taken_over:
        history.restore(past_of([BEGUN], [], NOW, UTC))
    else:
        history.formed(0, 1, 100.0, recovered=True)
    assert payback.judge(NOW, 1, 2, waits).grow, "it has only just begun"
    history.formed(0, 1, NOW, recovered=True)
    verdict = payback.judge(NOW + 5, 1, 2, waits)
    assert (verdict.grow, verdict.why) == (False, "a restart was a short time ago"), "all were restarted"


@pytest.mark.parametrize(
    ("pause", "phases", "costs"),
    [
        (10800.0, {"state": 0.2}, []),
        (10804.0, {"save": 1.0, "wait": 10800.0, "start": 2.0, "first": 1.0}, [4.0]),
    ],
)
def test_hours_below_the_least_are_no_cost_of_a_resize(
    pause: float, phases: dict[str, float], costs: list[float]
) -> None:
    detail = {"from": 2, "to": 2, "recovered": True, "pause_s": pause, "phases": phases}
    assert past_of([BEGUN, event(300, "resize", **detail)], [], NOW, UTC).pauses == costs


def test_who_comes_back_counts_from_when_it_came_and_who_does_not_is_not_there() -> None:
    history = GrowthHistory()
    history.restore(past_of(EVENTS, [], NOW, UTC))
    history.arrived("r7", 1001.0)
    history.arrived("r10", 1002.0)
    assert history.facts(1010.0) == Facts(
        restarted=211.0,
        pauses=(0.5,),
        tenures=(
            Tenure(110.0, True, 210.0),
            Tenure(100.0, False, 300.0),
            Tenure(910.0, False, 1010.0),
            Tenure(8.0, False, 1010.0),
        ),
        growths=((200.0, 211.0), (500.0, None)),
    )


@pytest.mark.parametrize("takes_over", [False, True])
def test_snooze_and_back_off_outlive_the_coordinator(takes_over: bool) -> None:
    payback = Payback(ElasticPolicy((1, 2), scale_up_snooze_s=900.0))
    if takes_over:
        payback.history.restore(past_of(EVENTS, [], NOW, UTC))
    verdict = payback.judge(NOW, 1, 2, GrowthFacts(waiting_since=900.0, last_ready=900.0))
    assert verdict.grow is not takes_over
    assert (verdict.not_before, verdict.numbers["strikes"]) == ((1111.0, 1.0) if takes_over else (None, 0.0))


def test_a_folder_tells_it_and_one_that_cannot_be_read_tells_nothing(tmp_path: Path) -> None:
    spec = RunSpec("t-1", "t", "nlp1", "", 1, 2, 1, ("true",), "/", (), "/r.sh", "now")
    folder = RunFolder.create(tmp_path / "run", spec)
    assert read_past(folder, NOW) == Past()
    phases = {"save": 1.0, "wait": 0.0, "start": 0.5, "first": 0.0}
    folder.append_event("resize", pause_s=1.5, recovered=True, phases=phases, **{"from": 2, "to": 1})
    past = read_past(folder, NOW)
    assert (past.pauses, NOW - 5 < past.restarted <= NOW) == ([1.5], True)
    (folder.path / "events.jsonl").unlink()
    (folder.path / "events.jsonl").mkdir()
    assert read_past(folder, NOW) == Past()


@pytest.mark.parametrize("mode", ["live", "restart"])
def test_who_takes_a_run_over_asks_its_folder(tmp_path: Path, mode: str) -> None:
    spec = RunSpec("t-1", "t", "nlp1", "", 1, 2, 1, ("true",), "/", (), "/r.sh", "now", mode=mode)
    folder = RunFolder.create(tmp_path / "run", spec)
    folder.append_event("resize", pause_s=1.5, recovered=False, **{"from": 1, "to": 2})

    async def taken_over() -> tuple[Facts, Facts]:
        coordinator = Coordinator(folder, FakeSlurm(), 12, term=2)
        coordinator._begin("here")
        run = coordinator._run
        restart = run.restart
        noted = run.payback.history if restart is None else restart._generations._growing._history  # type: ignore[attr-defined]
        return noted.facts(NOW), run.payback.history.facts(NOW)

    noted, known = asyncio.run(taken_over())
    assert noted == known
    assert (noted.pauses, len(noted.growths)) == ((1.5,), 1)


@pytest.mark.parametrize("mode", ["live", "restart"])
def test_who_takes_over_submits_no_replica_before_it_knows_whether_the_last_step_is_done(
    tmp_path: Path, mode: str
) -> None:
    """In restart mode nothing is to be heard of workers: ranks are the agents' to tell of."""
    spec = RunSpec("t-1", "t", "nlp1", "", 1, 2, 1, ("true",), "/", (), "/r.sh", "now", mode=mode)
    folder = RunFolder.create(tmp_path / "run", spec)

    async def taken_over() -> tuple[bool, bool]:
        coordinator = Coordinator(folder, FakeSlurm(), 12, term=2)
        coordinator._begin("here")
        run = coordinator._run
        first = run.replicas.are_wanted()
        run.membership.consider(time.monotonic() + FIRST_SECONDS + 1)  # nobody has come
        return first, run.replicas.are_wanted()

    assert asyncio.run(taken_over()) == (mode == "restart", True)
