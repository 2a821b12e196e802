"""What watchers ask for, as messages to agents and workers, and as events of the run."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_membership import started

from hpctools.elastic.acting import Acting
from hpctools.elastic.actions import (
    Action,
    Depart,
    Fail,
    Prepare,
    ReplaceNode,
    RestartAll,
    RestartWorker,
    RollBack,
)
from hpctools.elastic.agent import Agent as NodeAgent
from hpctools.elastic.agent_place import Place
from hpctools.elastic.baseline import Baseline
from hpctools.elastic.connections import Connections
from hpctools.elastic.context import RunContext
from hpctools.elastic.coordinator import Coordinator
from hpctools.elastic.deadlines import Deadlines
from hpctools.elastic.effects import Adopted, Effect, Formed, Send
from hpctools.elastic.exits import Exits
from hpctools.elastic.fence import Fence
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.growth_history import Payback
from hpctools.elastic.hearing import Hearing
from hpctools.elastic.journal import FolderJournal
from hpctools.elastic.peers import Agent, Outcome, Worker
from hpctools.elastic.recovery.departures import Notices
from hpctools.elastic.recovery.settings import EXIT_GOES_ON
from hpctools.elastic.recovery.wiring import longest_silence
from hpctools.elastic.replica_jobs import another_baseline
from hpctools.elastic.replicas import Replicas
from hpctools.elastic.restart.run import RestartRun
from hpctools.elastic.spec import RunSpec
from hpctools.elastic.watchers import Report
from hpctools.elastic.watching import Watching
from hpctools.testing.slurm import FakeSlurm

SPEC = RunSpec("t-1", "t", "nlp1", "", 1, 3, 1, ("true",), "/", (), "/r.sh", "now")
GOES_ON = [{"kind": "shutdown", "code": EXIT_GOES_ON, "goes_on": True}]
NAMES = ("b0.0.0", "r7.0.0", "r8.0.0")


class Wire:
    """The writing end of a connection; remembers what was written, and whether it was cut."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.cut = False
        self.transport = self

    def write(self, line: bytes) -> None:
        self.messages.append(json.loads(line))

    def abort(self) -> None:
        self.cut = True

    def said(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in self.messages if message["kind"] == kind]


class Scene:
    """Three nodes n0, n1, n2 with a worker each, of which all train."""

    def __init__(self, folder: RunFolder, spec: RunSpec = SPEC) -> None:
        fence, payback = Fence(folder, 1), Payback()
        journal = FolderJournal(folder, spec, fence)
        replicas = Replicas(FakeSlurm(), spec, journal)
        membership = started(NAMES, (1, 2, 3))
        run = self.run = RunContext(folder, spec, 1, fence, journal, membership, replicas, payback)
        self.agents: dict[str, Any] = {}
        self.workers: dict[str, Any] = {}
        for place, name in enumerate(NAMES):
            agent, wire = name.split(".")[0], Wire()
            order = (min(place, 1), place)
            made = Agent(wire, agent, order, f"n{place}", place, place == 0, 0.0, running={name})  # type: ignore[arg-type]
            run.roster.agents[agent], self.agents[agent] = made, wire
            self.workers[name] = Wire()
            run.roster.workers[name] = Worker(self.workers[name], name, agent, 0.0)
        exits = Exits(run)
        watching = Watching(run, (), lambda action, now: None)
        self.hearing = Hearing(run, exits, watching)
        self.connections = Connections(run, self.hearing, exits, longest_silence(spec))
        self.acting = Acting(run, self.hearing, exits, self.connections)
        self.deadlines = Deadlines(run, self.connections, exits)
        run.carry_out = self._carry_out

    def _carry_out(self) -> None:
        effects, self.run.membership.effects = self.run.membership.effects, []
        for effect in effects:
            if isinstance(effect, Send) and effect.to in self.run.roster.workers:
                self.workers[effect.to].messages.append(effect.message)

    def ends(self, worker: str, code: int, *tail: str) -> None:
        agent = self.run.roster.agents[worker.split(".")[0]]
        self.hearing.hear(agent, {"kind": "exited", "worker": worker, "code": code, "tail": [*tail]})


@pytest.fixture
def act(tmp_path: Path) -> Callable[[Action, Callable[[Scene], None]], None]:
    def act(action: Action, check: Callable[[Scene], None]) -> None:
        async def scene() -> None:
            folder = RunFolder.create(tmp_path / "run", SPEC)
            made = Scene(folder)
            made.acting.act(action)
            (event,) = [each for each in folder.events() if each.event == "action"]
            assert event.detail["action"] == type(action).__name__
            assert event.detail["reason"] == "why"
            check(made)

        asyncio.run(scene())

    return act


