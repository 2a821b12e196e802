"""The parts of the snapshot's edge that can be tried without daemons."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from datetime import datetime
from pathlib import Path

import pytest

from hpctools.doctor import ask, host
from hpctools.doctor.conf_lines import settings
from hpctools.doctor.installation import Accounting, Missing, Slurmdbd
from hpctools.doctor.read import read
from hpctools.doctor.registry import diagnose
from hpctools.errors import CommandTimeout, HpctoolsError, UnreachableError

STATS = """\
sacctmgr show stats output at Sat Nov 21 15:14:05 2026 (1795274045)
Data since                    Sat Nov 21 15:13:53 2026 (1795274033)
Internal DBD rollup last ran Sat Nov 21 15:13:53 2026 (1795274033)
"""


def test_slurmdbd_is_read_off_its_configuration_and_statistics() -> None:
    config = "SLURM_VERSION = 24.11.5\nSLURMDBD_VERSION       = 22.05.8\n"
    assert ask.read_slurmdbd(config, STATS) == Slurmdbd("22.05.8", 1795274045, 1795274033, 1795274033)
    never = STATS.replace("ran Sat Nov 21 15:13:53 2026 (1795274033)", "ran Thu Jan 01 00:00:00 1970 (0)")
    assert ask.read_slurmdbd(config, never).rolled_up is None
    with pytest.raises(HpctoolsError, match="cannot be read"):
        ask.read_slurmdbd("", STATS)


def test_accounts_of_this_cluster_only_and_broken_rows_left_out() -> None:
    found = ask.read_accounting(
        "uni",
        clusters="uni|10.0.0.1\nold|\n",
        qos="normal\nhigh\n",
        accounts="nlp|head,gone\nelsewhere|x\nroot|\n",
        associations="uni|root|\nuni|nlp|\nuni|nlp|head\nold|elsewhere|x\nuni|nlp|a|b\n",
        users="head|nlp\nx|\n",
    )
    assert found == Accounting(
        cluster_hosts={"uni": "10.0.0.1", "old": ""},
        qos=frozenset({"normal", "high"}),
        accounts={"nlp": ("head", "gone"), "root": ()},
        members=frozenset({("head", "nlp")}),
        default_accounts={"head": "nlp", "x": ""},
    )


def test_silence_is_told_apart_from_refusal() -> None:
    def fails(error: Exception) -> object:
        def ask_it() -> None:
            raise error

        return ask.see(ask_it)

    assert fails(UnreachableError("away")) == Missing("away", unreachable=True)
    assert fails(CommandTimeout("slow", argv=["x"], code=None)) == Missing("slow", unreachable=True)
    assert fails(HpctoolsError("no")) == Missing("no")
    assert fails(PermissionError(13, "Permission denied", "/x")) == Missing("/x: Permission denied")


def test_the_folder_with_what_it_includes(tmp_path: Path) -> None:
    folder, outside = tmp_path / "slurm", tmp_path / "outside"
    folder.mkdir()
    outside.write_text('ClusterName="uni" # ours\nInclude gone.conf\n')
    (folder / "slurm.conf").write_text(f"include {outside}\nKillWait=30 \\\n  MessageTimeout=20\n")
    (folder / "slurm.key").write_text("secret")
    (folder / "slurm.key").chmod(0o400)
    (folder / "notes.txt").write_text("nothing of Slurm")
    files = {file.path: file for file in host.files(folder)}
    assert set(files) == {"slurm.conf", "slurm.key", str(outside), "gone.conf"}
    assert (files["gone.conf"].there, files["slurm.key"].text, files["slurm.key"].mode) == (
        False,
        None,
        0o400,
    )
    assert settings(tuple(files.values()), "slurm.conf") == {
        "clustername": "uni", "killwait": "30", "messagetimeout": "20",
    }  # fmt: skip
    with pytest.raises(HpctoolsError, match=r"holds no slurm\.conf"):
        host.files(tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        "slurmctld version 24.11.5 started",
        "Processing Reconfiguration Request",
        "Reconfigure signal (SIGHUP) received",
    ],
)
def test_the_log_begins_where_slurmctld_last_read_its_files(tmp_path: Path, words: str) -> None:
    log = tmp_path / "slurmctld.log"
    old = (
        "[2026-11-21T14:00:00.000] slurmctld version 24.11.5 started on cluster uni\n[...] error: long ago\n"
    )
    log.write_text(old + f"[2026-11-21T15:00:00.250] {words}\n[...] error: now\n")
    lines = host.log(log)
    assert lines == (f"[2026-11-21T15:00:00.250] {words}", "[...] error: now")
    assert host.beginning(lines) == datetime(2026, 11, 21, 15, 0, 0, 250_000).timestamp()
    assert host.beginning(("[2026-11-21T15:00:00.250] chatter",)) is None
    assert host.beginning((f"Nov 21 15:00:00 {words}",)) is None
    assert host.beginning(()) is None


def test_names_that_resolve_and_those_that_do_not() -> None:
    names = ["localhost", "127.0.0.1", "::1", "no-such-host.invalid", "no-such-host.invalid", "x" * 300]
    assert host.unresolved(names) == ("no-such-host.invalid", "x" * 300)
    assert host.unresolved([]) == ()


def test_the_state_folder_and_whose_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    (tmp_path / "clustername").write_text("uni|751")
    state = host.state(tmp_path)
    assert (state.path, state.mode) == (str(tmp_path), 0o750)
    assert state.free_bytes > 0
    assert state.kind not in ("", "unknown")
    assert host.state_of(tmp_path) == "uni"
    (tmp_path / "clustername").unlink()
    assert host.state_of(tmp_path) == ""


def test_stacks_that_call_pam_slurm_adopt(tmp_path: Path) -> None:
    (tmp_path / "sshd").write_text("# pam_slurm_adopt\n-account required pam_slurm_adopt.so\n")
    (tmp_path / "login").write_text("#account required pam_slurm_adopt.so\n")
    assert host.adopts(tmp_path) == (str(tmp_path / "sshd"),)
    assert host.adopts(tmp_path / "none") == ()


def test_users_that_nobody_knows_and_folders_of_compute_nodes_only() -> None:
    assert host.strangers(["root", "nobody-of-this-name", "root"]) == ("nobody-of-this-name",)
    assert host.paths(["/tmp"], []) == {}


@pytest.mark.parametrize("name", ["slurmd", "slurmd-wlm"])
def test_a_daemon_is_seen_by_either_of_its_names(tmp_path: Path, name: str) -> None:
    """From 24.11 on Debian's slurmd runs under the name of its file."""
    shutil.copy(shutil.which("sleep") or "", tmp_path / name)
    process = subprocess.Popen([tmp_path / name, "60"])
    try:
        while Path(f"/proc/{process.pid}/comm").read_text().strip() != name:
            time.sleep(0.01)  # the kernel names it a moment after it has begun
        mine = [daemon for daemon in host.daemons() if daemon.pid == process.pid]
    finally:
        process.kill()
        process.wait()
    assert [daemon.name for daemon in mine] == ["slurmd"]
    assert host.paths([str(tmp_path), f"{tmp_path}/none"], mine) == {
        str(tmp_path): True,
        f"{tmp_path}/none": False,
    }


def test_a_machine_without_slurm_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder, no command: a whole snapshot all the same, in which everything of Slurm is missing."""
    monkeypatch.setenv("PATH", str(tmp_path))
    seen = read(tmp_path / "none")
    for part in ("controllers", "config", "nodes", "jobs", "slurmdbd", "accounting", "files", "state", "log"):
        assert isinstance(getattr(seen, part), Missing), part
    report = diagnose(seen)
    assert (report.findings, report.exit_code) == ((), 3)
    assert not list(tmp_path.iterdir())
    assert os.environ["PATH"] == str(tmp_path)
