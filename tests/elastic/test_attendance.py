"""Which agents of a replica job are there, and when too few have been for too long."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from test_replicas import Scene

from hpctools.elastic import replicas
from hpctools.elastic.attendance import LATE_SECONDS, LOST_SECONDS, Attendance
from hpctools.slurm.types import Job


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(replicas, "LOOK_SECONDS", 0.005)
    script = tmp_path / "replica.sh"
    script.write_text("#!/bin/sh\n")
    return script


def test_a_job_that_loses_one_of_its_agents_is_incomplete_after_a_while() -> None:
    attendance = Attendance()
    attendance.came(7, "a", 0.0)
    attendance.came(7, "b", 1.0)
    assert not attendance.is_incomplete(7, 2, 1000.0)
    attendance.went(7, "b", 1000.0)
    assert attendance.just_lost(7, 1000.0 + LOST_SECONDS - 0.1)
    assert not attendance.is_incomplete(7, 2, 1000.0 + LOST_SECONDS - 0.1)
    assert attendance.is_incomplete(7, 2, 1000.0 + LOST_SECONDS)
    assert not attendance.just_lost(7, 1000.0 + LOST_SECONDS)
    attendance.wait_again(7, 1030.0)
    assert not attendance.is_incomplete(7, 2, 1030.0 + LOST_SECONDS - 0.1)


def test_an_agent_that_comes_back_was_never_missed() -> None:
    attendance = Attendance()
    for agent in ("a", "b"):
        attendance.came(7, agent, 0.0)
    attendance.went(7, "a", 10.0)
    attendance.came(7, "a", 12.0)
    assert not attendance.has_lost(7)
    assert not attendance.is_incomplete(7, 2, 1000.0)
    attendance.went(7, "b", 1000.0)
    assert not attendance.is_incomplete(7, 2, 1000.0)


def test_a_node_that_is_slow_to_begin_has_more_time() -> None:
    attendance = Attendance()
    attendance.came(7, "a", 5.0)
    assert not attendance.is_incomplete(7, 2, 5.0 + LATE_SECONDS - 0.1)
    assert attendance.is_incomplete(7, 2, 5.0 + LATE_SECONDS)
    assert not attendance.is_incomplete(8, 2, 1000.0)  # of which nobody has ever come: Slurm may be at fault


def test_a_job_whose_agents_have_all_gone_has_more_time_to_come_back() -> None:
    attendance = Attendance()
    attendance.came(7, "a", 0.0)
    attendance.went(7, "a", 10.0)
    assert not attendance.is_incomplete(7, 1, 10.0 + LATE_SECONDS - 0.1)
    assert attendance.is_incomplete(7, 1, 10.0 + LATE_SECONDS)
    attendance.forget(7)
    assert not attendance.is_incomplete(7, 1, 10.0 + LATE_SECONDS)


def test_slurm_is_not_asked_for_ever_about_an_agent_that_came_back(script: Path) -> None:
    scene = Scene(script)

    async def come_back() -> None:
        first = scene.slurm.submitted[0].job_id
        scene.slurm.change(first, state="RUNNING")
        scene.replicas.serves(first, "a")
        scene.replicas.gone(first, "a")
        scene.replicas.serves(first, "a")
        await asyncio.sleep(0.05)
        asked = count_asked(scene)
        await asyncio.sleep(0.1)
        assert asked == []

    scene.act(scene.submitted(2), come_back)


def test_a_job_of_several_nodes_that_lacks_one_goes_back_and_is_asked_for_again(script: Path) -> None:
    scene = Scene(script, sizes=(1, 3))

    async def lose_one_of_two() -> None:
        first = scene.slurm.submitted[0].job_id
        scene.slurm.change(first, state="RUNNING")
        for agent in ("a", "b"):
            scene.replicas.serves(first, agent)
        scene.now += 1000
        await asyncio.sleep(0.05)
        assert scene.slurm.cancelled == []
        scene.replicas.gone(first, "b")
        scene.now += 29
        await asyncio.sleep(0.05)
        assert scene.slurm.cancelled == []
        scene.now += 12

    scene.act(scene.submitted(1), lose_one_of_two, scene.submitted(2))
    first, second = scene.slurm.submitted
    assert scene.slurm.cancelled == [first.job_id]
    assert second.options == first.options
    assert scene.warnings() == [f"replica job {first.job_id} is given back: not all of its nodes take part"]


def test_a_suspended_job_is_not_given_back(script: Path) -> None:
    scene = Scene(script, sizes=(1, 3))

    async def suspend() -> None:
        first = scene.slurm.submitted[0].job_id
        scene.slurm.change(first, state="RUNNING")
        for agent in ("a", "b"):
            scene.replicas.serves(first, agent)
        scene.slurm.change(first, state="SUSPENDED")
        scene.replicas.gone(first, "a")
        for _ in range(5):
            scene.now += 100
            await asyncio.sleep(0.02)
        scene.slurm.change(first, state="RUNNING")
        scene.now += 20
        await asyncio.sleep(0.05)

    scene.act(scene.submitted(1), suspend)
    assert scene.slurm.cancelled == []


def count_asked(scene: Scene) -> list[dict[str, Any]]:
    """What Slurm is asked from now on, as it grows."""
    asked: list[dict[str, Any]] = []
    answer = scene.slurm.jobs

    def jobs(**which: Any) -> list[Job]:
        asked.append(which)
        return answer(**which)

    scene.slurm.jobs = jobs  # type: ignore[method-assign]
    return asked
