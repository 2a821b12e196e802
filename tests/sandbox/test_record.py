"""The sandbox's memory of itself."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from hpctools.errors import SandboxError
from hpctools.sandbox import record
from hpctools.sandbox.process import Identity
from hpctools.sandbox.record import Record

FULL = Record(
    id="hpctools-1",
    site_sha256="ab",
    nodes=2,
    cgroup="v1",
    ports={"slurmctld": 20000},
    holder=Identity(1, 2, "boot"),
    processes={"munged": Identity(3, 4, "boot")},
)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    for each in (FULL, Record("x", "y", 1, "none")):
        record.save(tmp_path / "record.json", each)
        assert record.load(tmp_path / "record.json") == each


def test_no_record_is_none(tmp_path: Path) -> None:
    assert record.load(tmp_path / "record.json") is None


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"id": 1}', "nonsense"])
def test_a_damaged_record_is_an_error_that_says_what_to_do(tmp_path: Path, text: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(SandboxError, match=r"is not a sandbox's record .*remove the folder"):
        record.load(path)


def test_a_process_replaces_only_its_own() -> None:
    changed = FULL.with_process("slurmd", Identity(5, 6, "boot"))
    assert changed.processes == {"munged": Identity(3, 4, "boot"), "slurmd": Identity(5, 6, "boot")}


def test_the_lock_is_exclusive_and_goes_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with (
        record.locked(path),
        pytest.raises(SandboxError, match="another command"),
        record.locked(path, wait=False),
    ):
        pytest.fail("two held the lock")
    with record.locked(path, wait=False):
        pass


@pytest.mark.parametrize(
    ("number", "remedy"),
    [(errno.EACCES, "run it with sudo, as it was made"), (errno.ENOENT, "name another folder: --state")],
)
def test_a_lock_that_may_not_be_held_is_told_with_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    """`down` without sudo: "sandbox.lock: Permission denied"."""

    def refuse(path: Path, *_: object) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(SandboxError) as told, record.locked(tmp_path / "state.lock"):
        pytest.fail("nobody holds it")
    assert str(told.value) == (
        f"the sandbox in {tmp_path}/state cannot be changed: {os.strerror(number)}; {remedy}"
    )
