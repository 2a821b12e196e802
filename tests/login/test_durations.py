"""How long, in words."""

from __future__ import annotations

import time

import pytest

from hpctools.login.durations import at_clock, spelt


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-3.0, "1 second"), (0.2, "1 second"), (30, "30 seconds"), (59.4, "59 seconds"), (59.6, "1 minute"),
        (60, "1 minute"), (89, "1 minute"), (600, "10 minutes"), (3600, "1 hour"), (3590, "1 hour"),
        (5400, "90 minutes"), (7170, "2 hours"), (7300, "2 hours"), (9000, "2.5 hours"), (28_800, "8 hours"),
        (31_536_000, "8760 hours"),
    ],
)  # fmt: skip
def test_words(seconds: float, words: str) -> None:
    assert spelt(seconds) == words


def test_a_time_by_the_clock_has_its_zone_and_its_day_when_that_is_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert at_clock(1_700_003_600.0, 1_700_000_000.0) == "on 15 November at 00:13 CET"
        assert at_clock(1_700_002_800.0 - 3600, 1_700_002_799.0 - 3600) == "at 23:00 CET"
    finally:
        monkeypatch.undo()
        time.tzset()
