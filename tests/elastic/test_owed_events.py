"""Events while the disk is full: all are written when it is not any more, in order, once, up to a bound."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctools.elastic.folder import Event, RunFolder
from hpctools.elastic.journal import STATUS_SECONDS, FolderJournal
from hpctools.elastic.owed_events import AT_ONCE, MOST, OwedEvents
from hpctools.elastic.spec import RunSpec
from hpctools.errors import ElasticError

SPEC = RunSpec("t-1", "t", "nlp1", "", 1, 3, 1, ("true",), "/", (), "/r.sh", "now")


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run", SPEC)


class Disk:
    """The events of a run's folder lie on one that can be full."""

    def __init__(self, folder: RunFolder) -> None:
        self._file, self._aside = folder.path / "events.jsonl", folder.path / "aside"

    def fill(self) -> None:
        self._file.rename(self._aside)
        self._file.symlink_to("/dev/full")

    def free(self) -> None:
        self._aside.replace(self._file)


def names(folder: RunFolder) -> list[str]:
    return [event.event for event in folder.events()]


def test_events_of_a_full_disk_are_written_when_there_is_room_and_only_once(
    folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    journal, disk = FolderJournal(folder, SPEC), Disk(folder)
    journal.event("first")
    disk.fill()
    journal.event("second", why="it happened")
    journal.event("third")
    journal.flush(0.0)
    disk.free()
    journal.flush(STATUS_SECONDS / 2)
    assert names(folder) == ["first"], "it is tried twice a second"
    journal.flush(STATUS_SECONDS)
    journal.flush(2 * STATUS_SECONDS)
    journal.event("fourth")
    assert names(folder) == ["first", "second", "third", "fourth"]
    assert folder.events()[1].detail == {"why": "it happened"}
    times = [event.time for event in folder.events()]
    assert times == sorted(times), "when they happened, not when they were written"
    assert capsys.readouterr().err.count("No space left on device") == 1


def test_an_event_after_the_disk_has_room_again_brings_those_before_it(folder: RunFolder) -> None:
    journal, disk = FolderJournal(folder, SPEC), Disk(folder)
    journal.event("first")
    disk.fill()
    journal.event("second")
    disk.free()
    journal.event("third")
    assert names(folder) == ["first", "second", "third"]


def test_who_is_not_in_office_any_more_writes_nothing_of_it(folder: RunFolder) -> None:
    class Office:
        held = True

        def holds(self) -> bool:
            return self.held

    office, disk = Office(), Disk(folder)
    journal = FolderJournal(folder, SPEC, office)
    journal.event("first")
    disk.fill()
    journal.event("second")
    disk.free()
    office.held = False
    journal.flush(0.0, at_once=True)
    assert names(folder) == ["first"]


class SmallDisk:
    """Takes so many events more."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.written: list[Event] = []

    def append_events(self, *events: Event) -> None:
        if len(events) > self.room:
            raise ElasticError("cannot write events.jsonl: No space left on device")
        self.room -= len(events)
        self.written += events


def given(owed: OwedEvents, *numbers: int) -> None:
    for number in numbers:
        with pytest.raises(ElasticError):
            owed.add(Event(f"{number:05}", "thing", {"number": number}))


def test_of_too_many_the_oldest_go_and_it_is_said_how_many() -> None:
    disk = SmallDisk(0)
    owed = OwedEvents(disk)
    given(owed, *range(MOST + 3))
    disk.room = MOST + 1
    owed.write()
    assert not owed.any
    warning, *others = disk.written
    assert (warning.time, warning.event) == ("00002", "warning"), "where the missing ones would be"
    assert warning.detail["message"].startswith("3 event(s) before this one are missing")
    assert [event.detail["number"] for event in others] == list(range(3, MOST + 3))


def test_a_disk_that_is_full_again_in_between_gets_each_event_once() -> None:
    disk = SmallDisk(0)
    owed = OwedEvents(disk, most=3 * AT_ONCE)
    given(owed, *range(3 * AT_ONCE + 1))
    for room in (1, AT_ONCE, AT_ONCE // 2):
        disk.room = room
        with pytest.raises(ElasticError):
            owed.write()
    disk.room = 10 * AT_ONCE
    owed.write()
    assert [event.detail.get("number") for event in disk.written] == [None, *range(1, 3 * AT_ONCE + 1)]


def test_an_event_that_can_never_be_written_keeps_no_other() -> None:
    disk = SmallDisk(10)
    owed = OwedEvents(disk)
    with pytest.raises(TypeError):
        owed.add(Event("0", "broken", {"what": object()}))
    owed.add(Event("1", "sound", {}))
    assert [event.event for event in disk.written] == ["sound"]
