"""Workers that give no sign of life: given up within seconds, but the last with the state is waited for."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ledger_run import LedgerRun, training
from test_acting import NAMES, SPEC, Scene, Wire

from hpctools.elastic.connections import RETURN_SECONDS
from hpctools.elastic.coordinator import TICK_SECONDS
from hpctools.elastic.excuses import MUTE_SECONDS
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.protocol import SILENCE_SECONDS, encode
from hpctools.elastic.recovery.settings import EXIT_CODES
from hpctools.elastic.recovery.wiring import longest_silence
from hpctools.elastic.spec import RunSpec
from hpctools.elastic.stopped import LOOKS, StoppedWatch, is_stopped
from tests.elastic.test_run import OPTIONS, assert_same_result, lone

__all__ = ["lone"]

BASELINE, *REPLICAS = NAMES
PATIENCE = 20.0
HANG = {"metrics": {"hang": {"seconds": PATIENCE}}}


def run_spec(recovery: dict[str, Any]) -> RunSpec:
    return RunSpec.from_json({**SPEC.to_json(), "recovery": recovery})


@pytest.fixture
def look(tmp_path: Path) -> Callable[[Callable[[Scene], None]], None]:
    """Have a look at a run of three workers of which the replicas' are gone; all were last seen at 0."""

    def look(check: Callable[[Scene], None]) -> None:
        async def scene() -> None:
            made = Scene(RunFolder.create(tmp_path / "run", SPEC), run_spec(HANG))
            for worker in REPLICAS:
                made.connections.expel(made.run.roster.workers[worker])
            for agent in made.run.roster.agents.values():
                agent.seen = PATIENCE  # only the worker is frozen
            check(made)

        asyncio.run(scene())

    return look


def warnings_of(scene: Scene) -> list[str]:
    return [each.detail["message"] for each in scene.run.folder.events() if each.event == "warning"]


def test_silence_is_noticed_within_three_seconds(
    look: Callable[[Callable[[Scene], None]], None],
) -> None:
    """Looked for so often that the worst case is no longer."""

    def check(scene: Scene) -> None:
        agent = scene.run.roster.agents["r7"]
        scene.connections.check_silence(agent.seen + 3 - TICK_SECONDS, late=False)
        assert "r7" not in scene.run.roster.agents

    look(check)


def muted(scene: Scene, agent: str, silent: float, *, last: float = 0.0) -> None:
    """Nothing has been heard of an agent for some seconds; of all others just now."""
    roster, now = scene.run.roster, last + silent
    for peer in (*roster.agents.values(), *roster.workers.values()):
        peer.seen = now
    roster.agents[agent].seen = last
    scene.connections.check_silence(now, late=False)


def test_an_agent_that_is_silent_is_waited_for_while_its_workers_are_not(tmp_path: Path) -> None:
    """They train, and it may wake up; each silence is told once."""

    async def scene() -> None:
        made = Scene(RunFolder.create(tmp_path / "run", SPEC))
        for silent in (SILENCE_SECONDS + 0.1, MUTE_SECONDS):
            muted(made, "r7", silent)
        assert "r7" in made.run.roster.agents
        assert len(warnings_of(made)) == 1
        assert warnings_of(made)[0].startswith("the agent on n1 gives no sign of life, but its workers do")
        muted(made, "r7", SILENCE_SECONDS + 0.1, last=100.0)
        assert len(warnings_of(made)) == 2
        muted(made, "r7", MUTE_SECONDS + 0.1, last=100.0)
        assert "r7" not in made.run.roster.agents
        assert "r7.0.0" in made.run.roster.expelled

    asyncio.run(scene())


def test_an_agent_whose_node_is_to_be_given_back_is_not_waited_for(tmp_path: Path) -> None:
    async def scene() -> None:
        made = Scene(RunFolder.create(tmp_path / "run", SPEC))
        made.run.roster.agents["r7"].leaving = True
        muted(made, "r7", SILENCE_SECONDS + 0.1)
        assert "r7" not in made.run.roster.agents

    asyncio.run(scene())


