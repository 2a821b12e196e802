"""munge's own words, from the real program."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctools.slurm import munge


def test_no_munged_is_told_with_munges_words(tmp_path: Path) -> None:
    socket = tmp_path / "munge.socket"
    text = f"# AuthType=auth/none\nAuthInfo=ttl=60,socket={socket}\n"
    found = munge.trouble(text)
    words = "munge does not work on this host, so no daemon of Slurm's can be asked: munge: Error: "
    assert found.startswith(words)
    assert str(socket) in found


def test_who_has_another_authentication_needs_no_munge(tmp_path: Path) -> None:
    assert munge.trouble(f"authtype=auth/slurm\nAuthInfo=socket={tmp_path}/none\n") == ""


def test_without_the_program_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert munge.trouble("") == ""


@pytest.mark.parametrize(
    ("program", "said"),
    [("munge", "munge: Error: Rewound credential"), ("unmunge", "unmunge: Error: Invalid credential")],
)
def test_either_half_may_fail(
    program: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for name in ("munge", "unmunge"):
        words = f"echo '{said}' >&2; exit 1" if name == program else "echo MUNGE:AwQ="
        (tmp_path / name).write_text(f"#!/bin/sh\n{words}\n")
        (tmp_path / name).chmod(0o755)
    assert munge.trouble("").endswith(said)
    (tmp_path / program).write_text("#!/bin/sh\necho MUNGE:AwQ=\n")
    assert munge.trouble("") == ""
