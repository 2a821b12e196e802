"""What hp-status will read: events, the status at most twice a second, and the rate."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from hpctools.elastic.effects import Formed
from hpctools.elastic.folder import RunFolder, RunStatus
from hpctools.elastic.journal import STATUS_SECONDS, UNMEASURED, FolderJournal
from hpctools.elastic.spec import RunSpec
from hpctools.errors import ElasticError

SPEC = RunSpec("t-1", "t", "nlp1", "", 1, 3, 1, ("true",), "/", (), "/r.sh", "now")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", SPEC)


def test_growth_becomes_joined_events_and_a_resize_once_it_is_measured(folder: RunFolder) -> None:
    journal = FolderJournal(folder, SPEC)
    journal.formed(Formed(1, ("a", "b"), (), 0, recovered=True), ["n1", "n1"])
    journal.formed(
        Formed(2, ("a", "b", "c"), ("a", "b"), 9, recovered=False, world_before=2), ["n1", "n1", "n2"]
    )
    measured = {"generation": 2, "step": 9, "pause_s": 0.1, "normal_step_s": 0.5, "phases": {"state": 0.05}}
    journal.resized({**measured, "kind": "resized"})
    journal.resized({**measured, "generation": 1})
    resize = {"from": 2, "to": 3, "recovered": False, **measured}
    assert [(event.event, event.detail) for event in folder.events()] == [
        ("joined", {"worker": "a", "node": "n1", "generation": 1}),
        ("joined", {"worker": "b", "node": "n1", "generation": 1}),
        ("joined", {"worker": "c", "node": "n2", "generation": 2}),
        ("resize", resize),
    ]
    journal.flush(0.0)
    status = folder.status()
    assert status is not None
    assert status.last_resize is not None
    when = status.last_resize["time"]
    assert abs(datetime.fromisoformat(when) - datetime.now(timezone.utc)) < timedelta(minutes=1)
    assert replace(status, updated="") == RunStatus(
        "running",
        2,
        3,
        ("n1", "n2"),
        step=9,
        min_nodes=1,
        max_nodes=3,
        last_resize={**resize, "time": when},
    )


def test_a_job_is_noted_once_whoever_tells_of_it(folder: RunFolder) -> None:
    folder.append_job("baseline", 101)
    journal = FolderJournal(folder, SPEC)
    for job_id in (102, 101, 103, 102):
        journal.job("replica", job_id)
    assert [(job.role, job.job_id) for job in folder.jobs()] == [
        ("baseline", 101),
        ("replica", 102),
        ("replica", 103),
    ]


def test_resizes_that_nobody_measures_are_told_without_a_pause(folder: RunFolder) -> None:
    """In their order, and not all of them are kept in mind."""
    journal = FolderJournal(folder, SPEC)
    for number in range(1, 100):
        journal.formed(Formed(number, ("a",), ("a",), 0, recovered=False, world_before=1), ["n1"])
    for number in (1, 99 - UNMEASURED, 100 - UNMEASURED, 99):
        journal.resized({"generation": number, "pause_s": 0.1})
    resizes = [event.detail for event in folder.events() if event.event == "resize"]
    assert [each["generation"] for each in resizes] == list(range(1, 100))
    assert [each["generation"] for each in resizes if "pause_s" in each] == [100 - UNMEASURED, 99]


def test_a_growth_that_is_undone_at_once_is_told_with_the_next_change(folder: RunFolder) -> None:
    journal = FolderJournal(folder, SPEC)
    journal.formed(Formed(1, ("a",), (), 0, recovered=True), ["n1"])
    journal.formed(Formed(2, ("a", "b"), ("a",), 9, recovered=False, world_before=1), ["n1", "n2"])
    journal.formed(Formed(3, ("a",), ("a", "b"), 10, recovered=True, world_before=2), ["n1"])
    journal.resized({"generation": 3, "step": 10, "pause_s": 0.2})
    grown, shrunk = [event.detail for event in folder.events() if event.event == "resize"]
    assert grown == {"from": 1, "to": 2, "generation": 2, "step": 9, "recovered": False}
    assert (shrunk["from"], shrunk["to"], shrunk["pause_s"]) == (2, 1, 0.2)
    assert journal.status.last_resize is not None
    assert journal.status.last_resize["generation"] == 3


def test_status_is_written_at_most_twice_a_second_and_the_last_at_once(folder: RunFolder) -> None:
    journal = FolderJournal(folder, SPEC)

    def written(now: float, step: int, *, at_once: bool = False) -> int:
        journal.change(step=step)
        journal.flush(now, at_once=at_once)
        status = folder.status()
        assert status is not None
        return status.step

    steps = [written(10.0, 1), written(10.4, 2), written(10.5, 3), written(10.6, 4, at_once=True)]
    assert steps == [1, 1, 3, 4]


def test_a_status_that_could_not_be_written_is_written_as_soon_as_it_can_be(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though nothing changes any more: a run that waits for nodes stands still for hours."""
    journal = FolderJournal(folder, SPEC)
    journal.change(step=7)
    with monkeypatch.context() as full:
        full.setattr(RunFolder, "write_status", no_space)
        journal.flush(0.0)
    assert folder.status() is None
    journal.flush(0.1)
    assert folder.status() is None, "not more often than twice a second"
    journal.flush(STATUS_SECONDS)
    status = folder.status()
    assert status is not None
    assert status.step == 7
    written = (folder.path / "status.json").stat().st_ino
    journal.flush(10.0)
    assert (folder.path / "status.json").stat().st_ino == written, "it has not changed"


