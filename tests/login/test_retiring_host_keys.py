"""The last step of a change of host keys: the old key goes when no sshd shows it any more."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from hpctools.cli import login_host_keys as cli
from hpctools.errors import HpctoolsError, UsageError
from hpctools.login.host_keys import KeyFolder
from tests.login.test_host_keys import Door, etc_ssh, fingerprints, kept

__all__ = ["kept"]


def test_the_old_key_goes_when_every_node_shows_the_new_one(kept: KeyFolder, tmp_path: Path) -> None:
    """Each of them has both already, before it is told which one to show."""
    places = [tmp_path / name for name in ("login-1", "login-2")]
    kept.begin_rotation()
    for each in places:
        kept.install(etc_ssh(each), each.name)
    kept.finish_rotation()
    kept.install(places[0], "login-1")
    with pytest.raises(HpctoolsError, match=r"show the new keys before the old ones go, and login-2 did not"):
        kept.retire()
    assert "then again --retire" in command("rotate", str(kept.path), "--retire")
    shown = command("show", str(kept.path))
    assert ("node              login-1" in shown, "node, has others  login-2" in shown) == (True, True)
    kept.install(places[1], "login-2", reload=lambda changed: not changed)
    with pytest.raises(HpctoolsError, match=r"and login-2 did not say so"):
        kept.retire()
    kept.install(places[1], "login-2", reload=lambda changed: not changed)
    command("rotate", str(kept.path), "--retire")
    assert set(fingerprints(kept)) == {"now"}
    kept.install(places[0], "login-1")
    assert not (places[0] / "ssh_host_ed25519_key.before").exists()


def command(*words: str) -> str:
    """What `hpctools login host-keys` says, and what its error says to do."""
    done = CliRunner().invoke(cli.host_keys, words)
    return f"{done.output}{done.exception or ''}{getattr(done.exception, 'remedy', '')}"


def test_a_node_has_keys_only_when_its_sshd_has_read_them(
    kept: KeyFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh = etc_ssh(tmp_path / "ssh")
    monkeypatch.setattr(cli, "_SSH", ssh)
    kept.begin_rotation()
    argv = ("install", str(kept.path), "--to", str(ssh))
    systemctl(tmp_path, monkeypatch, "exit 1")
    said = command(*argv)
    assert ("neither ssh nor sshd was reloaded" in said, "--reloaded" in said) == (True, True)
    with pytest.raises(HpctoolsError, match="did not say so"):
        kept.finish_rotation()
    assert list(kept.installed().values()) == [frozenset()]
    command(*argv, "--reloaded")
    assert [len(prints) for prints in kept.installed().values()] == [2]
    kept.finish_rotation()
    assert "this node is waited for: reload its sshd" in command(*argv, "--reloaded"), "keys have just come"
    assert list(kept.installed().values()) == [frozenset()]
    systemctl(tmp_path, monkeypatch, f'echo "$*" >>{tmp_path}/called; [ "$2" = sshd ]')
    command(*argv)
    assert (tmp_path / "called").read_text() == "reload ssh\nreload sshd\n"
    assert set(kept.showing().values()) == {frozenset({fingerprints(kept)["now"]})}


def test_the_first_command_of_an_authority_makes_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "authority"
    assert command("authority", str(folder)).startswith("ssh-ed25519 ")
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)
    assert "is not a folder for you alone" in command("authority", str(folder))
    assert f"make {tmp_path}/no first" in command("authority", str(tmp_path / "no/authority"))
    assert "name the folder of host keys" in command("authority", str(tmp_path / "typo"), "--next")


def test_each_step_twice_or_too_early_names_the_next_one(kept: KeyFolder) -> None:
    def refused(step: Callable[..., object]) -> str:
        with pytest.raises(UsageError) as caught:
            step(force=True)
        return str(caught.value).rpartition(" ")[2]

    assert (refused(kept.finish_rotation), refused(kept.retire)) == ("--begin", "--begin")
    kept.begin_rotation()
    assert refused(kept.retire) == "--finish"
    kept.finish_rotation(force=True)
    assert refused(kept.finish_rotation) == "--retire"
    with pytest.raises(UsageError, match=r"is not over: .* --retire$"):
        kept.begin_rotation()
    kept.retire(force=True)
    assert (refused(kept.finish_rotation), refused(kept.retire)) == ("--begin", "--begin")


def systemctl(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """A systemctl before all others."""
    file = folder / "bin/systemctl"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{file.parent}:{os.environ['PATH']}")


def test_nobody_is_warned_by_a_node_that_has_not_installed_after_the_end(
    kept: KeyFolder, tmp_path: Path
) -> None:
    """Behind one name: who comes to a node with the new key goes to one that still shows the old one next."""
    kept.begin_rotation()
    first, second = doors = [Door(kept, tmp_path / name, name) for name in ("login-1", "login-2")]
    first.known.write_text(kept.known_hosts(["login.uni.example"]))
    try:
        for door in doors:
            door.known, door.options = first.known, ["HostKeyAlias=login.uni.example"]
            door.serve()
        kept.finish_rotation()
        first.serve()
        assert first.come().stdout == "in\n"
        assert second.come().stdout == "in\n", "it shows the old key as long as nothing is installed"
        second.serve()
        kept.retire()
        first.serve()
        assert first.come().stdout == "in\n"
        assert len(first.known.read_text().splitlines()) == 1
        assert second.come().stdout == "in\n", "it proves the old key, and shows the new one"
    finally:
        for door in doors:
            door.end()
