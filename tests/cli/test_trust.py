"""hp-submit trust: which of the login nodes it asks about."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctools.cli.remote_submission import trust
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
    assert asked == ["10.0.0.5", "login1", "login3"]
