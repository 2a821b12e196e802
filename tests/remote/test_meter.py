"""One line of a terminal says how far files are, and is gone when something else is to be read."""

from __future__ import annotations

import io

import pytest

from hpctools.remote.meter import Meter


class Terminal(io.StringIO):
    """What a person sees of what was written: carriage returns go back to the first column."""

    def isatty(self) -> bool:
        return True

    @property
    def seen(self) -> list[str]:
        lines = []
        for line in self.getvalue().split("\n"):
            cells = ""
            for piece in line.split("\r"):
                cells = piece + cells[len(piece) :]
            lines.append(cells.rstrip())
        return lines


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_line_says_how_far_it_is() -> None:
    screen, clock = Terminal(), Clock()
    meter = Meter(screen, "hp-fetch", clock)
    meter.expect(2_500_000)
    meter.add(100_000)
    assert screen.getvalue() == ""  # soon done, perhaps
    clock.now = 1.0
    meter.add(400_000)
    assert screen.seen == ["hp-fetch: 0.5 of 2.5 MB (20 %)"]
    meter.add(500_000)
    assert screen.seen == ["hp-fetch: 0.5 of 2.5 MB (20 %)"]  # not for each piece
    clock.now = 1.3
    meter.add(0)
    assert screen.seen == ["hp-fetch: 1.0 of 2.5 MB (40 %)"]
    meter.aside(lambda text: print(text, file=screen))("hp-fetch: the line broke")
    assert screen.seen == ["hp-fetch: the line broke", ""]
    meter.expect(300)  # it goes on where it broke
    clock.now = 2
    meter.add(300)
    assert screen.seen == ["hp-fetch: the line broke", "hp-fetch: 300 of 300 bytes (100 %)"]
    meter.clear()
    assert screen.seen[1:] == [""]


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_nobody_at_a_terminal_gets_no_line(stream: io.StringIO | None) -> None:
    clock = Clock()
    meter = Meter(stream, "hp-submit", clock)
    clock.now = 9
    meter.expect(10)
    meter.add(5)
    meter.clear()
    assert stream is None or stream.getvalue() == ""
