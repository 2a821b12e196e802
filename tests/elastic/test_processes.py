"""What an agent keeps of its workers' last words."""

from __future__ import annotations

import asyncio
import json
import os

import pytest

from hpctools.elastic.processes import LINE_CHARACTERS, TAIL_LINES, LastWords
from hpctools.elastic.protocol import LINE_LIMIT


def heard(*said: bytes) -> list[str]:
    """The last words of who says this."""

    async def listen() -> list[str]:
        words = LastWords()
        with words.writing() as pipe:
            for chunk in said:
                await asyncio.to_thread(_write, pipe, chunk)
        await words.spoken(30.0)
        return list(words.tail)

    return asyncio.run(listen())


def _write(pipe: int, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(pipe, view) :]


def test_the_last_lines_are_kept_however_they_come() -> None:
    lines = [f"line {number}" for number in range(TAIL_LINES + 5)]
    assert heard(*(line.encode() + b"\n" for line in lines)) == lines[5:]
    assert heard(b"one\ntw", b"o\r\n\n", b"three, without an end") == ["one", "two", "three, without an end"]


def test_of_a_progress_bar_its_last_state_is_kept() -> None:
    bar = b"".join(b"\rstep %d" % number for number in range(1000))
    assert heard(bar + b"\n", bar + b"\r", b"Killed\n") == ["step 999", "Killed"]


@pytest.mark.parametrize("word", ["\u2588", "\0", "x"])
def test_words_without_end_fit_into_a_message(word: str) -> None:
    """A line that is too long for the coordinator would cost the agent its place in the run."""
    endless = word.encode() * (1 << 21)
    tail = heard(endless, *([b"\n" + endless[: 1 << 18]] * TAIL_LINES))
    assert len(tail) == TAIL_LINES
    assert {len(line) for line in tail} == {LINE_CHARACTERS}
    assert len(json.dumps({"kind": "exited", "worker": "w", "code": 1, "tail": tail})) < LINE_LIMIT / 4
