"""What the end of a worker's process leads to: it is started again, its node goes, or the run fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_acting import SPEC, Scene

from hpctools.elastic import exits
from hpctools.elastic.actions import RestartWorker
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.watchers import Report

WORKERS = 4


@pytest.fixture
def scene(tmp_path: Path) -> Callable[[Callable[[Scene], None]], None]:
    """Three nodes with four workers each, of which the first of each trains."""

    def play(act: Callable[[Scene], None]) -> None:
        async def scene() -> None:
            spec = replace(SPEC, workers_per_node=WORKERS)
            made = Scene(RunFolder.create(tmp_path / "run", spec), spec)
            for name, agent in made.run.roster.agents.items():
                agent.running = set(workers_of(name))
            act(made)

        asyncio.run(scene())

    return play


Play = Callable[[Callable[[Scene], None]], None]


def workers_of(agent: str, attempt: int = 0) -> list[str]:
    return [f"{agent}.{place}.{attempt}" for place in range(WORKERS)]


def started_again(scene: Scene, agent: str) -> list[str]:
    return [message["worker"] for message in scene.agents[agent].said("restart")]


@pytest.mark.parametrize("given_up", [False, True])
@pytest.mark.parametrize("agent", ["b0", "r7"])
def test_all_workers_of_a_node_that_die_at_once_are_started_again(
    scene: Play, agent: str, *, given_up: bool
) -> None:
    """Also those of a node that was cut off for some seconds, which are ended when it is back."""

    def die(made: Scene) -> None:
        for worker in workers_of(agent):
            if given_up:
                made.run.roster.expelled.add(worker)
            made.ends(worker, -9)
        assert started_again(made, agent) == workers_of(agent)
        assert not made.run.ended.done()
        assert made.agents[agent].said("shutdown") == []

    scene(die)


def test_a_worker_that_is_killed_again_and_again_ends_the_run_and_those_beside_it_do_not_count(
    scene: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(exits, "time", SimpleNamespace(monotonic=lambda: now))

    def die(made: Scene) -> None:
        nonlocal now
        for attempt in range(6):  # each is forgotten when the next one comes
            made.ends(f"b0.1.{attempt}", -9)
            now += exits.FORGOTTEN_SECONDS + 1
        for attempt in range(3):
            for worker in workers_of("b0", attempt):
                made.ends(worker, -9)
            now += exits.FORGOTTEN_SECONDS - 1
        assert not made.run.ended.done()
        made.ends("b0.2.3", -9)
        assert made.run.ended.result().message == "worker b0.2.3 on n0 was ended by signal 9 4 times"

    scene(die)


@pytest.mark.parametrize("generation", [0, 5])
def test_a_worker_that_is_killed_while_it_loads_is_not_started_again_for_ever(
    scene: Play, monkeypatch: pytest.MonkeyPatch, generation: int
) -> None:
    """The node's memory is too small for the data, some minutes after each start; or for the checkpoint."""
    now = 0.0
    monkeypatch.setattr(exits, "time", SimpleNamespace(monotonic=lambda: now))

    def die(made: Scene) -> None:
        nonlocal now
        made.run.journal.change(generation=generation)  # of before all began again
        for attempt in range(1, exits.RESTARTS + 1):
            made.ends(f"b0.1.{attempt}", -9)  # long before, while it trained
        now += 600.0
        made.acting.restart_all()
        for attempt in range(10, exits.RESTARTS + 11):
            assert not made.run.ended.done()
            made.ends(f"b0.1.{attempt}", -9)
            now += 600.0
        assert made.run.ended.result().message == "worker b0.1.13 on n0 was ended by signal 9 4 times"

    scene(die)