def no_space(*_: object) -> None:
    raise ElasticError("cannot write status.json: No space left on device")


def test_rate_is_that_of_the_last_seconds(folder: RunFolder) -> None:
    journal = FolderJournal(folder, SPEC)
    journal.change(world_size=2)
    for second in range(20):
        journal.progressed(float(second), samples=second * (10 if second < 10 else 50))
    assert journal.status.samples_per_second == 50.0


def test_rate_falls_while_nothing_comes_and_is_0_while_nobody_trains(folder: RunFolder) -> None:
    journal = FolderJournal(folder, SPEC)
    journal.formed(Formed(1, ("a", "b"), (), 0, recovered=True), ["n1", "n2"])
    told = []
    for second in range(61):
        journal.progressed(float(second), samples=10 * min(second, 20))
        told.append(journal.status.samples_per_second)
    assert told[1:26] == [10.0] * 25, "a step may take as long as the rate is taken over"
    assert told[30] < 5
    assert told[60] < 1
    journal.progressed(61.0, samples=600)
    journal.waits(1, 2)
    journal.progressed(62.0, samples=600)
    journal.flush(62.0)
    assert (journal.status.samples_per_second, journal.status.steps_per_second) == (0.0, None)
    assert [(each.size, each.samples_per_second) for each in folder.history()] == [(0, 0.0)]


def test_of_a_script_that_asks_steps_and_their_rate_are_told(folder: RunFolder) -> None:
    journal = FolderJournal(folder, SPEC)
    journal.change(world_size=2)
    journal.asked(0.0, 4)
    assert (journal.status.step, journal.status.steps_per_second) == (4, None)
    for second in range(1, 20):
        journal.asked(float(second), 4 + second * (1 if second < 10 else 3))
    assert (journal.status.step, journal.status.steps_per_second) == (61, 3.0)
    assert journal.status.samples_per_second is None


def test_steps_grow_within_a_generation_and_begin_where_the_next_one_does(folder: RunFolder) -> None:
    journal = FolderJournal(folder, SPEC)
    journal.restored(7)
    assert journal.status.step == 7, "before anybody trains that is all that is known"
    journal.formed(Formed(1, ("a", "b"), (), 5, recovered=True), ["n1", "n1"])
    assert journal.stepped(1, 50)
    journal.restored(3)
    assert journal.status.step == 50
    assert journal.stepped(2, 51), "it is told before the last one has switched"
    journal.formed(Formed(2, ("a",), ("a", "b"), 50, recovered=False), ["n1"])
    assert not journal.stepped(1, 60)
    assert journal.status.step == 51
    journal.formed(Formed(3, ("a",), ("a",), 40, recovered=True), ["n1"])
    assert journal.status.step == 40, "who was left had an older state"
    journal.went_back(5, 30)
    assert [journal.counts(generation) for generation in (3, 4, 5)] == [False, False, True]
    assert not journal.stepped(4, 41)
    journal.formed(Formed(5, ("a",), ("a",), 28, recovered=True), ["n1"])
    assert journal.status.step == 28, "it went further back than was asked for"
