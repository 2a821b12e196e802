"""How long before the end of a run its state is saved, and for how long that is awaited."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_acting import NAMES, SPEC, Scene
from test_membership import sent, started

from hpctools.elastic import hearing
from hpctools.elastic.folder import Ending, RunFolder
from hpctools.elastic.last_save import NEARLY_UP, LastSave
from hpctools.elastic.peers import Outcome
from hpctools.elastic.restart.limits import TERM_SECONDS
from hpctools.elastic.restart.record import Record
from hpctools.elastic.restart.run import RestartRun
from hpctools.elastic.spec import RunSpec
from hpctools.elastic.time_limit import TimeLimit
from hpctools.elastic.wave import GATHER_SECONDS, Wave

POLICY_5 = {"graceful_shutdown_s": 5.0}


class Ranks:
    """Restart mode, of which the script asks for events or does not, and has so long to save."""

    def __init__(self, asks: bool, save_seconds: float = 65.0) -> None:
        self.asks = asks
        self.save_seconds = save_seconds


@pytest.mark.parametrize(
    ("spec", "graceful", "closing"),
    [
        pytest.param(replace(SPEC, grace_seconds=8.0), 8.0, 24.5, id="a replica has GraceTime"),
        pytest.param(replace(SPEC, min_nodes=3, grace_seconds=0.0), 30.0, 24.5, id="one size: KillWait"),
        pytest.param(replace(SPEC, policy=POLICY_5), 5.0, 5.0, id="less where the policy says so"),
        pytest.param(replace(SPEC, kill_wait_s=2.0), 8.0, 1.5, id="a short KillWait"),
        pytest.param(replace(SPEC, kill_wait_s=0.0), 8.0, 1.0, id="none at all"),
    ],
)
def test_what_there_is_to_save(spec: RunSpec, graceful: float, closing: float) -> None:
    assert (spec.graceful_seconds, spec.closing_seconds) == (graceful, closing)


def test_a_node_of_which_nobody_says_when_it_goes() -> None:
    spec = replace(SPEC, grace_seconds=0.0, kill_wait_s=30.0)
    assert spec.notice_seconds(baseline=False, preempted=True) == 0.0
    assert spec.notice_seconds(baseline=True, preempted=False) == 30.0
    assert spec.notice_seconds(baseline=False, preempted=False) == 30.0
    assert replace(spec, grace_seconds=90.0).notice_seconds(baseline=False, preempted=False) == 90.0


@pytest.mark.parametrize(
    ("limit", "minutes", "save_seconds", "left", "asks", "ends"),
    [
        (None, None, 65.0, 64.0, True, True),
        (None, None, 65.0, 75.0, True, False),
        (None, None, 65.0, 1.0, False, False),
        (100.0, None, 65.0, 40.0, True, False),
        (100.0, None, 65.0, 24.0, True, True),
        (3600.0, None, 65.0, 64.0, True, True),
        pytest.param(3600.0, None, 10.0, 59.0, True, True, id="a minute at least"),
        pytest.param(3600.0, None, 10.0, 75.0, True, False, id="and no more"),
        pytest.param(3600.0, None, 305.0, 304.0, True, True, id="as long as the policy says"),
        pytest.param(3600.0, None, 305.0, 315.0, True, False, id="not longer"),
        pytest.param(600.0, None, 305.0, 160.0, True, False, id="it trains for most of its time"),
        pytest.param(600.0, None, 305.0, 149.0, True, True, id="the last quarter"),
        pytest.param(None, 10, 305.0, 160.0, True, False, id="also of a time that Slurm gave by itself"),
        pytest.param(None, 10, 305.0, 149.0, True, True, id="the last quarter of that"),
    ],
)
def test_when_a_script_is_told_that_the_time_is_nearly_up(
    limit: float | None,
    minutes: int | None,
    save_seconds: float,
    left: float,
    asks: bool,
    ends: bool,
    tmp_path: Path,
) -> None:
    async def act() -> None:
        spec = replace(SPEC, mode="restart", time_limit_s=limit)
        run = Scene(RunFolder.create(tmp_path / "run", spec), spec).run
        restart: Any = Ranks(asks, save_seconds)
        run.restart = restart
        run.replicas._limit = TimeLimit(1, time.time() + left, minutes)
        LastSave(run).heed_limit()
        assert run.ended.done() == ends
        if ends:
            assert run.ended.result() == Outcome("cancelled", NEARLY_UP)

    asyncio.run(act())


@pytest.mark.parametrize(("policy", "seconds"), [({}, 60.0), ({"graceful_shutdown_s": 300.0}, 300.0)])
def test_a_script_has_what_its_policy_says_before_its_time_is_up(
    policy: dict[str, float], seconds: float, tmp_path: Path
) -> None:
    """From when it is told until SIGTERM; SIGKILL comes before the limit."""

    async def act() -> None:
        spec = replace(SPEC, mode="restart", time_limit_s=3600.0, policy=policy)
        run = Scene(RunFolder.create(tmp_path / "run", spec), spec).run
        restart = run.restart = RestartRun(run, takes_over=False)
        save, before = LastSave(run), time.time()
        run.replicas._limit = TimeLimit(1, before + restart.save_seconds)
        left = save._seconds(Outcome("cancelled", NEARLY_UP)) - TERM_SECONDS
        assert restart.save_seconds >= save._lead >= seconds
        assert left >= seconds - (time.time() - before)
        restart._generations._record = Record(1, ("b0",), 1)
        restart._generations.phase = "running"
        restart._generations.finish(100.0, left + TERM_SECONDS)
        assert restart._generations._limit == 100.0 + left

    asyncio.run(act())


@pytest.mark.parametrize(
    ("limit", "took", "left", "saves"),
    [
        pytest.param(3600.0, None, 59.0, True, id="a minute where nothing was saved yet"),
        pytest.param(3600.0, None, 75.0, False, id="and no more"),
        pytest.param(3600.0, 2.0, 75.0, False, id="a short save"),
        pytest.param(3600.0, 100.0, 204.0, True, id="a long one, that may have to wait for another"),
        pytest.param(3600.0, 100.0, 215.0, False, id="not earlier"),
        pytest.param(600.0, 100.0, 149.0, True, id="the last quarter"),
        pytest.param(600.0, 100.0, 160.0, False, id="not before the last quarter"),
        pytest.param(100.0, 100.0, 59.0, True, id="a minute of a short run's time"),
    ],
)
def test_when_the_state_is_saved_before_the_limit(
    limit: float, took: float | None, left: float, saves: bool, tmp_path: Path
) -> None:
    async def act() -> None:
        spec = replace(SPEC, time_limit_s=limit)
        scene = Scene(RunFolder.create(tmp_path / "run", spec), spec)
        if took is not None:
            scene.hearing.hear(scene.run.roster.workers["b0.0.0"], saved(took))
        scene.run.replicas._limit = TimeLimit(1, time.time() + left)
        LastSave(scene.run).heed_limit()
        assert [each["why"] for each in scene.workers["b0.0.0"].said("save")] == [NEARLY_UP] * saves

    asyncio.run(act())


def test_what_is_saved_sooner_than_thought_is_not_saved_again_unless_the_limit_is_raised(
    tmp_path: Path,
) -> None:
    async def act() -> None:
        spec = replace(SPEC, time_limit_s=3600.0)
        scene = Scene(RunFolder.create(tmp_path / "run", spec), spec)
        save = LastSave(scene.run)
        for took, left, orders in ((100.0, 200.0, 1), (10.0, 190.0, 1), (10.0, 900.0, 1), (10.0, 59.0, 2)):
            scene.hearing.hear(scene.run.roster.workers["b0.0.0"], saved(took))
            scene.run.replicas._limit = TimeLimit(1, time.time() + left)
            save.heed_limit()
            assert len(scene.workers["b0.0.0"].said("save")) == orders

    asyncio.run(act())


def saved(seconds: float) -> dict[str, Any]:
    told = {"kind": "saved", "step": 9, "held_s": 0.0, "bytes": 1, "where": "/c", "why": "interval"}
    return {**told, "seconds": seconds, "rounds": 9}


def test_a_second_cancel_ends_the_wait_and_an_echo_of_the_first_does_not(tmp_path: Path) -> None:
    async def act() -> None:
        run = Scene(RunFolder.create(tmp_path / "run", SPEC), SPEC).run
        save = LastSave(run)
        keeping = asyncio.ensure_future(save.keep(Outcome("cancelled", "why")))
        await asyncio.sleep(0)
        save.cancelled(100.0)
        save.cancelled(100.5)
        await asyncio.sleep(0.05)
        assert not keeping.done()
        save.cancelled(110.0)
        await asyncio.wait_for(keeping, 10)

    asyncio.run(act())


def test_a_second_cancel_counts_although_slurm_explains_it_before_the_first(tmp_path: Path) -> None:
    async def act() -> None:
        save = LastSave(Scene(RunFolder.create(tmp_path / "run", SPEC), SPEC).run)
        save.cancelled(103.0)
        save.cancelled(100.0)
        assert save._enough.is_set()

    asyncio.run(act())


@pytest.mark.parametrize(("lost", "answered"), [(NAMES, True), (NAMES[:1], False), (NAMES[1:2], False)])
def test_nobody_waits_for_what_nobody_is_left_to_save(
    lost: Sequence[str], answered: bool, tmp_path: Path
) -> None:
    """While others are, one of them saves."""

    async def act() -> None:
        scene = Scene(RunFolder.create(tmp_path / "run", SPEC), SPEC)
        keeping = asyncio.ensure_future(LastSave(scene.run).keep(Outcome("cancelled", "why")))
        await asyncio.sleep(0)
        for worker in lost:
            scene.run.roster.expelled.add(worker)
            scene.connections._on_disconnect(scene.run.roster.workers[worker])
        await asyncio.wait([keeping], timeout=5.0 if answered else 0.1)
        assert keeping.done() == answered
        keeping.cancel()

    asyncio.run(act())


@pytest.mark.parametrize("ends", [True, False])
def test_who_has_to_go_stays_a_member_while_the_run_saves_to_end(ends: bool, tmp_path: Path) -> None:
    """hp-cancel has Slurm signal all nodes: what they save together is whole only with all of them."""

    async def act() -> None:
        scene = Scene(RunFolder.create(tmp_path / "run", SPEC), SPEC)
        if ends:
            scene.run.end(Outcome("cancelled", "why"))
        scene.hearing.hear(scene.run.roster.workers["r7.0.0"], {"kind": "beat", "leaving": True})
        await asyncio.sleep(2 * GATHER_SECONDS)
        assert (scene.workers["b0.0.0"].said("form") == []) == ends

    asyncio.run(act())


@pytest.mark.parametrize("ends", [True, False])
def test_a_growth_that_is_not_agreed_on_yet_is_given_up_when_the_run_ends(ends: bool, tmp_path: Path) -> None:
    """It may have begun before the coordinator heard of the wish."""

    async def act() -> None:
        scene = Scene(RunFolder.create(tmp_path / "run", SPEC), SPEC)
        membership = scene.run.membership = started(NAMES[:1], (1, 2, 3))
        for place, name in enumerate(NAMES[1:], 1):
            membership.ready(name, (1, place), now=2.0)
        (number,) = {message["generation"] for _, message in sent(membership) if message["kind"] == "form"}
        if ends:
            scene.run.end(Outcome("cancelled", "why"))
            keeping = asyncio.ensure_future(LastSave(scene.run).keep(Outcome("cancelled", "why")))
            await asyncio.sleep(0)
            keeping.cancel()
        for name in NAMES:
            membership.linked(name, number, now=101.0)
        assert any(message["kind"] == "commit" for _, message in sent(membership)) != ends

    asyncio.run(act())


def by_itself(made: Scene) -> None:
    made.hearing.hear(made.run.roster.workers["r7.0.0"], {"kind": "beat", "leaving": True})


def by_its_agent(made: Scene) -> None:
    made.hearing.hear(made.run.roster.agents["r7"], {"kind": "leaving", "reason": "preempted"})


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("tells", [by_itself, by_its_agent])
def test_no_generation_begins_after_the_wish_that_the_run_may_end(
    tells: Callable[[Scene], None], tmp_path: Path
) -> None:
    """hp-cancel notes it before it has Slurm signal all nodes; the coordinator has not looked since."""

    async def act() -> None:
        scene = Scene(RunFolder.create(tmp_path / "run", SPEC), SPEC)
        scene.run.folder.ask_to_end(Ending("cancelled", "cancelled by nlp1"))
        tells(scene)
        outcome = await asyncio.wait_for(scene.run.ended, 20)
        assert outcome == Outcome("cancelled", "cancelled by nlp1")
        await asyncio.sleep(GATHER_SECONDS)
        assert scene.workers["b0.0.0"].said("form") == []

    asyncio.run(act())


def test_who_has_to_go_does_not_wait_for_storage_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does its agent's process, with which its node goes."""
    answers, in_time = threading.Event(), list[bool]()
    monkeypatch.setattr(RunFolder, "ending", lambda self: in_time.append(answers.wait(20)))

    async def act() -> None:
        scene = Scene(RunFolder.create(tmp_path / "run", SPEC), SPEC)
        by_itself(scene)
        await until(lambda: scene.workers["b0.0.0"].said("form"))

    asyncio.run(act())
    assert in_time == [], "it was waited for"
    answers.set()