Act = Callable[[Action, Callable[[Scene], None]], None]


@pytest.mark.parametrize("hears", [True, False])
def test_who_has_just_taken_over_judges_no_numbers_of_before(tmp_path: Path, *, hears: bool) -> None:
    """They were judged by the one before, and what it did about them may be under way."""

    async def scene() -> None:
        made, seen = Scene(RunFolder.create(tmp_path / "run", SPEC)), []
        made.hearing._watching.heard = lambda now, report: seen.append(report.kind)  # type: ignore[method-assign]
        if hears:
            made.run.membership.take_over(1, now=0)
        beat = {"kind": "beat", "generation": 1, "step": 3, "rank": 1, "loss": float("nan")}
        made.hearing.hear(made.run.roster.workers["r7.0.0"], beat)
        assert seen == ([] if hears else ["metric"])

    asyncio.run(scene())


def test_watchers_see_who_stands_between_two_passes(tmp_path: Path) -> None:
    """Who is told to go says no more of it; a worker of an earlier release never does."""

    async def scene() -> None:
        made = Scene(RunFolder.create(tmp_path / "run", SPEC))
        worker = made.run.roster.workers["b0.0.0"]
        for told, seen in (({}, False), ({"between": True}, True), ({"leaving": True}, True)):
            made.hearing.hear(worker, {"kind": "beat", **told})
            assert [each.between for each in made.hearing._watching._view().members] == [seen, False, False]
        made.hearing.hear(worker, {"kind": "beat", "between": False})
        assert not worker.between

    asyncio.run(scene())


@pytest.mark.parametrize("hears", [Formed(1, NAMES, NAMES, 5, recovered=True), Adopted(1, NAMES), None])
def test_who_has_taken_over_long_ago_judges_the_numbers_of_later_recoveries(
    tmp_path: Path, hears: Effect | None
) -> None:
    """The last steps before a worker was lost: who did them tells their numbers only once."""

    async def scene() -> None:
        made, coordinator = coordinated(RunFolder.create(tmp_path / "run", SPEC))
        run, seen = coordinator._run, []
        run.takes_over, made.hearing._run = True, run
        made.hearing._watching.heard = lambda now, report: seen.append(report.kind)  # type: ignore[method-assign]
        if hears is not None:
            coordinator._record(hears)
        assert run.membership.phase == "recovering"
        beat = {"kind": "beat", "generation": 1, "step": 3, "rank": 1, "loss": 1.0}
        made.hearing.hear(run.roster.workers["b0.0.0"], beat)
        assert seen == ([] if hears is None else ["metric"])

    asyncio.run(scene())


def test_a_worker_is_killed_left_behind_and_started_again_without_being_held_against_it(act: Act) -> None:
    def check(scene: Scene) -> None:
        assert scene.agents["r7"].said("kill") == [{"kind": "kill", "worker": "r7.0.0"}]
        assert scene.workers["r7.0.0"].cut
        assert scene.workers["b0.0.0"].said("form")[0]["world"] == 2
        scene.ends("r7.0.0", -9)
        assert scene.agents["r7"].said("restart") == [{"kind": "restart", "worker": "r7.0.0"}]
        assert scene.run.roster.agents["r7"].restarts == {}

    act(RestartWorker("r7.0.0", "why"), check)


@pytest.mark.parametrize(
    "action",
    [
        RestartWorker("r7.0.0", "why"),
        ReplaceNode("n1", exclude=False, reason="why"),
        RollBack(1, skip=True, reason="why"),
    ],
)
def test_who_does_what_follows_the_last_step_is_left_alone(tmp_path: Path, action: Action) -> None:
    """A final evaluation, say; the number of steps that are done stays, too."""

    async def play() -> None:
        scene = Scene(RunFolder.create(tmp_path / "run", SPEC))
        scene.run.journal.change(step=9)
        scene.run.completed = True
        scene.acting.act(action)
        assert not any(wire.messages for wire in scene.agents.values())
        assert not any(wire.cut for wire in scene.workers.values())
        assert scene.run.journal.status.step == 9
        (event,) = scene.run.folder.events()
        kind = type(action).__name__
        assert event.detail == {"message": f"{kind} is not done, since the last step is: why"}

    asyncio.run(play())


def test_a_node_is_replaced_and_not_given_again(act: Act) -> None:
    def check(scene: Scene) -> None:
        assert scene.agents["r8"].said("shutdown")
        assert scene.workers["r8.0.0"].cut
        assert scene.workers["b0.0.0"].said("form")[0]["recover"]
        scene.ends("r8.0.0", -15)
        assert scene.agents["r8"].said("restart") == []

    act(ReplaceNode("n2", exclude=True, reason="why"), check)


