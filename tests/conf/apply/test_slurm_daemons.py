"""Nodes that are drained for a change: only those that take jobs, and back to what they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctools.conf.apply.slurm_daemons import SlurmDaemons
from hpctools.errors import CommandError
from hpctools.site.daemons import DaemonCommands

STATES = {
    "IDLE": True,
    "MIXED+PLANNED": True,
    "ALLOCATED+COMPLETING": True,
    "IDLE+CLOUD+POWERED_DOWN": True,
    "IDLE+POWER_DOWN": True,
    "IDLE+NOT_RESPONDING": True,
    "IDLE*": True,
    "IDLE+DRAIN": False,
    "DOWN": False,
    "DOWN*": False,
    "DOWN+CLOUD+POWERED_DOWN": False,
    "ALLOCATED+FAIL": False,
    "ERROR": False,
    "FUTURE": False,
    "UNKNOWN+NOT_RESPONDING": True,  # it takes jobs as soon as its slurmd registers
}


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scontrol that shows what `nodes` says; the file that gets what it is told to update."""
    script = f'if [ "$1" = update ]; then echo "$*" >>{tmp_path}/told; else cat {tmp_path}/nodes; fi'
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "told"


@pytest.mark.parametrize(("state", "takes"), STATES.items())
def test_who_takes_no_jobs_is_not_drained(state: str, takes: bool, told: Path) -> None:
    """A node that somebody had set DOWN got our reason, and was IDLE after the change."""
    told.with_name("nodes").write_text(f"NodeName=n1 State={state} ThreadsPerCore=1 Reason=power [root@x]\n")
    assert SlurmDaemons(DaemonCommands(), 1).taking_jobs(["n1"]) == (("n1",) if takes else ())


def test_a_drain_is_taken_back_and_nothing_else(told: Path) -> None:
    """state=resume makes a DOWN node IDLE, and clears FAIL (update_node in Slurm's node_mgr.c)."""
    states = ("IDLE+DRAIN", "DOWN+DRAIN", "DOWN", "IDLE")
    lines = [f"NodeName=n{number} State={state} Weight=1" for number, state in enumerate(states, 1)]
    told.with_name("nodes").write_text("\n".join(lines) + "\n")
    SlurmDaemons(DaemonCommands(), 4).resume(["n1", "n2", "n3", "n4"])
    assert told.read_text() == "update nodename=n[1-2] state=undrain\n"


def test_a_refused_node_stays_drained_and_keeps_no_other_from_coming_back(told: Path) -> None:
    """slurmctld undrains none that is INVALID_REG, and then the command fails for all (node_mgr.c)."""
    states = ("IDLE+DRAIN", "IDLE+DRAIN+INVALID_REG", "IDLE+INVALID_REG")
    lines = [f"NodeName=n{number} State={state} Weight=1" for number, state in enumerate(states, 1)]
    told.with_name("nodes").write_text("\n".join(lines) + "\n")
    assert SlurmDaemons(DaemonCommands(), 3).resume(["n1", "n2", "n3"]) == ("n2",)
    assert told.read_text() == "update nodename=n1 state=undrain\n"


SINFO = """\
case " $* " in *" -t "*) echo "sinfo: error: Bad state string: \\"inval\\"" >&2; exit 1;; esac
echo "n1|idle|none"
echo "n2|inval|Low RealMemory (reported:1 < 2) | twice"
echo "n3|drained*|a reason
of two lines"
"""


def test_refused_nodes_are_seen_on_every_release(told: Path) -> None:
    """Until 25.05 sinfo takes no `-t inval`, and that it fails was taken for no such nodes."""
    _put_sinfo(told, SINFO)
    assert SlurmDaemons(DaemonCommands(), 3).sick() == {"n2": "Low RealMemory (reported:1 < 2) | twice"}


def test_a_sinfo_that_fails_is_not_no_refused_nodes(told: Path) -> None:
    _put_sinfo(told, "exit 1")
    with pytest.raises(CommandError):
        SlurmDaemons(DaemonCommands(), 3).sick()


def _put_sinfo(told: Path, script: str) -> None:
    told.with_name("sinfo").write_text(f"#!/bin/sh\n{script}\n")
    told.with_name("sinfo").chmod(0o755)