def test_storage_that_hangs_holds_one_thread_however_many_have_to_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are for Slurm, which answers."""
    answers, asked = threading.Event(), list[RunFolder]()
    monkeypatch.setattr(RunFolder, "ending", lambda self: asked.append(self) or (answers.wait(60) and None))
    left = list[str]()

    async def act() -> None:
        scene = Scene(RunFolder.create(tmp_path / "run", SPEC), SPEC)
        wave = Wave(scene.run, left.extend)
        for name in NAMES:
            wave.add([name])
            await until(lambda name=name: name in left)
        answers.set()

    asyncio.run(act())
    assert left == list(NAMES)
    assert len(asked) == 1


@pytest.mark.parametrize("patience", [hearing.EXPLAIN_SECONDS, 0.0])
def test_a_baseline_s_worker_goes_when_its_agent_knows_why(
    patience: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm signals both; of scancel, which ends the run, the agent hears a moment later, or never."""
    monkeypatch.setattr(hearing, "EXPLAIN_SECONDS", patience)

    async def act() -> None:
        scene = Scene(RunFolder.create(tmp_path / "run", SPEC), SPEC)
        scene.hearing.hear(scene.run.roster.workers["b0.0.0"], {"kind": "beat", "leaving": True})
        if patience:
            await asyncio.sleep(2 * GATHER_SECONDS)
            assert scene.workers["r7.0.0"].said("form") == []
            scene.hearing.hear(scene.run.roster.agents["b0"], {"kind": "leaving", "reason": "departed"})
        await until(lambda: scene.workers["r7.0.0"].said("form"))

    asyncio.run(act())
