"""Which client is taken, and the reason that is given."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from types import ModuleType

import pytest

from hpctools.errors import CommandError, ReleaseError, UsageError
from hpctools.slurm import choose as module
from hpctools.slurm.choose import Choice, choose, hindered
from hpctools.slurm.cli import CommandClient
from hpctools.slurm.native import NativeClient


def test_commands_are_taken_without_a_look_at_pyslurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: pytest.fail("looked"))
    assert taken(choose("commands", {})) == ("commands", CommandClient, "the commands were asked for")
    assert choose("pyslurm", {"HPCTOOLS_SLURM_CLIENT": "commands"}).kind == "commands"


def taken(choice: Choice) -> tuple[str, type, str]:
    return choice.kind, type(choice.client), choice.reason


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """Commands of 24.11.5 and a slurm.conf; the environment that names them."""
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho slurm-wlm 24.11.5\n")
    (tmp_path / "scontrol").chmod(0o755)
    (tmp_path / "slurm.conf").touch()
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return {"SLURM_CONF": str(tmp_path / "slurm.conf")}


def install(monkeypatch: pytest.MonkeyPatch, version: str, *, loads: bool = True) -> None:
    def load(name: str) -> ModuleType:
        if not loads:
            raise ImportError("libslurmfull.so: cannot open shared object file")
        return ModuleType(name)

    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    monkeypatch.setattr(module, "import_module", load)


def test_pyslurm_of_the_release_is_taken(monkeypatch: pytest.MonkeyPatch, slurm: dict[str, str]) -> None:
    install(monkeypatch, "24.11.0")
    for wanted in ("auto", "pyslurm"):
        found = taken(choose(wanted, slurm))
        assert found == ("pyslurm", NativeClient, "pyslurm of this release is installed")


@pytest.mark.parametrize(
    ("version", "conf", "loads", "reason"),
    [
        ("25.11.2", True, True, "pyslurm 25.11.2 is not for Slurm 24.11.5"),
        ("22.5.3", True, True, "pyslurm 22.5.3 is older than 23.02"),
        ("24.11.0", False, True, "no slurm.conf is here for pyslurm to read"),
        ("24.11.0", True, False, "pyslurm cannot be loaded: libslurmfull.so: cannot open shared object file"),
    ],
)
def test_pyslurm_that_does_not_fit_is_left_and_the_reason_told(
    monkeypatch: pytest.MonkeyPatch, slurm: dict[str, str], version: str, conf: bool, loads: bool, reason: str
) -> None:
    install(monkeypatch, version, loads=loads)
    environment = slurm if conf else {"SLURM_CONF": "/nowhere/slurm.conf"}
    assert taken(choose("auto", environment)) == ("commands", CommandClient, reason)
    with pytest.raises(ReleaseError, match=r"cluster\.slurm_client") as caught:
        choose("pyslurm", environment)
    assert reason in caught.value.message


def test_what_is_no_client_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="set it to one of: auto, commands, pyslurm"):
        choose("auto", {"HPCTOOLS_SLURM_CLIENT": "carrier pigeon"})


def test_no_commands_and_no_pyslurm() -> None:
    def gone() -> tuple[int, ...]:
        raise CommandError("cannot start scontrol", argv=["scontrol"], code=None)

    assert hindered(None, gone, configured=True) == "pyslurm is not installed"
    assert hindered("24.11.0", gone, configured=True) == "cannot start scontrol"