def test_what_all_workers_of_one_replica_raise_counts_once(scene: Play) -> None:
    """A node whose GPU is broken is no reason to grow no more."""
    raised = {"kind": "exited", "code": 1, "tail": ["RuntimeError: No CUDA GPUs are available"]}

    def crash(made: Scene) -> None:
        first, said = made.run.roster.agents["r7"], list[str]()
        for job, agent in enumerate(("r7", "r8", "r9"), start=1):
            made.run.roster.agents[agent] = replace(first, name=agent, node=f"n{job}", job_id=job)
            assert said == [], "no more than two have failed"
            for worker in workers_of(agent):
                made.hearing.hear(made.run.roster.agents[agent], {**raised, "worker": worker})
            said = [each.detail["message"] for each in made.run.folder.events() if each.event == "warning"]
        assert said == [f"no more replicas: 3 of them failed with: {raised['tail'][0]}"]

    scene(crash)


@pytest.mark.parametrize("finishing", [False, True])
def test_a_program_that_breaks_after_the_last_step_fails_the_run_also_with_a_rule_for_crashes(
    scene: Play, *, finishing: bool
) -> None:
    """Started again it would find nothing to train, and end well: the model that it saves is missing."""

    def breaks(made: Scene) -> None:
        reports: list[Report] = []
        watching = made.hearing._watching
        watching.handles = lambda report: True  # type: ignore[method-assign]
        watching.heard = lambda now, report: reports.append(report)  # type: ignore[method-assign]
        made.run.completed, made.run.finishing = True, finishing
        made.ends("b0.0.0", 1)
        assert made.run.ended.done()
        assert (made.run.ended.result().state, made.run.ended.result().exit_code) == ("failed", 1)
        assert (reports, started_again(made, "b0")) == ([], [])

    scene(breaks)


@pytest.mark.parametrize("rules", [False, True])
def test_an_end_that_is_told_again_counts_once_and_its_restart_is_ordered_again(
    scene: Play, *, rules: bool
) -> None:
    """The agent's line broke after the end was told, and with it our order may have been lost."""

    def play(made: Scene) -> None:
        heard: list[Report] = []
        watching = made.hearing._watching
        watching.handles = lambda report: rules  # type: ignore[method-assign]

        def restarts(now: float, report: Report) -> None:
            heard.append(report)
            if rules:
                made.acting.act(RestartWorker(report.worker, "why"))

        watching.heard = restarts  # type: ignore[method-assign]
        for _ in range(2):
            made.ends("b0.0.0", -9)
        assert len(heard) == 1
        assert started_again(made, "b0") == ["b0.0.0"] * 2
        assert not made.run.ended.done()
        made.run.completed = True
        made.ends("b0.0.0", -9)
        assert started_again(made, "b0") == ["b0.0.0"] * 2, "there are no steps to do any more"

    scene(play)


def test_the_end_of_who_was_not_to_be_started_again_orders_nothing_when_it_is_told_again(scene: Play) -> None:
    def play(made: Scene) -> None:
        for _ in range(2):
            made.ends("r7.0.0", 1)
        assert started_again(made, "r7") == []
        crashed = [each for each in made.run.folder.events() if each.event == "crashed"]
        assert len(crashed) == 1

    scene(play)


@pytest.mark.parametrize(
    ("command", "code", "told"),
    [
        (("/run/script",), 137, -9),
        (("apptainer", "exec", "i.sif", "python", "t.py"), 134, -6),
        (("/run/script",), 128, 128),
        (("/run/script",), 255, 255),
        (("/run/script",), 1, 1),
        (("/run/script",), 0, 0),
        (("/run/script",), -9, -9),
        (("python3", "t.py"), 137, 137),
    ],
)
def test_a_shell_tells_the_signal_that_has_ended_its_command(
    command: tuple[str, ...], code: int, told: int
) -> None:
    assert exits.code_behind(command, code) == told


def test_a_worker_that_is_killed_behind_a_shell_is_started_again(scene: Play) -> None:
    """As by the kernel when memory is short: the run failed."""

    def die(made: Scene) -> None:
        made.run.spec = replace(made.run.spec, command=("/run/script",))
        made.ends("b0.1.0", 137)
        assert started_again(made, "b0") == ["b0.1.0"]
        assert not made.run.ended.done()

    scene(die)
