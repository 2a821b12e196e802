"""hp-submit trust: which of the login nodes it asks about."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from hpctools.cli.remote_submission import trust
from hpctools.errors import UsageError
from hpctools.remote import placement
from hpctools.remote import trust as trusting
from hpctools.remote.ssh_config import HostSettings


def test_bare_addresses_that_only_the_api_names_are_not_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No certificate speaks of them: remembered with a host CA they would be wrong hosts ever after."""
    named = ("10.0.0.5", "login1", "login3", "10.0.0.7")
    asked: list[str] = []
    monkeypatch.setattr(placement, "login_nodes", lambda *_: named)
    monkeypatch.setattr(trusting, "look", lambda settings, _: asked.append(settings.alias))
    monkeypatch.setattr(
        "hpctools.remote.ssh_config.settings", lambda node, *_: HostSettings(node, node, 22, "me")
    )
    (tmp_path / "clusters.yaml").write_text("clusters: {uni: [login1, 10.0.0.5]}\n")
    monkeypatch.setenv("HPCTOOLS_CLUSTERS", str(tmp_path / "clusters.yaml"))
    assert trust(["uni"]) == 0
    assert asked == ["login1", "10.0.0.5", "login3"]  # in the list's order, which people can compare


def test_the_next_key_comes_from_the_sites_list_and_the_end_of_input_is_a_no(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, listed = tmp_path / "known_hosts", tmp_path / "list"
    host = HostSettings("login1", "login1", 22, "me", user_known_hosts=(mine,))
    monkeypatch.setattr("hpctools.remote.ssh_config.settings", lambda *_: host)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    (tmp_path / "clusters.yaml").write_text("clusters: {uni: [login1]}\n")
    monkeypatch.setenv("HPCTOOLS_CLUSTERS", str(tmp_path / "clusters.yaml"))
    key = base64.b64encode(b"\0\0\0\x0bssh-ed25519" + b"\0\0\0\x20" + bytes(32)).decode()
    listed.write_text(f"login1 ssh-ed25519 {key}\n")

    def ctrl_d(_: str) -> str:
        raise EOFError

    assert (trust(["uni", "--from", str(listed)], ctrl_d), mine.exists()) == (1, False)
    assert trust(["uni", f"--from={listed}"], lambda _: "y") == 0
    assert mine.read_text() == listed.read_text()
    assert trust(["uni", "--from", str(listed)], ctrl_d) == 0
    assert "is known already" in capsys.readouterr().out
    listed.write_text("")
    assert trust(["uni", "--from", str(listed)], ctrl_d) == 1
    with pytest.raises(UsageError, match="cannot read"):
        trust(["uni", "--from", str(tmp_path / "missing")])


@pytest.mark.parametrize(
    ("word", "host", "port"),
    [
        ("gate:2222", "gate", 2222),
        ("[2001:db8::1]:2222", "2001:db8::1", 2222),
        ("[::1]:2222", "::1", 2222),
        ("::1", "::1", 22),
        ("gate", "gate", 22),
    ],
)
def test_a_jump_host_may_be_named_with_its_port(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    word: str,
    host: str,
    port: int,
) -> None:
    """ProxyJump names it so; ssh's configuration need not know it, and the site's API does not."""
    asked: list[tuple[str, int]] = []
    monkeypatch.setattr(trusting, "look", lambda settings, _: asked.append((settings.host, settings.port)))
    monkeypatch.setenv("HPCTOOLS_CLUSTERS", str(tmp_path / "clusters.yaml"))
    monkeypatch.setenv("HPCTOOLS_SSH_CONFIG", str(tmp_path / "config"))
    (tmp_path / "config").touch()
    assert trust([word]) == 0
    assert (asked, capsys.readouterr().out) == ([(host, port)], f"{word} is known already\n")
    listed = tmp_path / "list"
    listed.write_text("")
    assert trust([word, "--from", str(listed)]) == 1
    assert f"says nothing of {word}" in capsys.readouterr().err


def test_a_cluster_may_be_called_like_a_host_with_a_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "clusters.yaml").write_text('clusters: {"uni:22": [login1]}\n')
    monkeypatch.setenv("HPCTOOLS_CLUSTERS", str(tmp_path / "clusters.yaml"))
    asked: list[str] = []
    monkeypatch.setattr(trusting, "look", lambda settings, _: asked.append(settings.alias))
    assert (trust(["uni:22"]), asked) == (0, ["login1"])


@pytest.mark.parametrize("word", ["gate:0", "gate:99999", "[::1]:65536", "gate:123456789"])
def test_a_number_that_is_no_port_is_said_to_be_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.setenv("HPCTOOLS_CLUSTERS", str(tmp_path / "clusters.yaml"))
    with pytest.raises(UsageError, match=f"^{re.escape(repr(word))} names port [0-9]+") as raised:
        trust([word])
    assert raised.value.remedy == "a port is a number from 1 to 65535"