def replaced(folder: RunFolder, spec: RunSpec, node: str, worker: str, baseline: int = 1) -> Scene:
    """A scene in which a node was to be replaced; `baseline` of the nodes are the baseline job's."""
    scene = Scene(folder, spec)
    for agent in list(scene.run.roster.agents.values())[:baseline]:
        agent.is_baseline, agent.job_id = True, 1
    scene.acting.act(ReplaceNode(node, exclude=True, reason="why", worker=worker))
    return scene


def test_a_baseline_s_node_is_replaced_with_the_whole_job_when_the_others_can_go_on(tmp_path: Path) -> None:
    """Slurm takes no single node out of a job; who has none of its agents any more asks for another job."""
    spec = replace(SPEC, baseline_script="/b.sh", baseline_options=("--qos=normal", "--exclude=n9"))

    async def act() -> None:
        scene = replaced(RunFolder.create(tmp_path / "run", spec), spec, "n1", "r7.0.0", baseline=2)
        for agent in ("b0", "r7"):
            assert scene.agents[agent].said("shutdown") == []  # not before those that wait for the job know
        scene.run.relieved[1].set()
        await asyncio.sleep(0.01)
        for agent in ("b0", "r7"):
            assert scene.agents[agent].said("shutdown") == GOES_ON
        assert scene.workers["r8.0.0"].said("form")[-1]["world"] == 1
        options = another_baseline(spec, None, 0.0, scene.run.replicas.excluded)
        assert options == ("--qos=normal", "--exclude=n9", "--exclude=n9,n1")

    asyncio.run(act())


@pytest.mark.parametrize("script", ["", "/b.sh"])
def test_a_baseline_s_node_that_the_run_needs_is_kept_and_its_worker_started_again(
    tmp_path: Path, script: str
) -> None:
    spec = replace(SPEC, min_nodes=2, baseline_script=script)

    async def act() -> None:
        folder = RunFolder.create(tmp_path / "run", spec)
        scene = replaced(folder, spec, "n1", "r7.0.0", baseline=2)
        assert not any(wire.said("shutdown") for wire in scene.agents.values())
        assert scene.agents["r7"].said("kill") == [{"kind": "kill", "worker": "r7.0.0"}]
        (warning,) = [each.detail["message"] for each in folder.events() if each.event == "warning"]
        assert warning == "n1 is not replaced: " + (
            "the run could not go on without its baseline job: 2 other nodes are needed"
            if script
            else "how to submit another baseline job is not known"
        )
        scene.ends("r7.0.0", -9)
        assert scene.agents["r7"].said("restart") == [{"kind": "restart", "worker": "r7.0.0"}]

    asyncio.run(act())


@pytest.mark.parametrize(("gone", "least", "kept"), [([], 2, False), ([], 3, True), (["b0.0.0"], 2, True)])
def test_a_replica_s_node_that_the_run_needs_is_kept_too(
    tmp_path: Path, gone: list[str], least: int, *, kept: bool
) -> None:
    """The baseline was lost, say, and its successor waits: without the node nobody would train."""
    spec = replace(SPEC, min_nodes=least)

    async def act() -> None:
        folder = RunFolder.create(tmp_path / "run", spec)
        scene = Scene(folder, spec)
        for worker in gone:
            scene.connections.expel(scene.run.roster.workers[worker])
        scene.acting.act(ReplaceNode("n1", exclude=False, reason="why", worker="r7.0.0"))
        assert bool(scene.agents["r7"].said("shutdown")) == (not kept)
        assert bool(scene.agents["r7"].said("kill")) == kept
        warnings = [each.detail["message"] for each in folder.events() if each.event == "warning"]
        why = f"the run could not go on without it: {least} other nodes are needed"
        assert warnings == ([f"n1 is not replaced: {why}"] if kept else [])

    asyncio.run(act())


@pytest.mark.parametrize("alone", [True, False])
def test_a_replica_s_node_that_does_nothing_or_alone_has_the_state_is_not_kept(
    tmp_path: Path, *, alone: bool
) -> None:
    """Who crashed there does not train; where nobody else has the state it leaves once somebody has."""

    async def act() -> None:
        folder = RunFolder.create(tmp_path / "run", SPEC)
        scene = Scene(folder, replace(SPEC, min_nodes=1 if alone else 3))
        for worker in ("b0.0.0", "r8.0.0") if alone else ("r7.0.0",):
            scene.connections.expel(scene.run.roster.workers[worker])
        scene.acting.act(ReplaceNode("n1", exclude=False, reason="why", worker="r7.0.0"))
        assert scene.run.roster.agents["r7"].leaving
        assert not scene.agents["r7"].said("kill")

    asyncio.run(act())


