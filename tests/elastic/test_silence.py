"""Workers that give no sign of life: given up within seconds, but the last with the state is waited for."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ledger_run import LedgerRun, training
from test_acting import NAMES, SPEC, Scene, Wire

from hpctools.elastic.connections import RETURN_SECONDS
from hpctools.elastic.coordinator import TICK_SECONDS
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.protocol import SILENCE_SECONDS, encode
from hpctools.elastic.recovery.settings import EXIT_CODES
from hpctools.elastic.recovery.wiring import longest_silence
from hpctools.elastic.spec import RunSpec
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


def test_without_a_checkpoint_the_run_then_fails_with_the_code_of_a_hang(
    look: Callable[[Callable[[Scene], None]], None],
) -> None:
    def check(scene: Scene) -> None:
        scene.connections.check_silence(PATIENCE + 0.1, late=False)
        outcome = scene.run.ended.result()
        assert (outcome.state, outcome.code) == ("failed", EXIT_CODES["hang"])
        assert "gave no sign of life for 20 s, and nothing was saved" in outcome.message
        assert scene.agents["b0"].said("kill") == [{"kind": "kill", "worker": BASELINE}]

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
        scene.connections.check_silence(soon - 1, late=False)
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
@pytest.mark.parametrize("save_every", [None, 4])
def test_a_run_whose_only_worker_freezes(
    save_every: int | None, tmp_path: Path, lone: list[dict[str, Any]]
) -> None:
    """It begins again with what was saved, in a process of its own, or fails; the rule itself only logs."""
    hurry = tmp_path / "hurry"
    options = ["--delay", "0.002", "--hurry", str(hurry)]
    options += [] if save_every is None else ["--save-every", str(save_every)]
    recovery = {"metrics": {"hang": {"seconds": 6}}}
    with LedgerRun(
        tmp_path, training(tmp_path / "out", *OPTIONS, *options), (1, 1), recovery=recovery
    ) as run:
        run.wait_for_steps(6)
        os.kill(run.pid_of("b0.0.0"), signal.SIGSTOP)
        if save_every is None:
            assert run.end() == EXIT_CODES["hang"]
            return
        run.wait(lambda: run.events("resumed"))
        hurry.touch()
        assert run.end() == 0, run.story()
    assert_same_result(run, lone)
    assert run.committed()[-1]["worker"] == "b0.0.1"
