"""How long, in words."""

from __future__ import annotations

import pytest

from hpctools.login.durations import spelt


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