@pytest.mark.parametrize(("least", "leave"), [(1, ["b0", "r7"]), (2, [])])
def test_in_restart_mode_a_baseline_s_node_goes_with_its_job_or_stays(
    tmp_path: Path, least: int, leave: list[str]
) -> None:
    spec = replace(SPEC, mode="restart", min_nodes=least, baseline_script="/b.sh")

    async def act() -> None:
        folder = RunFolder.create(tmp_path / "run", spec)
        scene = Scene(folder, spec)
        scene.run.restart = RestartRun(scene.run, takes_over=False)
        agents = scene.run.roster.agents
        for agent in agents.values():
            agent.is_baseline = agent.name != "r8"
            agent.job_id = 1 if agent.is_baseline else 8
            scene.run.restart.joined(agent, {})
        scene.run.relieved[1].set()
        scene.acting.act(ReplaceNode("n1", exclude=True, reason="why"))
        assert [name for name, agent in agents.items() if agent.leaving] == leave
        assert {agents[name].reason for name in leave} == ({"replaced"} if leave else set())
        assert [bool(wire.said("shutdown")) for wire in scene.agents.values()] == [
            *([bool(leave)] * 2),
            False,
        ]
        assert bool([each for each in folder.events() if each.event == "warning"]) == (not leave)
        assert scene.run.replicas.excluded == {"n1"}

    asyncio.run(act())


@pytest.mark.parametrize(("nodes", "left"), [(["n1"], 2), (["n1", "n2"], 1)])
def test_nodes_that_depart_leave_at_one_step_boundary(tmp_path: Path, nodes: list[str], left: int) -> None:
    async def act() -> None:
        scene = Scene(RunFolder.create(tmp_path / "run", SPEC))
        for node in nodes:
            scene.acting.act(Depart(node, 30.0, "why"))
        stays = scene.workers["b0.0.0"]
        deadline = asyncio.get_running_loop().time() + 10
        while not stays.said("form") and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)
        (form,) = stays.said("form")
        assert (form["world"], form["recover"]) == (left, False)
        assert not scene.workers["r7.0.0"].cut
        assert scene.agents["r7"].said("shutdown") == []

    asyncio.run(act())


@pytest.mark.parametrize("action", [Depart("n1", 30.0, "why", 330.0), Prepare("n1", 30.0, "why", 330.0)])
def test_a_node_that_is_to_go_is_not_asked_for_again(act: Act, action: Action) -> None:
    def check(scene: Scene) -> None:
        assert scene.run.replicas.excluded == {"n1"}

    act(action, check)


def test_a_drained_node_is_slurm_s_matter(act: Act) -> None:
    def check(scene: Scene) -> None:
        assert scene.run.replicas.excluded == frozenset()

    act(Depart("n1", None, "why"), check)


def test_a_notice_that_stands_is_one_event_however_often_it_is_told(tmp_path: Path) -> None:
    """A recommendation may stand for days, on each of many nodes; each is told every half minute."""

    async def play() -> None:
        scene = Scene(RunFolder.create(tmp_path / "run", SPEC))
        for what, seconds in (*[("rebalance", None)] * 5, *[("spot", 119.0)] * 3):
            message = {"kind": "notice", "what": what, "seconds": seconds}
            scene.hearing.hear(scene.run.roster.agents["r7"], message)
        told = [(each.detail["node"], each.detail["what"]) for each in scene.run.folder.events()]
        assert told == [("n1", "rebalance"), ("n1", "spot")]

    asyncio.run(play())


def test_a_node_that_came_back_departs_again_when_its_agent_tells_that_its_notice_stands(
    tmp_path: Path,
) -> None:
    async def act() -> None:
        scene = Scene(RunFolder.create(tmp_path / "run", SPEC))
        roster, watching = scene.run.roster, Watching(scene.run, (Notices(1),), scene.acting.act)
        notice = Report("notice", "", "n1", what="spot", seconds=118.0)
        watching.heard(0.0, notice)
        for now in (0.1, 0.2):
            watching.tick(now)
        assert (roster.agents["r7"].leaving, scene.run.replicas.excluded) == (True, {"n1"})
        del roster.agents["r7"], roster.workers["r7.0.0"]
        watching.tick(4.0)
        wire: Any = Wire()
        roster.agents["r9"] = Agent(wire, "r9", (1, 9), "n1", 9, False, 0.0, running={"r9.0.0"})
        watching.tick(20.0)
        assert not roster.agents["r9"].leaving, "it may be another instance"
        watching.heard(20.1, replace(notice, seconds=98.0))
        watching.tick(20.2)
        assert roster.agents["r9"].leaving
        assert wire.said("shutdown"), "it goes before its worker has started"
        actions = [each.detail["seconds"] for each in scene.run.folder.events() if each.event == "action"]
        assert [round(each) for each in actions] == [118, 98]

    asyncio.run(act())


