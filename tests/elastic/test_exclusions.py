"""Nodes that the run's jobs must not get again: by jobs that wait already, and after a takeover."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path

import pytest
from test_replicas import Scene, of_run

from hpctools.elastic import replicas
from hpctools.elastic.actions import Action, Depart, Prepare, ReplaceNode, RestartWorker
from hpctools.elastic.coordinator import Coordinator
from hpctools.elastic.exclusions import Span, avoided, exclusions
from hpctools.elastic.folder import Event, RunFolder
from hpctools.elastic.spec import RunSpec
from hpctools.errors import UnreachableError
from hpctools.testing.slurm import FakeSlurm

SPEC = RunSpec("t-1", "t", "nlp1", "", 1, 3, 1, ("true",), "/", (), "/r.sh", "now")


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(replicas, "LOOK_SECONDS", 0.005)
    script = tmp_path / "replica.sh"
    script.write_text("#!/bin/sh\n")
    return Scene(script)


def test_a_job_that_waits_is_submitted_again_without_the_node_and_one_that_runs_stays(scene: Scene) -> None:
    async def exclude() -> None:
        first = scene.slurm.submitted[0].job_id
        scene.slurm.change(first, state="RUNNING")
        scene.replicas.serves(first, "a")
        scene.replicas.exclude("n7")

    async def a_while() -> None:
        for _ in range(3):
            scene.now += 20
            await asyncio.sleep(0.02)

    scene.act(scene.submitted(2), exclude, scene.submitted(3), a_while)
    _, second, third = scene.slurm.submitted
    assert scene.slurm.cancelled == [second.job_id]
    assert third.options == ("--qos=elastic", "--nodes=1", "--exclude=n7")


def test_a_node_that_nobody_can_name_is_not_excluded(scene: Scene) -> None:
    """Slurm refuses `--exclude=?`, so every later job of the run; an earlier release wrote it down, too."""

    async def exclude() -> None:
        for node in ("?", "", "n7"):
            scene.replicas.exclude(node)

    scene.act(exclude)
    assert scene.replicas.excluded == {"n7"}
    replaced = {"action": "ReplaceNode", "exclude": True}
    events = [
        Event("2026-11-28T12:00:00+00:00", "action", {**replaced, "node": node}) for node in ("?", "n8")
    ]
    assert set(exclusions(events)) == {"n8"}


def test_a_job_that_cannot_be_cancelled_keeps_its_slot(scene: Scene) -> None:
    cancel = scene.slurm.cancel

    def away(_: object) -> None:
        raise UnreachableError("slurmctld does not answer")

    async def exclude() -> None:
        scene.slurm.cancel = away  # type: ignore[method-assign]
        scene.replicas.exclude("n7")
        await scene.until(lambda: bool(scene.warnings()))
        await asyncio.sleep(0.02)
        assert len(scene.slurm.submitted) == 2
        scene.slurm.cancel = cancel  # type: ignore[method-assign]
        scene.now += 20

    scene.act(scene.submitted(2), exclude, scene.submitted(4))


def test_after_a_takeover_only_jobs_from_before_the_exclusion_are_submitted_again(scene: Scene) -> None:
    scene.slurm.queue |= {
        7: of_run(7, state="PENDING", started=None, submitted=999_000),
        8: of_run(8, state="PENDING", started=None, submitted=999_500),
    }
    scene.replicas.exclude("n7", Span(999_500.7))
    scene.act(scene.submitted(1))
    assert scene.slurm.cancelled == [7]
    assert scene.slurm.submitted[0].options[-1] == "--exclude=n7"


def test_a_node_is_avoided_for_a_while_and_jobs_that_wait_may_then_get_it(scene: Scene) -> None:
    async def avoid() -> None:
        scene.replicas.avoid("n7", 100.0)

    async def later() -> None:
        scene.now += 99
        await asyncio.sleep(0.02)
        assert len(scene.slurm.submitted) == 4
        scene.now += 20

    scene.act(scene.submitted(2), avoid, scene.submitted(4), later, scene.submitted(6))
    first = [each.job_id for each in scene.slurm.submitted]
    assert scene.slurm.cancelled == first[:4]
    excluded = [each.options[2:] for each in scene.slurm.submitted]
    assert excluded == [(), (), ("--exclude=n7",), ("--exclude=n7",), (), ()]


def test_after_a_takeover_a_job_that_avoids_a_node_for_nothing_is_submitted_again(
    scene: Scene,
) -> None:
    """It would not get the node."""
    scene.slurm.queue |= {
        7: of_run(7, state="PENDING", started=None, submitted=999_550),
        8: of_run(8, state="PENDING", started=None, submitted=999_650),
    }
    scene.replicas.exclude("n7", Span(999_500.7, 999_600.7))
    scene.act(scene.submitted(1))
    assert scene.slurm.cancelled == [7]
    assert scene.slurm.submitted[0].options == ("--qos=elastic", "--nodes=1")


def acted(time: str, action: Action) -> Event:
    return Event(time, "action", {"action": type(action).__name__, **asdict(action)})


def test_what_was_excluded_is_read_from_the_events() -> None:
    events = [
        acted("2026-01-01T00:00:00.500+00:00", ReplaceNode("n1", True, "why")),
        acted("2026-01-01T00:01:00.000+00:00", ReplaceNode("n2", False, "why")),
        acted("2026-01-01T00:02:00.000+00:00", RestartWorker("r1.0.0", "why")),
        acted("2026-01-01T00:03:00.000+00:00", ReplaceNode("n1", True, "why")),
        acted("torn", ReplaceNode("n3", True, "why")),
    ]
    found = exclusions(events)
    assert found.pop("n3").since > 1e12
    assert found == {"n1": Span(1767225600.5)}
    assert avoided(of_run(7, submitted=1767225600), found) == {"n1"}
    assert avoided(of_run(7, submitted=1767225599), found) == set()


def test_for_how_long_a_node_was_avoided_is_read_from_the_events() -> None:
    events = [
        acted("2026-01-01T00:00:00.500+00:00", Prepare("n1", None, "why", 600.0)),
        acted("2026-01-01T00:01:00.500+00:00", Depart("n1", 100.0, "why", 400.0)),
        acted("2026-01-01T00:00:00.500+00:00", Depart("n2", None, "it is drained")),
        acted("2026-01-01T00:00:00.500+00:00", Depart("n3", None, "why", 60.0)),
        acted("2026-01-01T01:00:00.500+00:00", Depart("n3", None, "why", 60.0)),
        acted("torn", Depart("n4", None, "why", 60.0)),
    ]
    found = exclusions(events)
    began = 1767225600.5
    assert found == {"n1": Span(began, began + 600), "n3": Span(began + 3600, began + 3660)}
    assert avoided(of_run(7, submitted=1767225700), found) == {"n1"}
    assert avoided(of_run(7, submitted=1767225600 + 3659), found) == {"n3"}
    assert avoided(of_run(7, submitted=1767225600 + 3661), found) == set()


def test_a_coordinator_that_takes_over_knows_what_was_excluded(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", SPEC)
    folder.append_event("action", action="ReplaceNode", **asdict(ReplaceNode("n7", True, "why")))

    async def take_over() -> frozenset[str]:
        coordinator = Coordinator(folder, FakeSlurm(), 5, term=2)
        coordinator._begin("host")
        return coordinator._run.replicas.excluded

    assert asyncio.run(take_over()) == {"n7"}
