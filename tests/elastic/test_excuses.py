"""Who is silent and waited for all the same: the strict rule for agents, and for workers that compute."""

from __future__ import annotations

import asyncio
import itertools
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ledger_run import LedgerRun
from test_acting import NAMES, SPEC, Scene, Wire
from test_silence import muted, warnings_of

from hpctools.elastic import hearing
from hpctools.elastic.actions import Depart
from hpctools.elastic.assembly import AGENT_SECONDS
from hpctools.elastic.excuses import BUSY_SECONDS, FRESH_SECONDS, MUTE_SECONDS
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.peers import Outcome, Worker
from hpctools.elastic.protocol import BEAT_SECONDS, SILENCE_SECONDS
from hpctools.elastic.relinquishing import why_kept
from hpctools.elastic.watchers import Report, View
from hpctools.elastic.watching import Watching
from tests.elastic.test_run import MakeRun, assert_same_result, hurried_run, hurry, lone

__all__ = ["hurried_run", "hurry", "lone"]

SOON = SILENCE_SECONDS + 0.1
TICK = 0.1

Stage = Callable[..., None]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """Play a scene of three nodes whose workers train."""

    def stage(play: Callable[[Scene], None], **spec: Any) -> None:
        async def scene() -> None:
            play(Scene(RunFolder.create(tmp_path / "run", SPEC), replace(SPEC, **spec)))

        asyncio.run(scene())

    return stage


def passes(scene: Scene, since: float, seconds: float, but: str = "") -> float:
    """So many seconds in which all are heard but one; returns when they are over."""
    roster, now = scene.run.roster, since
    while now < since + seconds:
        now += TICK
        for peer in (*roster.agents.values(), *roster.workers.values()):
            peer.seen = peer.seen if peer.name == but else now
        scene.connections.check_silence(now, late=False)
    return now


# Agents


@pytest.mark.parametrize("waits", [False, True])
def test_an_agent_whose_worker_keeps_the_others_waiting_is_given_up_after_the_silence(
    waits: bool, stage: Stage
) -> None:
    """Its output goes through the agent: who prints a lot stands still, and its thread says that it lives."""

    def play(scene: Scene) -> None:
        roster = scene.run.roster
        for worker in roster.workers.values():
            worker.step, worker.waits = 5, worker.name != "r7.0.0" or waits
        now = passes(scene, 0.0, SILENCE_SECONDS - 0.2, but="r7")
        roster.workers["r7.0.0"].step = 6  # it was slow, and has come on
        now = passes(scene, now, SILENCE_SECONDS - 0.2, but="r7")
        assert "r7" in roster.agents
        passes(scene, now, 5 * TICK, but="r7")
        assert ("r7" in roster.agents) == waits

    stage(play)


def test_nobody_keeps_others_waiting_in_a_step_that_takes_long(stage: Stage) -> None:
    def play(scene: Scene) -> None:
        for worker in scene.run.roster.workers.values():
            worker.step, worker.waits = 5, False
        passes(scene, 0.0, 2 * SILENCE_SECONDS, but="r7")
        assert scene.run.roster.agents["r7"].mute
        passes(scene, 2 * SILENCE_SECONDS, TICK)
        assert not scene.run.roster.agents["r7"].mute, "it woke up"

    stage(play)


def test_who_does_not_park_or_do_the_last_step_keeps_the_others_waiting(stage: Stage) -> None:
    def play(scene: Scene) -> None:
        membership = scene.run.membership
        membership.done("b0.0.0")
        assert membership.is_awaited("r7.0.0")
        membership.lost("r8.0.0", now=0)
        assert not membership.is_awaited("r7.0.0"), "all train on, until the first has parked"
        membership.parked("b0.0.0", 2, 5, now=0)
        assert [membership.is_awaited(name) for name in NAMES[:2]] == [False, True]

    stage(play)