def test_a_baseline_s_agent_whose_workers_have_departed_is_sent_away(act: Act) -> None:
    """Else its job would keep a node that is to be given back, and the coordination with it."""

    def check(scene: Scene) -> None:
        assert scene.agents["b0"].said("shutdown") == []
        scene.run.roster.departed.add("b0.0.0")
        scene.ends("b0.0.0", 0)
        assert scene.agents["b0"].said("shutdown") == GOES_ON

    act(Depart("n0", 30.0, "why"), check)


def test_a_node_that_the_run_needs_is_prepared_for(tmp_path: Path) -> None:
    """What there is is saved, and one further baseline job waits in the queue while the old one trains."""
    script = tmp_path / "b.sh"
    script.write_text("#!/bin/sh\n")
    spec, slurm = replace(SPEC, baseline_script=str(script)), FakeSlurm()

    async def act() -> None:
        scene = Scene(RunFolder.create(tmp_path / "run", spec), spec)
        keeper = Baseline(scene.run, slurm, 0, lambda agent: None)
        keeping = asyncio.ensure_future(keeper.keep())
        for _ in range(2):
            scene.acting.act(Prepare("n0", 100.0, "why"))
        save = {"kind": "save", "why": "why", "urgent": False, "seconds": 100.0}
        numbered = [{**save, "order": "1.1"}, {**save, "order": "1.2"}]
        assert scene.workers["b0.0.0"].said("save") == numbered
        assert not any(wire.said("shutdown") for wire in scene.agents.values())
        for _ in range(1200):
            await asyncio.sleep(0.05)
            if slurm.submitted:
                break
        scene.acting.act(Depart("n0", 15.0, "why"))
        await asyncio.sleep(1.5)  # it would have looked again
        keeping.cancel()
        assert [job.role for job in scene.run.folder.jobs()] == ["baseline"]
        (warning,) = [each.detail["message"] for each in scene.run.folder.events() if each.event == "warning"]
        assert warning.startswith("baseline job 0 loses a node; ")

    asyncio.run(act())


def test_a_node_that_does_not_depart_in_time_is_not_waited_for(act: Act) -> None:
    depart = Depart("n1", 30.0, "why")

    def check(scene: Scene) -> None:
        scene.deadlines.note(depart, 100.0)
        scene.deadlines.tick(127.9)
        assert not scene.workers["r7.0.0"].cut
        scene.deadlines.tick(128.0)
        assert scene.workers["r7.0.0"].cut
        assert scene.agents["r7"].said("shutdown")
        assert scene.workers["b0.0.0"].said("form")[-1]["recover"]
        scene.deadlines.tick(200.0)
        assert len(scene.agents["r7"].said("shutdown")) == 1

    act(depart, check)


def test_the_coordinator_keeps_an_eye_on_departures(tmp_path: Path) -> None:
    async def scene() -> None:
        folder = RunFolder.create(tmp_path / "run", SPEC)
        made, coordinator = Scene(folder), Coordinator(folder, FakeSlurm(), 1)
        coordinator._run.roster, coordinator._run.membership = made.run.roster, made.run.membership
        coordinator.act(Depart("n1", 30.0, "why"), now=100.0)
        coordinator._decide(127.9)
        assert made.agents["r7"].said("shutdown") == []
        coordinator._decide(128.0)
        assert made.agents["r7"].said("shutdown")
        assert made.workers["r7.0.0"].cut

    asyncio.run(scene())


def coordinated(folder: RunFolder, lose: tuple[str, ...] = NAMES[1:]) -> tuple[Scene, Coordinator]:
    """A scene under a real coordinator; only b0's worker is left of those with the state, unless told."""
    made, coordinator = Scene(folder), Coordinator(folder, FakeSlurm(), 1)
    coordinator._run.roster, coordinator._run.membership = made.run.roster, made.run.membership
    for worker in lose:
        made.connections.expel(made.run.roster.workers[worker])
    return made, coordinator


@pytest.mark.parametrize(
    "action", [RestartWorker("b0.0.0", "hang: why", 42), ReplaceNode("n0", False, "hang: why", "b0.0.0", 42)]
)
def test_who_alone_has_a_state_that_was_not_saved_ends_the_run_with_the_cause_s_code(
    tmp_path: Path, action: RestartWorker | ReplaceNode
) -> None:
    """Nothing is left to go on from: the first rung of the ladder is the last one."""

    async def scene() -> None:
        _, coordinator = coordinated(RunFolder.create(tmp_path / "run", SPEC))
        coordinator.act(action)
        outcome = coordinator._run.ended.result()
        assert (outcome.state, outcome.code) == ("failed", 42)
        assert outcome.message.startswith("hang: why: no worker that holds the state")
        assert outcome.message.endswith("nothing was saved")

    asyncio.run(scene())


