"""What the coordinator takes for the training's speed when it names the step at which all switch."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from test_membership import started

from hpctools.elastic.context import PACE_SECONDS, PACED_SECONDS, RunContext
from hpctools.elastic.fence import Fence
from hpctools.elastic.folder import RunFolder
from hpctools.elastic.growth_history import Payback
from hpctools.elastic.journal import FolderJournal
from hpctools.elastic.replicas import Replicas
from hpctools.elastic.spec import RunSpec
from hpctools.testing.slurm import FakeSlurm

SPEC = RunSpec("t-1", "t", "nlp1", "", 1, 3, 1, ("true",), "/", (), "/r.sh", "now")


@pytest.fixture
def run(tmp_path: Path) -> RunContext:
    return asyncio.run(_made(tmp_path))


async def _made(tmp_path: Path) -> RunContext:
    folder = RunFolder.create(tmp_path / "run", SPEC)
    fence = Fence(folder, 1)
    journal = FolderJournal(folder, SPEC, fence)
    replicas = Replicas(FakeSlurm(), SPEC, journal)
    return RunContext(folder, SPEC, 1, fence, journal, started("ab"), replicas, Payback())


def test_beats_that_are_heard_in_one_moment_are_no_speed(run: RunContext) -> None:
    """The coordinator stood still: five steps within a tenth of a millisecond would be 50,000 a second."""
    run.note_progress(10.0, 100, 0)
    run.note_progress(10.0001, 105, 0)
    assert (run.membership.facts.pace, dict(run.membership.facts.rates)) == (0.0, {})
    run.note_progress(10.0 + PACED_SECONDS, 120, 0)
    assert run.membership.facts.pace == run.membership.facts.rates[2] == pytest.approx(20)


def test_the_speed_is_that_of_the_last_seconds_and_on_the_whole_it_is_known_beside(run: RunContext) -> None:
    """A minute of quick steps, four minutes of evaluation, and then slow ones."""
    for tick in range(61):
        run.note_progress(float(tick), 10 * tick, 0)
    assert run.membership.facts.pace == pytest.approx(10)
    for tick in range(61, 301):
        run.note_progress(float(tick), 600, 0)
    assert run.membership.facts.pace < 1
    for tick in range(301, 301 + 2 * round(PACE_SECONDS)):
        run.note_progress(float(tick), 600 + 4 * (tick - 300), 0)
    assert run.membership.facts.pace == pytest.approx(4)
    assert run.membership.facts.rates[2] < 3


def test_at_another_size_the_speed_is_not_known_for_a_while(run: RunContext) -> None:
    for tick in range(9):
        run.note_progress(float(tick), 10 * tick, 0)
    run.membership.members = ("a",)
    run.note_progress(8.5, 84, 0)
    assert run.membership.facts.pace == 0
    assert run.membership.facts.rates == {2: pytest.approx(10)}
