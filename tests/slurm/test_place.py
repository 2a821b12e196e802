"""The place apart in which a preflight boots: made early, and gone again in every case."""

import os

import pytest

from hpctools.errors import CommandError
from hpctools.slurm.throwaway.place import Place


def test_a_place_that_is_never_used_leaves_nothing() -> None:
    with Place() as place:
        process = place._process
        assert process.poll() is None
    assert process.returncode is not None
    assert all(pipe is not None and pipe.closed for pipe in (process.stdin, process.stdout, process.stderr))
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_a_place_that_cannot_be_made_says_why_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpctools.slurm.throwaway.place._APART", ("unshare", "--no-such-option"))
    with Place() as place, pytest.raises(CommandError, match="unshare --help") as told:
        place.carry_out({"much": "x" * 1_000_000}, 20)  # more than a pipe holds
    assert told.value.code == 1