def test_it_begins_again_with_what_was_saved(tmp_path: Path) -> None:
    async def scene() -> None:
        _, coordinator = coordinated(RunFolder.create(tmp_path / "run", SPEC))
        coordinator._run.has_checkpoint = True
        coordinator.act(RestartWorker("b0.0.0", "hang: why", 42))
        assert not coordinator._run.ended.done()

    asyncio.run(scene())


def test_a_crash_that_rules_deal_with_ends_the_run_with_its_code_too(tmp_path: Path) -> None:
    async def scene() -> None:
        spec = replace(SPEC, recovery={"runPolicy": {"mode": "enforce"}, "metrics": {"crash": True}})
        made, coordinator = coordinated(RunFolder.create(tmp_path / "run", spec))
        made.connections._drop(made.run.roster.workers["b0.0.0"])
        assert made.run.roster.missing
        exited = {"kind": "exited", "worker": "b0.0.0", "code": -9, "tail": []}
        coordinator._connections._hearing.hear(made.run.roster.agents["b0"], exited)
        assert coordinator._run.ended.result().code == 40

    asyncio.run(scene())


def test_what_is_saved_counts_in_the_rounds_with_which_workers_park(tmp_path: Path) -> None:
    async def scene() -> None:
        made = Scene(RunFolder.create(tmp_path / "run", SPEC))
        worker = made.run.roster.workers["b0.0.0"]
        words = {
            "kind": "saved",
            "step": 5,
            "seconds": 0.1,
            "held_s": 0,
            "bytes": 1,
            "where": "x",
            "why": "x",
        }
        made.hearing.hear(worker, {**words, "rounds": -1})
        assert made.run.membership._saved_rounds == 5
        made.hearing.hear(worker, {**words, "rounds": 7})
        assert made.run.membership._saved_rounds == 7

    asyncio.run(scene())


def test_workers_that_end_because_the_run_has_ended_have_not_crashed(tmp_path: Path) -> None:
    async def scene() -> None:
        spec = replace(SPEC, recovery={"runPolicy": {"mode": "enforce"}, "metrics": {"crash": True}})
        folder = RunFolder.create(tmp_path / "run", spec)
        made, coordinator = coordinated(folder)
        coordinator.act(Fail(40, "crash: time 3"))
        exited = {"kind": "exited", "worker": "b0.0.0", "code": -15, "tail": []}
        coordinator._connections._hearing.hear(made.run.roster.agents["b0"], exited)
        assert await coordinator._scribe.has_written(10)
        assert [each.event for each in folder.events()] == ["action"]

    asyncio.run(scene())


def test_what_was_done_about_a_fault_is_over_when_the_training_runs(tmp_path: Path) -> None:
    async def scene() -> None:
        folder = RunFolder.create(tmp_path / "run", SPEC)
        made, coordinator = Scene(folder), Coordinator(folder, FakeSlurm(), 1)
        coordinator._run.roster, coordinator._run.membership = made.run.roster, made.run.membership
        coordinator._run.at_stake = Outcome("failed", "hang: why", 42)
        coordinator._decide(1.0)
        assert coordinator._run.at_stake is None

    asyncio.run(scene())


def test_who_takes_over_knows_how_long_a_node_may_stay(tmp_path: Path) -> None:
    """The node's agent keeps what it was told, and tells it in its hello."""

    async def scene() -> None:
        folder = RunFolder.create(tmp_path / "run", SPEC)
        made, first, second = Scene(folder), *(Coordinator(folder, FakeSlurm(), 1, term) for term in (1, 2))
        for coordinator in (first, second):
            coordinator._run.roster, coordinator._run.membership = made.run.roster, made.run.membership
        first.act(Depart("n1", 30.0, "why"), now=100.0)
        (told,) = made.agents["r7"].said("departs")
        agent = NodeAgent(folder, Place("replica", 7, 0, "n1"), FakeSlurm())
        assert agent._introduction()["departs"] is None
        agent._obey(told)
        hello = {**agent._introduction(), "running": ["r7.0.0"]}
        assert 29.0 < hello["departs"] <= 30.0
        made.run.roster.agents["r7"].leaving = False  # nobody has told the second one
        wire, now = Wire(), time.monotonic()
        second._connections._admit_agent({**hello, "departs": 10.0}, wire)  # type: ignore[arg-type]
        assert made.run.roster.agents["r7"].leaving
        second._decide(now + 7.9)
        assert wire.said("shutdown") == []
        second._decide(now + 8.5)
        assert wire.said("shutdown")
        assert made.workers["r7.0.0"].cut
        assert [round(each["seconds"]) for each in wire.said("departs")] == [10]

    asyncio.run(scene())


