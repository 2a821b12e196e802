"""Pipes that hold more than the kernel gives by itself, where it grants that."""

from __future__ import annotations

import fcntl
import os

import pytest

from hpctools.elastic.pipes import ROOM, roomy_pipe


def closed(pipe: tuple[int, int]) -> tuple[int, bool]:
    """How much a pipe holds, and whether its reading end blocks."""
    size, blocks = fcntl.fcntl(pipe[1], fcntl.F_GETPIPE_SZ), os.get_blocking(pipe[0])
    for end in pipe:
        os.close(end)
    return size, blocks


def test_a_pipe_is_roomy_and_is_read_without_waiting() -> None:
    assert closed(roomy_pipe()) == (ROOM, False)


def test_a_user_with_many_pipes_gets_an_ordinary_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "fcntl", refused)
        pipe = roomy_pipe()
    size, blocks = closed(pipe)
    assert 0 < size < ROOM
    assert not blocks
