"""The site file while it changes: what counts meanwhile, who reads it, and how often."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hpctools.site
from api.services.site_file import SiteFile
from hpctools.errors import SiteError

BROKEN = "nonsense: ["
SECONDS = 60


class Loads:
    """Counts who loads, and has them wait where a test wants to look meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[int] = []
        self.go = threading.Event()
        self.go.set()
        self.begun = threading.Event()
        load = hpctools.site.load

        def counted(path: Path) -> Any:
            self.threads.append(threading.get_ident())
            self.begun.set()
            assert self.go.wait(SECONDS)
            return load(path)

        monkeypatch.setattr(hpctools.site, "load", counted)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Loads:
    return Loads(monkeypatch)


@pytest.fixture
def path(site_path: Path, tmp_path: Path) -> Path:
    made = tmp_path / "site.yaml"
    made.write_bytes(site_path.read_bytes())
    return made


class Clock:
    """Moves when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def limited(path: Path, sessions: int) -> None:
    text = path.read_text().replace("max_sessions_per_user: 4", f"max_sessions_per_user: {sessions}")
    path.write_text(text)


def test_a_change_is_read_beside_and_what_was_said_before_counts_until_then(path: Path, loads: Loads) -> None:
    """It was read by whoever asked next: in the event loop, which stood still meanwhile."""
    threads: list[threading.Thread] = []

    def beside(work: Callable[[], None]) -> None:
        threads.append(threading.Thread(target=work, daemon=True))
        threads[-1].start()

    site_file = SiteFile(path, "NetAmortizedCost", beside=beside)
    assert not site_file.is_known
    before = site_file.in_force()
    assert site_file.is_known
    loads.go.clear()
    loads.begun.clear()
    limited(path, 7)
    assert site_file.in_force() is before
    assert loads.begun.wait(SECONDS)
    assert site_file.in_force() is before
    loads.go.set()
    (thread,) = threads
    thread.join(SECONDS)
    assert site_file.in_force().rules.per_user == 7
    assert site_file.in_force().site is site_file.current()
    assert loads.threads == [threading.get_ident(), thread.ident]


def test_a_file_that_cannot_be_used_is_read_once_in_ten_seconds(
    path: Path, loads: Loads, caplog: pytest.LogCaptureFixture
) -> None:
    clock, good = Clock(), path.read_text()
    site_file = SiteFile(path, "NetAmortizedCost", clock, beside=lambda work: work())
    before = site_file.in_force()
    path.write_text(BROKEN)
    del loads.threads[:]
    for _ in range(3):
        assert site_file.in_force() is before
        assert site_file.people() is before.people
        with pytest.raises(SiteError, match=r"site\.yaml:1"):
            site_file.current()
        clock.now += 3
    assert len(loads.threads) == 1
    clock.now += 3
    assert site_file.in_force() is before
    assert len(loads.threads) == 2
    assert len([each for each in caplog.messages if "logins go by what it said before" in each]) == 1
    path.write_text(good)
    limited(path, 7)
    site_file.in_force()
    assert site_file.in_force().rules.per_user == 7


def test_a_file_that_is_gone_is_said_once_and_what_it_said_counts(
    path: Path, loads: Loads, caplog: pytest.LogCaptureFixture
) -> None:
    site_file = SiteFile(path, "NetAmortizedCost", Clock(), beside=lambda work: work())
    before = site_file.in_force()
    path.unlink()
    for _ in range(3):
        assert site_file.in_force() is before
        with pytest.raises(SiteError, match="cannot read the site file"):
            site_file.current()
    assert len([each for each in caplog.messages if "cannot read the site file" in each]) == 1
    assert len(loads.threads) == 1


def test_what_nobody_thought_of_keeps_no_login_waiting_and_is_told_with_its_place(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    site_file = SiteFile(path, "NetAmortizedCost", Clock(), beside=lambda work: work())
    before = site_file.in_force()

    def fail(path: Path) -> Any:
        raise TypeError("of our own")

    monkeypatch.setattr(hpctools.site, "load", fail)
    limited(path, 7)
    for _ in range(3):
        assert site_file.in_force() is before
    assert "Traceback" in caplog.text
    assert len(caplog.messages) == 1
    with pytest.raises(SiteError, match="of our own"):
        site_file.current()


def test_a_file_that_never_could_be_used_is_waited_for_and_not_read_by_each_who_asks(
    path: Path, loads: Loads
) -> None:
    clock = Clock()
    path.write_text(BROKEN)
    site_file = SiteFile(path, "NetAmortizedCost", clock)
    for ask in (site_file.in_force, site_file.people, site_file.current):
        with pytest.raises(SiteError):
            ask()
    assert (site_file.is_known, len(loads.threads)) == (False, 1)


def test_without_another_thread_the_next_question_tries_again(path: Path) -> None:
    tried = []

    def none(work: Callable[[], None]) -> None:
        tried.append(work)
        raise RuntimeError("can't start new thread")

    site_file = SiteFile(path, "NetAmortizedCost", beside=none)
    before = site_file.in_force()
    limited(path, 7)
    assert [site_file.in_force() is before for _ in range(2)] == [True, True]
    assert len(tried) == 2
