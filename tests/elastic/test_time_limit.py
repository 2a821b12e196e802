"""The run's end: known without replicas too, and after Slurm has forgotten the baseline job."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest
from test_replicas import Scene, of_run

from hpctools.elastic import replicas
from hpctools.elastic.coordinator import Coordinator
from hpctools.elastic.deciding import GrowthFacts, Verdict
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.journal import FolderJournal
from hpctools.elastic.peers import Outcome
from hpctools.elastic.spec import RunSpec
from hpctools.elastic.time_limit import TimeLimit
from hpctools.testing.slurm import FakeSlurm

SPEC = RunSpec("t-1", "t", "nlp1", "", 1, 3, 1, ("true",), "/", (), "/r.sh", "now")
NOW = 1_000_000  # of the scene's wall clock, in the beginning


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(replicas, "LOOK_SECONDS", 0.005)
    script = tmp_path / "replica.sh"
    script.write_text("#!/bin/sh\n")
    return script


def test_a_run_of_fixed_size_knows_its_end(script: Path) -> None:
    scene = Scene(script, sizes=(4,), baseline=5)
    scene.slurm.queue[5] = of_run(5, "high")
    scene.act(lambda: scene.until(lambda: scene.replicas.end == NOW + 3600))
    assert scene.journal.limits == [TimeLimit(5, NOW + 3600, 60)]


def test_another_baseline_that_waits_has_what_the_lost_one_had_left(script: Path) -> None:
    """It waits for longer than that: what it has then is still the half hour."""
    scene = Scene(script, sizes=(4,), baseline=5)
    scene.slurm.queue[5] = of_run(5, "high")

    async def is_replaced() -> None:
        await scene.until(lambda: scene.replicas.end is not None)
        scene.now = 1800
        scene.replicas.ends_with(6)
        assert scene.replicas.end is None
        scene.now = 4000
        assert scene.replicas.end_if_begun(NOW + 4000) == NOW + 4000 + 1800

    async def begins() -> None:
        scene.slurm.queue[6] = of_run(6, "high", started=NOW + 4000, time_limit=30)
        await scene.until(lambda: scene.replicas.end == NOW + 5800)

    scene.act(is_replaced, begins)
    assert scene.journal.limits[1:] == [TimeLimit(6, None, 30), TimeLimit(6, NOW + 5800, 30)]


def test_the_end_is_still_known_when_slurm_has_forgotten_the_job(script: Path) -> None:
    scene = Scene(script, sizes=(4,), baseline=5)
    scene.slurm.queue[5] = of_run(5, "high")

    async def forget() -> None:
        await scene.until(lambda: scene.replicas.end is not None)
        del scene.slurm.queue[5]
        scene.now += 100
        await asyncio.sleep(0.05)

    scene.act(forget)
    assert scene.replicas.end == NOW + 3600


def end_known_to_a_coordinator(folder: RunFolder, term: int) -> float | None:
    async def appoint() -> float | None:
        return Coordinator(folder, FakeSlurm(), 5, term)._run.replicas.end

    return asyncio.run(appoint())


def test_a_coordinator_that_takes_over_knows_the_end_from_the_folder(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", SPEC)
    folder.append_job("baseline", 5)
    FolderJournal(folder, SPEC).time_limit(TimeLimit(5, 1234.5, 60))
    assert folder.time_limit() == TimeLimit(5, 1234.5, 60)
    assert end_known_to_a_coordinator(folder, 2) == 1234.5
    folder.append_job("baseline", 6)  # of which nothing is known yet
    assert end_known_to_a_coordinator(folder, 2) is None


@pytest.mark.parametrize("mode", ["live", "restart"])
def test_growing_knows_how_much_time_is_left(tmp_path: Path, mode: str) -> None:
    """In both modes: of an hour, and of ten seconds in which no restart pays."""
    for name, seconds, grows in (("long", 3600.0, True), ("short", 10.0, False)):
        folder = RunFolder.create(tmp_path / name, replace(SPEC, mode=mode, time_limit_s=seconds))

        async def judge(folder: RunFolder = folder) -> Verdict:
            run = Coordinator(folder, FakeSlurm(), 5, 1)._run
            run.payback.history.paused(8.0)
            if mode == "live":
                return run.payback.judge(10.0, 1, 2, GrowthFacts(0.0, 0.0))
            growing = run.restart._generations._growing  # type: ignore[union-attr]
            return growing.judge(1000.0, 1, 2, began=0.0, came=[900.0], calls=5)

        verdict = asyncio.run(judge())
        assert verdict.grow is grows
        assert verdict.numbers["time_left_s"] == pytest.approx(seconds, abs=5)


@pytest.mark.parametrize("ends", [False, True])
def test_a_run_that_ends_grows_no_more(tmp_path: Path, ends: bool) -> None:
    """While it is saved it would be in the way; the newcomers end with all others."""

    async def judge() -> Verdict:
        run = Coordinator(RunFolder.create(tmp_path / "run", SPEC), FakeSlurm(), 5, 1)._run
        if ends:
            run.end(Outcome("cancelled", "why"))
        return run.payback.judge(10.0, 1, 2, GrowthFacts(0.0, 0.0))

    assert asyncio.run(judge()).grow is not ends


def test_the_first_coordinator_goes_by_the_submission_until_slurm_answers(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", replace(SPEC, time_limit_s=600.0))
    end = end_known_to_a_coordinator(folder, 1)
    assert end == pytest.approx(time.time() + 600, abs=60)
    assert end_known_to_a_coordinator(folder, 2) is None  # the job began long ago, and nobody knows when


@pytest.mark.parametrize("set_back", [0, 5])
def test_a_baseline_that_was_lost_while_it_waited_is_submitted_with_its_own_limit(
    set_back: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with the whole time again, which its options name, nor with more where a clock is set back."""
    true = time.time
    monkeypatch.setattr(time, "time", lambda: true() - set_back)
    script = tmp_path / "baseline.sh"
    script.write_text("#!/bin/sh\n")
    spec = replace(SPEC, baseline_options=("--time=60",), baseline_script=str(script))
    folder, slurm = RunFolder.create(tmp_path / "run", spec), FakeSlurm()
    folder.append_job("baseline", 5)
    folder.write_time_limit(TimeLimit(5, None, 30))
    folder.claim_term(2, agent="r7")

    async def look() -> None:
        coordinator = Coordinator(folder, slurm, 7, term=2)
        await coordinator._baseline._look()
        assert await coordinator._scribe.has_written(20.0)

    asyncio.run(look())
    assert [each.options for each in slurm.submitted] == [("--time=60", "--time=30")]
    assert folder.time_limit() == TimeLimit(slurm.submitted[0].job_id, None, 30)