def test_a_node_that_loses_power_after_the_last_step_is_given_up(stage: Stage) -> None:
    """Workers' signs of life are not waited for any more then: nobody would tell that they have gone."""

    def play(scene: Scene) -> None:
        scene.run.completed = True
        muted(scene, "r7", SOON)
        assert "r7" not in scene.run.roster.agents

    stage(play)


def test_when_the_run_ends_no_agent_is_waited_for(stage: Stage) -> None:
    def play(scene: Scene) -> None:
        scene.run.end(Outcome("cancelled", "why"))
        muted(scene, "r7", SOON)
        assert "r7" not in scene.run.roster.agents

    stage(play)


def test_a_node_is_lost_at_once_also_when_it_had_the_last_of_the_state(stage: Stage) -> None:
    """Another baseline job is submitted at once, though the worker is waited for."""

    def play(scene: Scene) -> None:
        for worker in NAMES[1:]:
            scene.connections.expel(scene.run.roster.workers[worker])
        scene.run.roster.workers["b0.0.0"].seen = scene.run.roster.agents["b0"].seen = 0.0
        scene.connections.check_silence(SOON, late=False)
        assert "b0" not in scene.run.roster.agents
        assert "b0.0.0" in scene.run.roster.workers
        assert scene.run.baseline_lost.is_set()

    stage(play)


def test_an_agent_one_of_whose_workers_has_died_is_given_up(stage: Stage) -> None:
    """Nobody else could start it again."""

    def play(scene: Scene) -> None:
        muted(scene, "r7", SOON)
        assert "r7" not in scene.run.roster.agents

    stage(play, workers_per_node=2)


def test_an_agent_whose_worker_does_not_train_yet_is_given_up(stage: Stage) -> None:
    def play(scene: Scene) -> None:
        scene.run.membership.left("r7.0.0", now=0, stays=True)
        muted(scene, "r7", SOON)
        assert "r7" not in scene.run.roster.agents

    stage(play)


def test_a_mute_node_that_is_to_depart_leaves_at_a_step_boundary(stage: Stage) -> None:
    """Its workers know how; it has as long as the notice says."""

    def play(scene: Scene) -> None:
        roster, depart = scene.run.roster, Depart("n1", 120.0, "why")
        scene.acting.act(depart)
        scene.deadlines.note(depart, 0.0)
        now = passes(scene, 0.0, MUTE_SECONDS + 1, but="r7")
        assert roster.agents["r7"].mute
        assert warnings_of(scene)[0].endswith("it is waited for, until they have left")
        scene.run.membership.left("r7.0.0", now=now)
        passes(scene, now, TICK, but="r7")
        assert "r7" not in roster.agents

    stage(play)


def test_a_mute_node_that_does_not_depart_in_time_is_not_waited_for(stage: Stage) -> None:
    def play(scene: Scene) -> None:
        depart = Depart("n1", 30.0, "why")
        scene.acting.act(depart)
        scene.deadlines.note(depart, 0.0)
        now = passes(scene, 0.0, 27.0, but="r7")
        scene.deadlines.tick(now + 1.5)
        assert "r7.0.0" in scene.run.roster.expelled
        passes(scene, now, TICK, but="r7")
        assert "r7" not in scene.run.roster.agents

    stage(play)


def test_a_mute_node_is_not_counted_on(stage: Stage) -> None:
    """Not by who wants to give up others, nor by a coordinator that would resign; the watchers see it."""

    def play(scene: Scene) -> None:
        roster = scene.run.roster
        scene.connections.expel(roster.workers["r8.0.0"])
        scene.connections._drop(roster.agents["r8"])
        given = [roster.agents["b0"]]
        assert why_kept(scene.run, given) is None
        muted(scene, "r7", SOON)
        assert "1 other nodes are needed" in (why_kept(scene.run, given) or "")
        roster.send_away(roster.agents["b0"], 50)
        assert scene.agents["b0"].said("shutdown") == [{"kind": "shutdown", "code": 50, "goes_on": False}]
        assert {each.worker: each.mute for each in view_of(scene).members} == {
            "b0.0.0": False,
            "r7.0.0": True,
        }

    stage(play, baseline_script="/b.sh")