def test_a_node_that_is_silent_as_a_whole_is_given_up(tmp_path: Path) -> None:
    async def scene() -> None:
        made = Scene(RunFolder.create(tmp_path / "run", SPEC))
        roster = made.run.roster
        for peer in (*roster.agents.values(), *roster.workers.values()):
            peer.seen = SILENCE_SECONDS + 0.1
        roster.agents["r7"].seen = roster.workers["r7.0.0"].seen = 0.0
        made.connections.check_silence(SILENCE_SECONDS + 0.1, late=False)
        assert "r7" not in roster.agents
        assert "r7.0.0" not in roster.workers

    asyncio.run(scene())


def test_a_worker_of_which_its_agent_says_that_it_is_stopped_is_given_up_at_once(tmp_path: Path) -> None:
    async def scene() -> None:
        made = Scene(RunFolder.create(tmp_path / "run", SPEC))
        roster, now = made.run.roster, time.monotonic()
        for peer in (*roster.agents.values(), *roster.workers.values()):
            peer.seen = now
        made.hearing.hear(roster.agents["r7"], {"kind": "stopped", "worker": "r7.0.0"})
        made.connections.check_silence(now, late=False)
        assert made.agents["r7"].said("kill") == [{"kind": "kill", "worker": "r7.0.0"}]
        assert sorted(roster.workers) == [BASELINE, REPLICAS[1]]

    asyncio.run(scene())


def test_a_worker_that_was_given_up_is_told_when_it_comes_again(tmp_path: Path) -> None:
    """Its agent may not live any more. One whose agent has not come yet is only asked to try again."""

    async def scene() -> None:
        made = Scene(RunFolder.create(tmp_path / "run", SPEC))
        made.connections.expel(made.run.roster.workers["r7.0.0"])
        told = [Wire(), Wire()]
        for worker, wire in zip(("r7.0.0", "r66.0.0"), told, strict=True):
            assert made.connections._admit_worker({"worker": worker}, wire) is None  # type: ignore[arg-type]
        assert [wire.messages for wire in told] == [[{"kind": "expelled"}], []]

    asyncio.run(scene())


def test_an_agent_sees_who_is_stopped_and_not_who_sleeps() -> None:
    """And blames nobody for one look, or for looks between which it went on."""
    heard: list[str] = []
    with contextlib.ExitStack() as stack:
        one, other = (stack.enter_context(subprocess.Popen(["sleep", "60"])) for _ in range(2))
        for each in (one, other):
            stack.callback(each.kill)
        workers = SimpleNamespace(pids={"r7.0.0": one.pid, "r8.0.0": other.pid, "r9.0.0": 1 << 30})
        watch = StoppedWatch(workers, lambda kind, worker: heard.append(f"{kind} {worker}"))
        for _ in range(LOOKS - 1):
            stop(one)
            watch.look()
        one.send_signal(signal.SIGCONT)
        until(lambda: not is_stopped(one.pid))
        watch.look()
        stop(one)
        for _ in range(LOOKS - 1):
            watch.look()
        assert heard == []
        watch.look()
        watch.look()
        assert heard == ["stopped r7.0.0"] * 2


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGSTOP)
    until(lambda: is_stopped(process.pid))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_frozen_agents_worker_trains_on(tmp_path: Path, lone: list[dict[str, Any]]) -> None:
    """No step is done again, nobody leaves, and the agent goes on when it wakes up."""
    hurry = tmp_path / "hurry"
    options = ("--delay", "0.004", "--hurry", str(hurry))
    with LedgerRun(tmp_path, training(tmp_path / "out", *OPTIONS, *options), (2, 2)) as run:
        run.wait_for_world(2)
        run.agent_of("b1").send_signal(signal.SIGSTOP)
        run.wait(lambda: any("but its workers do" in str(each) for each in run.events("warning")))
        run.wait_for_steps(3)
        run.agent_of("b1").send_signal(signal.SIGCONT)
        run.wait_for_steps(3)
        hurry.touch()
        assert run.end() == 0, run.story()
    assert_same_result(run, lone)
    assert {line["generation"] for line in run.committed()} == {1}, run.story()
    assert run.events("left") == [], run.story()


def test_the_limit_is_the_policys_hang_or_its_default() -> None:
    assert longest_silence(run_spec(HANG)) == PATIENCE
    assert longest_silence(run_spec({})) == longest_silence(SPEC) == 600