def test_a_node_that_alone_has_the_state_is_waited_for(act: Act) -> None:
    depart = Depart("n1", None, "why")

    def check(scene: Scene) -> None:
        for worker in ("b0.0.0", "r8.0.0"):
            del scene.run.roster.workers[worker]
        scene.deadlines.note(depart, 100.0)
        scene.deadlines.tick(1000.0)
        assert not scene.workers["r7.0.0"].cut

    act(depart, check)


def test_everything_is_ended_and_started_again(act: Act) -> None:
    def check(scene: Scene) -> None:
        assert all(wire.said("kill") for wire in scene.agents.values())
        assert all(wire.cut for wire in scene.workers.values())
        for name in NAMES:
            scene.ends(name, -9)
        assert all(wire.said("restart") for wire in scene.agents.values())
        assert not scene.run.ended.done()
        assert scene.run.membership.phase == "waiting", "no process is started yet"

    act(RestartAll("why"), check)


@pytest.mark.parametrize(
    ("saved", "left_out"),
    [("", [3]), ("has_checkpoint", None), ("may_have_checkpoint", None), ("has_saved", None)],
)
def test_all_that_begin_again_at_the_beginning_leave_out_what_was_left_out(
    act: Act, saved: str, left_out: list[int] | None
) -> None:
    """What is saved knows it by itself."""

    def check(scene: Scene) -> None:
        if saved:
            setattr(scene.run, saved, True)
        scene.acting.act(RestartAll("why"))
        membership = scene.run.membership
        membership.ready("b0.0.1", (0, 0), 9.0)
        (form,) = [each.message for each in membership.effects if isinstance(each, Send)]
        expected = {"to_step": 0, "skip": left_out} if left_out else {}
        assert form.get("roll_back", {}) == expected

    act(RollBack(steps=1, skip=True, reason="why", blamed=3), check)


def test_all_go_back_and_leave_the_blamed_step_out(act: Act) -> None:
    def check(scene: Scene) -> None:
        forms = [wire.said("form")[0] for wire in scene.workers.values()]
        assert all(form["roll_back"] == {"to_step": 0, "skip": [3]} for form in forms)

    act(RollBack(steps=5, skip=True, reason="why", blamed=3), check)


def test_where_nothing_is_kept_all_begin_again_without_what_is_left_out(tmp_path: Path) -> None:
    """Of a sharded model every worker says so; it is done once."""

    async def act() -> None:
        folder = RunFolder.create(tmp_path / "run", SPEC)
        scene = Scene(folder)
        workers, membership = list(scene.run.roster.workers.values()), scene.run.membership
        scene.acting.act(RollBack(steps=1, skip=True, reason="why", blamed=3, code=43))
        assert scene.run.at_stake == Outcome("failed", "why", 43)
        scene.run.act = scene.acting.act
        for worker in workers[:2]:
            told = {"generation": 2, "to_step": 2, "kept": None, "skipped": [1, 3]}
            scene.hearing.hear(worker, {"kind": "no_way_back", **told})
        done = [each.detail for each in folder.events() if each.event == "action"]
        assert [each["action"] for each in done] == ["RollBack", "RestartAll"]
        assert done[1]["reason"].startswith("no state of at most 2 steps is kept, nor any other: ")
        membership.ready("b0.0.1", (0, 0), 9.0)
        (form,) = [each.message for each in membership.effects if isinstance(each, Send)]
        assert (form["kind"], form["roll_back"]) == ("form", {"to_step": 0, "skip": [1, 3]})

    asyncio.run(act())


def test_what_is_kept_is_not_thrown_away_for_the_beginning_and_the_rules_are_asked(tmp_path: Path) -> None:
    async def act() -> None:
        folder = RunFolder.create(tmp_path / "run", SPEC)
        scene, heard = Scene(folder), []
        scene.hearing._watching.heard = lambda now, report: heard.append(report)  # type: ignore[method-assign]
        scene.acting.act(RollBack(steps=1, skip=True, reason="why", blamed=3))
        worker = scene.run.roster.workers["b0.0.0"]
        told = {"kind": "no_way_back", "generation": 2, "kept": 5, "skipped": [3]}
        for to_step in (1, 2):  # the first is of a roll back before
            scene.hearing.hear(worker, {**told, "to_step": to_step})
        (report,) = heard
        assert (report.kind, report.step) == ("no_way_back", 5)
        assert report.what == "no state of at most 2 steps is kept, the newest checkpoint is of step 5"
        assert [each.detail["action"] for each in folder.events() if each.event == "action"] == ["RollBack"]

    asyncio.run(act())


