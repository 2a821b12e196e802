"""What a person has set for their own questions changes no answer to ours."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from hpctools.conf import slurmdbd
from hpctools.conf.apply.slurm_daemons import SlurmDaemons
from hpctools.doctor import ask
from hpctools.site.daemons import DaemonCommands
from hpctools.slurm.ask import ask_commands
from hpctools.slurm.cli import CommandClient
from hpctools.slurm.environment import asking

THEIRS = {
    "SQUEUE_PARTITION": "nlp",
    "SINFO_STATE": "idle",
    "SCANCEL_INTERACTIVE": "true",
    "SACCT_FEDERATION": "1",
    "SCONTROL_LOCAL": "1",
    "SLURM_TIME_FORMAT": "relative",
    "SLURM_CLUSTERS": "other",
}


def test_what_leads_to_slurm_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**THEIRS, "SLURM_CONF": "/opt/slurm/etc/slurm.conf"}.items():
        monkeypatch.setenv(name, value)
    found = asking("%s")
    assert found["SLURM_CONF"] == "/opt/slurm/etc/slurm.conf"
    assert found["SLURM_TIME_FORMAT"] == "%s"
    assert not {name for name in THEIRS if name != "SLURM_TIME_FORMAT"} & found.keys()
    assert asking()["SLURM_TIME_FORMAT"] == "standard"


@pytest.mark.parametrize(
    "question",
    [
        lambda: CommandClient().jobs(),
        lambda: CommandClient().cancel([1]),
        lambda: CommandClient().partitions(),
        lambda: CommandClient().past_jobs(date(2026, 11, 20), date(2026, 11, 21)),
        lambda: ask_commands(["squeue"]),
        lambda: slurmdbd.tell(["sacctmgr", "show", "qos"], ""),
        lambda: ask.sacctmgr("show", "qos"),
        lambda: SlurmDaemons(DaemonCommands(), 1).sick(),
        lambda: SlurmDaemons(DaemonCommands(), 1).controller_answers(),
    ],
    ids=["jobs", "cancel", "partitions", "past jobs", "plan", "sync", "doctor", "sick", "answers"],
)
def test_every_door_asks_without_it(
    question: Callable[[], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("squeue", "scancel", "scontrol", "sinfo", "sacct", "sacctmgr"):
        (tmp_path / name).write_text(f"#!/bin/sh\nenv >{tmp_path}/env\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for name, value in THEIRS.items():
        monkeypatch.setenv(name, value)
    question()
    seen = dict(line.partition("=")[::2] for line in (tmp_path / "env").read_text().splitlines())
    assert seen["SLURM_TIME_FORMAT"] in ("standard", "%s")
    assert not {name for name in THEIRS if name != "SLURM_TIME_FORMAT"} & seen.keys()
