"""Bringing a sandbox up: what is done when a daemon gives no answer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hpctools import site
from hpctools.errors import CommandTimeout, SandboxError
from hpctools.sandbox import blueprint, namespace, ports, record, rise, unix
from hpctools.sandbox.cluster import Sandbox
from hpctools.sandbox.process import Identity, identify
from hpctools.sandbox.record import Record
from hpctools.sandbox.rise import _Rise
from hpctools.slurm.run import Completed

NODES = "node-1 idle\nnode-2 idle\n"


class Unwilling:
    """A sandbox whose slurmctld gives no answer to so many reconfigures."""

    def __init__(self, silent: int) -> None:
        self.silent = silent
        self.asked: list[str] = []

    def inside(self, *argv: str, **options: Any) -> Completed:
        """Run a command."""
        self.asked.append(" ".join(argv[:2]))
        if argv[:2] == ("scontrol", "reconfigure") and self.silent:
            self.silent -= 1
            raise CommandTimeout("no answer within 30 s", argv=argv, code=-9)
        return Completed(argv, 0, NODES, "")


def nodes(sandbox: Unwilling) -> bool:
    """The step that waits for compute nodes, of a cluster whose files have changed."""
    return _Rise(sandbox, None, None, None)._nodes(True)  # type: ignore[arg-type]


def test_a_slurmctld_that_hangs_over_a_reconfigure_is_started_anew() -> None:
    """One of 24.11.5 did for good: asked again, it hung again."""
    willing, hanging, never = Unwilling(0), Unwilling(1), Unwilling(2)
    assert (nodes(willing), willing.asked) == (False, ["scontrol reconfigure", "sinfo -hN"])
    anew = ["scontrol reconfigure", "sandbox-restart slurmctld", "scontrol ping"]
    assert (nodes(hanging), hanging.asked) == (False, [*anew, "scontrol reconfigure", "sinfo -hN"])
    with pytest.raises(CommandTimeout):
        nodes(never)


def test_who_forgets_how_it_was_made_is_told_how_to_heal_it(tmp_path: Path) -> None:
    """And not only to take it down, which loses all that is in it."""
    sandbox, site_file = Sandbox(tmp_path / "state"), blueprint.example_site()
    assert site_file is not None
    sandbox.layout.root.mkdir()
    record.save(sandbox.layout.record, Record("x", "that of another site", 3, "none"))
    with ports.Hold() as held, pytest.raises(SandboxError, match=r"to heal it name the same .*--nodes 3; "):
        rise._settle(sandbox, "", blueprint.draw(site.load(site_file), None), "none", "", held)


def test_a_pid_that_was_noted_inside_is_none_of_the_next_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pids begin anew there: that of a slurmctld before a reboot is anybody's after it."""
    sandbox, gone = Sandbox(tmp_path / "state"), Identity(1, 1, "an earlier boot")
    sandbox.layout.logs.mkdir(parents=True)
    (sandbox.layout.logs / "slurmctld.inside").write_text(str(os.getpid()))
    monkeypatch.setattr(namespace, "create", lambda *_: identify(os.getpid()))
    monkeypatch.setattr(unix, "daemon_accounts", dict)
    with ports.Hold() as held:
        found = rise._hold(sandbox, Record("x", "", 1, "none", holder=gone), held)
    record.save(sandbox.layout.record, found.with_process("slurmctld", gone))
    assert sandbox.running().processes == {"slurmctld": gone}


def test_an_up_that_is_refused_leaves_no_lock_beside_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site_file, folder = blueprint.example_site(), tmp_path / "thesis"
    assert site_file is not None
    folder.mkdir()
    (folder / "chapter-1").touch()
    monkeypatch.setattr(rise, "_check_machine", lambda: None)
    with pytest.raises(SandboxError, match="is not empty and not a sandbox"):
        rise.up(Sandbox(folder), site_file, 1, lambda name, seconds: None)
    assert list(tmp_path.iterdir()) == [folder]