def test_the_last_one_with_the_state_is_waited_for_and_that_is_said_once(
    look: Callable[[Callable[[Scene], None]], None],
) -> None:
    def check(scene: Scene) -> None:
        for now in (SILENCE_SECONDS + 0.1, PATIENCE - 0.1, PATIENCE):
            scene.connections.check_silence(now, late=False)
        assert BASELINE in scene.run.roster.workers
        (said,) = warnings_of(scene)
        assert said.startswith(
            f"{BASELINE} on n0, which alone has the training's state, gives no sign of life"
        )
        assert "20 s at most" in said

    look(check)


def test_with_a_checkpoint_it_is_given_up_as_any_other(
    look: Callable[[Callable[[Scene], None]], None],
) -> None:
    def check(scene: Scene) -> None:
        scene.run.has_checkpoint = True
        scene.connections.check_silence(PATIENCE + 0.1, late=False)
        assert not scene.run.ended.done()
        assert scene.agents["b0"].said("kill") == [{"kind": "kill", "worker": BASELINE}]
        assert BASELINE not in scene.run.roster.workers

    look(check)


@pytest.mark.parametrize("may_have", [True, False])
def test_who_knows_of_no_checkpoint_does_not_say_that_there_is_none(
    look: Callable[[Callable[[Scene], None]], None], *, may_have: bool
) -> None:
    """Storage is asked first; when it has none, all begin at step 0, or the run ends with a hang's code."""

    def check(scene: Scene) -> None:
        scene.run.may_have_checkpoint = may_have
        scene.connections.check_silence(PATIENCE + 0.1, late=False)
        assert not scene.run.ended.done()
        at_stake = scene.run.at_stake
        assert at_stake is not None
        assert (at_stake.code, at_stake.is_loss) == (EXIT_CODES["hang"], True)
        assert at_stake.message.endswith("gave no sign of life for 20 s")
        assert scene.agents["b0"].said("kill") == [{"kind": "kill", "worker": BASELINE}]

    look(check)


def test_who_slept_itself_blames_nobody(look: Callable[[Callable[[Scene], None]], None]) -> None:
    def check(scene: Scene) -> None:
        scene.connections.check_silence(PATIENCE + 0.1, late=True)
        scene.connections.check_silence(2 * PATIENCE, late=False)
        assert not scene.run.ended.done()

    look(check)


def hangs_up(scene: Scene) -> None:
    """The last worker with the state does, and its agent."""
    roster = scene.run.roster
    scene.connections._drop(roster.agents["b0"])
    scene.connections._drop(roster.workers[BASELINE])


def test_the_last_one_with_the_state_may_hang_up_and_come_again(
    look: Callable[[Callable[[Scene], None]], None],
) -> None:
    """As everybody does who heard nothing of us for some seconds, because we slept."""

    def check(scene: Scene) -> None:
        hangs_up(scene)
        assert scene.run.membership.knows(BASELINE)
        assert BASELINE not in scene.run.roster.expelled
        soon = time.monotonic() + RETURN_SECONDS
        scene.connections.check_silence(soon - RETURN_SECONDS / 2, late=False)
        assert scene.run.membership.knows(BASELINE)
        scene.connections.check_silence(soon + 1, late=False)
        assert not scene.run.membership.knows(BASELINE)

    look(check)


def test_the_last_one_is_lost_at_once_when_its_process_has_ended(
    look: Callable[[Callable[[Scene], None]], None],
) -> None:
    def check(scene: Scene) -> None:
        scene.connections._drop(scene.run.roster.workers[BASELINE])
        assert scene.run.membership.knows(BASELINE), "it is not known yet"
        scene.ends(BASELINE, -9)
        assert not scene.run.membership.knows(BASELINE)

    look(check)


def test_of_several_with_the_state_one_that_hangs_up_is_lost_at_once(tmp_path: Path) -> None:
    async def scene() -> None:
        made = Scene(RunFolder.create(tmp_path / "run", SPEC))
        made.connections._drop(made.run.roster.workers[BASELINE])
        assert not made.run.membership.knows(BASELINE)
        assert made.run.roster.missing == {}

    asyncio.run(scene())


