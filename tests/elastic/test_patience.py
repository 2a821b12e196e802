"""Silence that is borne: time in which we ourselves stood still is nobody's silence."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctools.elastic.patience import SLICE_SECONDS, Lines, Patience, read_line

SILENCE = 2.7


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@given(st.lists(st.sampled_from([0.01, SLICE_SECONDS, 0.4, 3.0, 600.0])))
def test_only_time_in_which_we_looked_counts(passing: list[float]) -> None:
    clock = Clock()
    patience, silent = Patience(SILENCE, clock), 0.0
    for seconds in passing:
        clock.now += seconds
        silent += min(seconds, 2 * SLICE_SECONDS)
        is_over = patience.is_over()
        if abs(silent - SILENCE) > 1e-6:
            assert is_over == (silent > SILENCE)


def test_a_word_begins_it_anew() -> None:
    clock = Clock()
    patience = Patience(SILENCE, clock)
    for _ in range(100):
        clock.now += SLICE_SECONDS
        assert not patience.is_over()
        patience.heard()
    for _ in range(int(SILENCE / SLICE_SECONDS)):
        clock.now += SLICE_SECONDS
        assert not patience.is_over()
    clock.now += SLICE_SECONDS
    assert patience.is_over()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_lines_are_whole_however_they_come(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    lines = Lines(ours)
    theirs.sendall(b"one\ntw")
    assert lines.read(10.0) == b"one\n"
    theirs.sendall(b"o\n\nfour\nfiv")
    assert [lines.read(10.0) for _ in range(3)] == [b"two\n", b"\n", b"four\n"]
    with pytest.raises(TimeoutError):
        lines.read(0.1)
    theirs.sendall(b"e\n")
    assert lines.read(10.0) == b"five\n", "what had come is not lost by a timeout"
    theirs.close()
    assert lines.read(10.0) == b""


def test_a_line_of_asyncio_is_waited_for_as_long(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair

    async def read() -> None:
        reader, writer = await asyncio.open_connection(sock=ours)
        theirs.sendall(b"one\ntw")
        assert await read_line(reader, 10.0) == b"one\n"
        with pytest.raises(asyncio.TimeoutError):
            await read_line(reader, 0.1)
        theirs.close()
        assert await read_line(reader, 10.0) == b"tw", "as asyncio gives what comes before the end"
        assert await read_line(reader, 10.0) == b""
        writer.close()

    asyncio.run(read())