@pytest.mark.parametrize(("steps", "skip", "back"), [(1, True, 39), (6, True, 34), (1, False, 39)])
def test_it_goes_back_from_the_blamed_step_however_late_that_is_known(
    tmp_path: Path, steps: int, skip: bool, back: int
) -> None:
    async def act() -> None:
        scene = scene_at(RunFolder.create(tmp_path / "run", SPEC), 50)
        scene.acting.act(RollBack(steps=steps, skip=skip, reason="why", blamed=40))
        assert scene.run.journal.status.step == back

    asyncio.run(act())


@pytest.mark.parametrize(("total", "back", "left_out"), [(None, 50, 51), (60, 50, 51), (50, 49, 50)])
def test_where_none_is_blamed_it_is_the_step_in_work(
    tmp_path: Path, total: int | None, back: int, left_out: int
) -> None:
    """Its batch is what a worker ended in; the 50th is done, and sound."""

    async def act() -> None:
        scene = scene_at(RunFolder.create(tmp_path / "run", SPEC), 50)
        scene.run.journal.change(total_steps=total)
        scene.acting.act(RollBack(steps=1, skip=True, reason="why"))
        form = scene.workers["b0.0.0"].said("form")[-1]
        assert form["roll_back"] == {"to_step": back, "skip": [left_out]}
        assert scene.run.journal.status.step == back

    asyncio.run(act())


def beats(scene: Scene, generation: int, step: int) -> int:
    """What the run's status says after a sign of life of the first worker."""
    worker = scene.run.roster.workers["b0.0.0"]
    beat = {"kind": "beat", "generation": generation, "rank": 0, "step": step, "loss": 1.0, "samples": step}
    scene.hearing.hear(worker, beat)
    return scene.run.journal.status.step


def scene_at(folder: RunFolder, step: int) -> Scene:
    scene = Scene(folder)
    assert beats(scene, 1, step) == step
    return scene


def test_after_going_back_late_signs_of_life_do_not_lift_the_step_again(tmp_path: Path) -> None:
    """Else the steps that are done again count as none, and a stall is found."""

    async def act() -> None:
        scene = scene_at(RunFolder.create(tmp_path / "run", SPEC), 50)
        scene.acting.act(RollBack(steps=10, skip=False, reason="why", blamed=50))
        assert scene.run.journal.status.step == 40
        assert beats(scene, 1, 51) == 40
        assert scene.run.roster.workers["b0.0.0"].step == 50, "nor do watchers see it"
        assert beats(scene, 2, 41) == 41

    asyncio.run(act())


def test_when_all_begin_again_the_step_is_that_of_what_was_saved(tmp_path: Path) -> None:
    async def act() -> None:
        scene = scene_at(RunFolder.create(tmp_path / "run", SPEC), 50)
        worker = scene.run.roster.workers["b0.0.0"]
        scene.acting.act(RestartAll("why"))
        scene.run.roster.workers["b0.0.0"] = worker  # its last words are still read
        beats(scene, 1, 51)
        scene.hearing.hear(worker, {"kind": "resumed", "step": 30, "where": "/c"})
        assert scene.run.journal.status.step == 30
        assert beats(scene, 1, 52) == 30
        assert beats(scene, 2, 31) == 31

    asyncio.run(act())


def test_the_run_fails_with_the_code_that_is_asked_for(act: Act) -> None:
    def check(scene: Scene) -> None:
        outcome = scene.run.ended.result()
        assert (outcome.state, outcome.message, outcome.code) == ("failed", "why", 49)

    act(Fail(49, "why"), check)


def test_what_agents_and_workers_tell_of_storage_are_events_of_the_run(tmp_path: Path) -> None:
    async def scene() -> None:
        made = Scene(RunFolder.create(tmp_path / "run", SPEC))
        roster, hear = made.run.roster, made.hearing.hear
        hear(roster.agents["b0"], {"kind": "warning", "message": "cannot write a log"})
        failed = {"kind": "save_failed", "step": 4, "why": "interval", "reason": "no space"}
        hear(roster.workers["b0.0.0"], failed)
        told = [(each.event, each.detail) for each in made.run.folder.events()]
        assert told[-2:] == [
            ("warning", {"message": "n0: cannot write a log"}),
            ("save_failed", {"worker": "b0.0.0", "step": 4, "why": "interval", "reason": "no space"}),
        ]

    asyncio.run(scene())