def test_what_was_under_way_from_one_that_was_given_up_is_not_heard(tmp_path: Path) -> None:
    """A ghost would be waited for in each generation: nobody notices that it has gone, as it has."""

    async def scene() -> None:
        made = Scene(RunFolder.create(tmp_path / "run", SPEC))
        heard: list[str] = []

        def hear(peer: Any, message: dict[str, Any]) -> None:
            heard.append(message["kind"])
            made.connections.expel(peer)

        made.hearing.hear = hear  # type: ignore[method-assign]
        made.run.roster.agents["r7"].running.add("r7.0.1")
        reader, wire = asyncio.StreamReader(), Wire()
        wire.close = lambda: None  # type: ignore[attr-defined]
        hello = encode("hello", role="worker", token=made.connections.token, worker="r7.0.1")
        reader.feed_data(hello + encode("beat") + encode("ready"))
        reader.feed_eof()
        await asyncio.wait_for(made.connections.serve(reader, wire), 20)  # type: ignore[arg-type]
        assert wire.said("welcome")
        assert heard == ["beat"]

    asyncio.run(scene())


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_run_of_one_node_bears_that_its_agent_sleeps(tmp_path: Path, lone: list[dict[str, Any]]) -> None:
    """The worker and the agent have hung up by then; nobody else is there, and nothing was saved."""
    hurry = tmp_path / "hurry"
    options = ("--delay", "0.002", "--hurry", str(hurry))
    with LedgerRun(tmp_path, training(tmp_path / "out", *OPTIONS, *options), (1, 1)) as run:
        run.wait_for_steps(6)
        run.agent_of("b0").send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        run.wait(lambda: time.monotonic() > begun + SILENCE_SECONDS + 1)
        run.agent_of("b0").send_signal(signal.SIGCONT)
        run.wait(lambda: run.committed()[-1]["generation"] > 1)
        hurry.touch()
        assert run.end() == 0, run.story()
    assert_same_result(run, lone)
    assert {line["worker"] for line in run.ledger()} == {"b0.0.0"}, "in the same process"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nobody_is_blamed_when_everything_stands_still(tmp_path: Path, lone: list[dict[str, Any]]) -> None:
    """A machine is suspended, or a job: afterwards all go on, and nothing is done again."""
    hurry = tmp_path / "hurry"
    options = ("--delay", "0.004", "--hurry", str(hurry))
    rules = {"runPolicy": {"mode": "enforce"}, "metrics": {"stalledStep": {"seconds": SILENCE_SECONDS}}}
    with LedgerRun(tmp_path, training(tmp_path / "out", *OPTIONS, *options), (2, 2), recovery=rules) as run:
        run.wait_for_world(2)
        run.wait_for_steps(5)  # so many that it is known how long a step takes
        pids = [run.agent_of("b0").pid, run.agent_of("b1").pid, run.pid_of("b0.0"), run.pid_of("b1.0")]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        begun = time.monotonic()
        run.wait(lambda: time.monotonic() > begun + 2 * SILENCE_SECONDS)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        run.wait_for_steps(3)
        hurry.touch()
        assert run.end() == 0, run.story()
    assert_same_result(run, lone)
    assert {line["generation"] for line in run.committed()} == {1}, run.story()
    kinds = ("left", "takeover", "waiting", "finding")
    assert [run.events(kind) for kind in kinds] == [[]] * len(kinds), run.story()


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("save_every", [1000, 0, 4])
def test_a_run_whose_only_worker_freezes(save_every: int, tmp_path: Path, lone: list[dict[str, Any]]) -> None:
    """It begins again with what was saved, in a process of its own, or at step 0 when nothing was yet.

    Without checkpoints it fails; the rule itself only logs.
    """
    hurry = tmp_path / "hurry"
    options = ["--delay", "0.002", "--hurry", str(hurry), "--same-start", "--save-every", str(save_every)]
    recovery = {"metrics": {"hang": {"seconds": 6}}}
    with LedgerRun(
        tmp_path, training(tmp_path / "out", *OPTIONS, *options), (1, 1), recovery=recovery
    ) as run:
        run.wait_for_steps(6)
        os.kill(run.pid_of("b0.0.0"), signal.SIGSTOP)
        if save_every == 0:
            assert run.end() == EXIT_CODES["hang"]
            return
        run.wait(lambda: run.committed()[-1]["worker"] == "b0.0.1" or run.committed()[0]["generation"] > 1)
        hurry.touch()
        assert run.end() == 0, run.story()
    assert_same_result(run, lone)
    assert run.committed()[-1]["worker"] == "b0.0.1"