def test_before_only_a_mute_node_stays_the_state_is_saved(stage: Stage) -> None:
    def play(scene: Scene) -> None:
        roster = scene.run.roster
        scene.connections.expel(roster.workers["r8.0.0"])
        muted(scene, "r7", SOON)
        scene.run.membership.members = NAMES[:2]
        scene.hearing.leaves(roster.agents["b0"], "departed", SOON)
        (save,) = scene.workers["b0.0.0"].said("save")
        assert save["why"] == "all nodes have to go but some whose agents give no sign of life"

    stage(play)


def view_of(scene: Scene) -> View:
    seen: list[View] = []

    class Looks:
        def heard(self, now: float, report: Report) -> list[Any]:
            return []

        def tick(self, now: float, view: View) -> list[Any]:
            seen.append(view)
            return []

    Watching(scene.run, (Looks(),), lambda action, now: None).tick(0.0)
    return seen[0]


# Workers without an agent


def test_of_a_worker_without_its_agent_no_node_is_to_blame(stage: Stage) -> None:
    """Whoever watches would have a node replaced, and excluded, that has no name."""

    def play(scene: Scene) -> None:
        heard: list[Report] = []
        del scene.run.roster.agents["r7"]
        watching = scene.hearing._watching
        watching.heard = lambda now, report: heard.append(report)  # type: ignore[method-assign]
        watching.beat(1.0, scene.run.roster.workers["r7.0.0"], {"metrics": {"shard_seconds": 9.0}})
        assert [each.node for each in heard] == [""]
        assert [each.node for each in view_of(scene).members] == ["n0", "", "n2"]

    stage(play)


def hello(scene: Scene, worker: str, **how: Any) -> dict[str, Any]:
    return {"kind": "hello", "role": "worker", "token": scene.connections.token, "worker": worker, **how}


TRAINS = {"ready": True, "trains": True, "generation": 5, "seen": 5, "completed": 40, "world": 1}


def test_who_takes_over_hears_a_worker_whose_agent_does_not_come(stage: Stage) -> None:
    """The agent is frozen, and the worker alone has the state; but agents are given time to come first."""

    def play(scene: Scene) -> None:
        run, now = scene.run, time.monotonic()
        for name in ("b0", "r7", "r8"):
            scene.connections._drop(run.roster.agents[name])
        run.membership.begin_again()
        run.membership.take_over(5, now)
        wire: Any = Wire()
        assert scene.connections._admit(hello(scene, "r12.1.0.0", **TRAINS), wire) is None
        run.membership.take_over(5, now - AGENT_SECONDS)
        assert scene.connections._admit(hello(scene, "r13.0.0", ready=True), wire) is None, "it has no state"
        worker = scene.connections._admit(hello(scene, "r12.1.0.0", **TRAINS), wire)
        assert isinstance(worker, Worker)
        assert run.membership.members == ("r12.1.0.0",)
        assert run.roster.order_of("r12.1.0.0") == (1, 12, 1, 0, 0)
        assert run.roster.order_of("b3.0.0") == (0, 3, 0, 0)
        assert all(each.mute for each in view_of(scene).members)

    stage(play)


def test_the_last_one_with_the_state_comes_back_without_its_agent(stage: Stage) -> None:
    def play(scene: Scene) -> None:
        for worker in NAMES[1:]:
            scene.connections.expel(scene.run.roster.workers[worker])
        scene.connections._drop(scene.run.roster.agents["b0"])
        scene.connections._drop(scene.run.roster.workers["b0.0.0"])
        assert "b0.0.0" in scene.run.roster.missing
        wire: Any = Wire()
        assert scene.connections._admit(hello(scene, "b0.0.0", **TRAINS), wire) is not None
        assert wire.said("welcome")

    stage(play)


