"""With `faultyScaleDownTimeoutInSeconds` nobody is waited for that the run knows to have gone for good."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from test_acting import SPEC, Scene

from hpctools.elastic.actions import ReplaceNode
from hpctools.elastic.folder import RunFolder


def preempted(scene: Scene) -> None:
    """Slurm kills it before all that leave at once are gathered."""
    scene.hearing.hear(scene.run.roster.agents["r7"], {"kind": "leaving", "reason": "preempted"})
    scene.connections._drop(scene.run.roster.workers["r7.0.0"])


def replaced(scene: Scene) -> None:
    scene.acting.act(ReplaceNode("n1", exclude=True, reason="why"))


def replaced_for_a_crash(scene: Scene) -> None:
    """Its line breaks first; then a rule is told how it ended."""
    scene.connections._drop(scene.run.roster.workers["r7.0.0"])
    replaced(scene)


def killed_with_its_agent(scene: Scene) -> None:
    """The agent's line breaks first."""
    scene.hearing.hear(scene.run.roster.agents["r7"], {"kind": "leaving", "reason": "preempted"})
    scene.connections._drop(scene.run.roster.agents["r7"])


def preempted_while_its_worker_is_started_again(scene: Scene) -> None:
    scene.connections._drop(scene.run.roster.workers["r7.0.0"])
    scene.ends("r7.0.0", -9)
    assert scene.run.membership.phase == "waiting"
    scene.hearing.hear(scene.run.roster.agents["r7"], {"kind": "leaving", "reason": "preempted"})


GOES = [
    preempted,
    replaced,
    replaced_for_a_crash,
    killed_with_its_agent,
    preempted_while_its_worker_is_started_again,
]


@pytest.mark.parametrize("goes", GOES)
def test_a_node_that_is_known_to_go_is_not_waited_for(tmp_path: Path, goes: Callable[[Scene], None]) -> None:
    async def play() -> None:
        scene = Scene(RunFolder.create(tmp_path / "run", SPEC))
        scene.run.membership._faulty_wait = 300
        goes(scene)
        assert scene.run.membership.phase == "recovering"
        assert [each["world"] for each in scene.workers["b0.0.0"].said("form")] == [2]
        scene.run.give_up_background()

    asyncio.run(play())


def test_one_that_dies_is_waited_for(tmp_path: Path) -> None:
    async def play() -> None:
        scene = Scene(RunFolder.create(tmp_path / "run", SPEC))
        scene.run.membership._faulty_wait = 300
        scene.connections._drop(scene.run.roster.workers["r7.0.0"])
        assert scene.run.membership.phase == "waiting"

    asyncio.run(play())
