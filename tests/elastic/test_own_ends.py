"""Replica jobs that end because the run gives them back, or their own time is up, are not preempted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
import test_acting
from test_replicas import Scene, of_run, script

from hpctools.elastic.coordinator import Coordinator
from hpctools.elastic.folder import RunFolder
from hpctools.errors import CommandError
from hpctools.testing.slurm import FakeSlurm

__all__ = ["script"]


@pytest.mark.parametrize("fails", [False, True])
def test_agents_of_a_job_that_is_given_back_may_hear_of_it_before_slurm_has_answered(
    script: Path, *, fails: bool
) -> None:
    scene, seen = Scene(script, sizes=(1, 2, 4, 8)), dict[int, bool]()
    cancel = scene.slurm.cancel

    def watched(job_ids: Sequence[int]) -> None:
        seen.update(
            {each.job_id: scene.replicas.ends_by_itself(each.job_id) for each in scene.slurm.submitted}
        )
        cancel(job_ids)
        if fails:
            raise CommandError("scancel failed", argv=["scancel"], code=1)

    async def lose_the_second() -> None:
        for each in scene.slurm.submitted:
            scene.slurm.change(each.job_id, state="RUNNING")
            scene.replicas.serves(each.job_id, "a")
        scene.slurm.change(scene.slurm.submitted[1].job_id, state="NODE_FAIL")
        scene.replicas.gone(scene.slurm.submitted[1].job_id, "a")

    async def give_the_first_back() -> None:
        await asyncio.sleep(0.02)
        scene.slurm.cancel = watched  # type: ignore[method-assign]
        scene.now += 31
        await scene.until(lambda: bool(scene.slurm.cancelled))

    async def is_noted() -> None:
        first = scene.slurm.submitted[0].job_id
        await scene.until(lambda: scene.replicas.ends_by_itself(first) is not fails)

    scene.act(scene.submitted(3), lose_the_second, scene.submitted(4), give_the_first_back, is_noted)
    first, second, third, fourth = (each.job_id for each in scene.slurm.submitted[:4])
    assert seen == {first: True, second: False, third: False, fourth: False}


def test_a_job_whose_own_time_is_up_ends_by_itself(script: Path) -> None:
    scene = Scene(script)
    first = 0

    async def start() -> None:
        nonlocal first
        first = scene.slurm.submitted[0].job_id
        scene.slurm.queue[first] = of_run(first, time_limit=60)
        scene.now = 3500
        await scene.until(lambda: scene.replicas._own_ends.has(first, 1_003_600))
        assert not scene.replicas.ends_by_itself(first)
        scene.now = 3600
        assert scene.replicas.ends_by_itself(first)

    scene.act(scene.submitted(2), start)


@pytest.mark.parametrize("own", [True, False])
def test_only_who_is_preempted_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, own: bool
) -> None:
    """And only then it is asked who has the node now, and counts for how long replicas stay."""

    async def play() -> None:
        scene = test_acting.Scene(RunFolder.create(tmp_path / "run", test_acting.SPEC))
        run, agent, sought = scene.run, scene.run.roster.agents["r7"], list[str]()
        monkeypatch.setattr(run.replicas, "ends_by_itself", lambda job_id: own and job_id == agent.job_id)

        async def find(node: str, *told: object) -> None:
            sought.append(node)

        monkeypatch.setattr(run.replicas, "find_preemptor", find)
        run.payback.history.arrived("r7", 0.0)
        scene.hearing.hear(agent, {"kind": "leaving", "reason": "preempted"})
        scene.connections._drop(agent)
        await asyncio.sleep(0)
        (left,) = [each.detail["reason"] for each in run.folder.events() if each.event == "left"]
        assert left == ("released" if own else "preempted")
        assert sought == ([] if own else ["n1"])
        assert [each.ended for each in run.payback.history.facts(1.0).tenures] == [not own]
        run.give_up_background()

    asyncio.run(play())


def test_who_takes_over_knows_which_jobs_the_run_has_given_back(script: Path, tmp_path: Path) -> None:
    """Their agents say that they are preempted, and may say so only to the next coordinator."""
    scene = Scene(script, sizes=(1, 2, 4))
    folder = RunFolder.create(tmp_path / "run", test_acting.SPEC)
    scene.slurm.queue |= {7: of_run(7, nodes=("n3", "n4")), 8: of_run(8, state="PENDING", started=None)}
    scene.act(scene.submitted(1))  # job 8 fits no step
    for event, detail in scene.journal.events:
        folder.append_event(event, **detail)

    async def take_over() -> list[bool]:
        coordinator = Coordinator(folder, FakeSlurm(), 5, term=2)
        coordinator._begin("host")
        return [coordinator._run.replicas.ends_by_itself(job) for job in (7, 8)]

    assert scene.slurm.cancelled == [8]
    assert asyncio.run(take_over()) == [False, True]


def test_a_job_that_could_not_be_cancelled_is_not_noted_as_given_back(script: Path) -> None:
    scene = Scene(script, sizes=(1, 2, 4))
    scene.slurm.queue |= {7: of_run(7, nodes=("n3", "n4")), 8: of_run(8, state="PENDING", started=None)}

    def refused(job_ids: Sequence[int]) -> None:
        raise CommandError("scancel failed", argv=["scancel"], code=1)

    scene.slurm.cancel = refused  # type: ignore[method-assign]
    scene.act(scene.submitted(1))
    assert "given_back" not in dict(scene.journal.events)