def test_a_worker_without_an_agent_is_given_up_when_others_have_the_state(stage: Stage) -> None:
    """Nobody could end it; but not in a change of the membership, where it may have to give the state."""

    def play(scene: Scene) -> None:
        roster, membership = scene.run.roster, scene.run.membership
        del roster.agents["r7"]
        now = passes(scene, 0.0, MUTE_SECONDS - 1)
        scene.connections.check_silence(now + 5, late=True)
        now = passes(scene, now + 5, MUTE_SECONDS - 1)
        assert "r7.0.0" in roster.workers, "who slept counts anew"
        membership.ready("r9.0.0", (1, 9), now=now)
        membership.consider(now=now + 100)
        membership._form((*NAMES, "r9.0.0"), planned=True)
        now = passes(scene, now, 2.0)
        assert "r7.0.0" in roster.workers
        membership.lost("r9.0.0", now=now)
        passes(scene, now, TICK)
        assert membership.phase == "recovering"
        assert "r7.0.0" in roster.expelled

    stage(play)


# Workers that compute


def vouch(scene: Scene, agent: str, *workers: str) -> None:
    scene.hearing.hear(scene.run.roster.agents[agent], {"kind": "beat", "busy": list(workers)})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the coordinator's clock says."""
    now = [0.0]
    monkeypatch.setattr(hearing, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def silent(scene: Scene, clock: list[float], seconds: float, *, vouched: str) -> None:
    """r7's worker is silent, as its agent says for a reason."""
    end = clock[0] + seconds
    while clock[0] < end:
        if vouched:
            vouch(scene, vouched, "r7.0.0", "r99.0.0")
        passes(scene, clock[0], BEAT_SECONDS, but="r7.0.0")
        clock[0] += BEAT_SECONDS


def test_a_silent_worker_that_computes_is_waited_for_and_that_is_said_once(
    stage: Stage, clock: list[float]
) -> None:
    def play(scene: Scene) -> None:
        silent(scene, clock, BUSY_SECONDS - 1, vouched="r7")
        assert "r7.0.0" in scene.run.roster.workers
        (said,) = warnings_of(scene)
        assert said.startswith("r7.0.0 on n1 gives no sign of life, but computes")
        silent(scene, clock, 2.0, vouched="r7")
        assert "r7.0.0" in scene.run.roster.expelled
        assert scene.agents["r7"].said("kill") == [{"kind": "kill", "worker": "r7.0.0"}]

    stage(play)


@pytest.mark.parametrize("vouched", ["", "r8"])
def test_a_silent_worker_for_which_its_own_agent_says_nothing_is_given_up(
    vouched: str, stage: Stage, clock: list[float]
) -> None:
    def play(scene: Scene) -> None:
        silent(scene, clock, 3.0, vouched=vouched)
        assert "r7.0.0" in scene.run.roster.expelled

    stage(play)


def test_one_that_freezes_while_it_computes_is_noticed_as_soon_as_any(
    stage: Stage, clock: list[float]
) -> None:
    """The look after that still finds that it has computed."""

    def play(scene: Scene) -> None:
        vouch(scene, "r7", "r7.0.0")
        clock[0] = BEAT_SECONDS
        vouch(scene, "r7", "r7.0.0")
        passes(scene, 0.0, SOON, but="r7.0.0")
        assert "r7.0.0" in scene.run.roster.expelled
        assert BEAT_SECONDS + FRESH_SECONDS < SILENCE_SECONDS - BEAT_SECONDS / 2

    stage(play)


def test_one_that_is_stopped_is_given_up_whatever_was_said_before(stage: Stage, clock: list[float]) -> None:
    def play(scene: Scene) -> None:
        silent(scene, clock, 5.0, vouched="r7")
        assert "r7.0.0" in scene.run.roster.workers
        scene.hearing.hear(scene.run.roster.agents["r7"], {"kind": "stopped", "worker": "r7.0.0"})
        passes(scene, clock[0], TICK, but="r7.0.0")
        assert "r7.0.0" in scene.run.roster.expelled

    stage(play)


def test_the_last_one_with_the_state_is_waited_for_as_long_though_it_is_stopped(stage: Stage) -> None:
    """What its silence is counted from is when it was heard, also with a policy of few seconds."""

    def play(scene: Scene) -> None:
        for worker in NAMES[1:]:
            scene.connections.expel(scene.run.roster.workers[worker])
        last = scene.run.roster.workers["b0.0.0"]
        last.seen = now = time.monotonic()
        scene.hearing.hear(scene.run.roster.agents["b0"], {"kind": "stopped", "worker": "b0.0.0"})
        scene.connections.check_silence(now + 2.5, late=False)
        assert not scene.run.ended.done()

    stage(play, recovery={"metrics": {"hang": {"seconds": 3.0}}})


# Whole runs


def said(run: LedgerRun, words: str) -> list[str]:
    return [str(each.detail) for each in run.events("warning") if words in str(each.detail)]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("when", ["start", pytest.param("step", marks=pytest.mark.long)])
def test_a_worker_that_holds_pythons_lock_is_not_killed(
    when: str, hurried_run: MakeRun, lone: list[dict[str, Any]], hurry: Path
) -> None:
    """In one call into C of five seconds, before it is ready or in the middle of a step."""
    with hurried_run((2, 2), "--hold-lock", when) as run:
        run.wait(lambda: said(run, "b1.0.0 on n2 gives no sign of life, but computes"))
        run.wait_for_world(2)
        run.wait(lambda: len(run.committed()) > 10)
        hurry.touch()
        assert run.end() == 0, run.story()
    assert_same_result(run, lone)
    assert {line["worker"] for line in run.ledger()} == {"b0.0.0", "b1.0.0"}, run.story()
    assert {line["generation"] for line in run.committed()} == {1}, run.story()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_frozen_agents_worker_that_prints_a_lot_is_not_waited_for(
    hurried_run: MakeRun, lone: list[dict[str, Any]], hurry: Path, tmp_path: Path
) -> None:
    """It stands still in its write while its thread says that it lives."""
    chatty = tmp_path / "chatty"
    with hurried_run((1, 2), "--chatty", str(chatty)) as run:
        run.capacity = 1
        run.wait_for_world(2)
        agent = run.agent_of("r1000")
        agent.send_signal(signal.SIGSTOP)
        chatty.touch()
        run.wait_for_world(1)
        agent.send_signal(signal.SIGCONT)
        run.wait_for_steps(3)
        hurry.touch()
        assert run.end() == 0, run.story()
    assert_same_result(run, lone)
    ends = [line["at"] for line in run.committed()]
    assert max(later - earlier for earlier, later in itertools.pairwise(ends)) < 10 + run.stood_still


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_state_is_not_lost_with_the_agent_of_the_only_worker_that_has_it(
    hurried_run: MakeRun, lone: list[dict[str, Any]], hurry: Path
) -> None:
    """The coordinator's node is drained while the other agent is frozen: it stays until a relief is there.

    Then it dies, and who takes over hears the worker without its agent.
    """
    with hurried_run((1, 2)) as run:
        run.capacity = 1
        run.wait_for_world(2)
        run.agent_of("r1000").send_signal(signal.SIGSTOP)
        run.wait(lambda: said(run, "but its workers do"))
        (run.queue / "n1.drain").write_text("fan")
        run.wait(lambda: len(run.agents) == 3)
        run.wait(lambda: said(run, "takes its place"))
        assert [event.detail["action"] for event in run.events("action")] == ["Prepare"]
        run.agents[0].kill()
        run.wait(lambda: run.events("takeover"))
        run.wait_for_world(1)
        run.agent_of("r1000").send_signal(signal.SIGCONT)
        run.wait_for_world(2)
        hurry.touch()
        assert run.end() == 0, run.story()
    assert_same_result(run, lone)
    assert {line["worker"] for line in run.ledger()} >= {"b0.0.0", "r1000.0.0"}
    assert run.events("resumed") == [], run.story()
