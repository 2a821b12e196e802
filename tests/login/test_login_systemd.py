"""The agent's unit, as systemd itself judges it."""

from __future__ import annotations

import re
from pathlib import Path

import hpctools.login
from hpctools.slurm.run import run

UNIT = Path(hpctools.login.__file__).parent / "systemd/hp-login-agent.service"
MOST_EXPOSED = 3.0


def test_the_agent_is_shut_in() -> None:
    told = run(["systemd-analyze", "security", "--no-pager", "--offline=true", str(UNIT)], timeout=60).stdout
    found = re.search(r"Overall exposure level for \S+: (\d+\.\d+)", told)
    assert found, told
    assert float(found[1]) <= MOST_EXPOSED, told


def test_every_line_of_the_unit_is_understood(tmp_path: Path) -> None:
    """systemd only warns of what it does not know, and goes on without it."""
    program = tmp_path / "hp-login-agent"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/hpctools/bin/hp-login-agent", str(program)))
    verify = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)]
    done = run(verify, timeout=60, check=False)
    told = [line for line in done.stderr.splitlines() if str(tmp_path) in line or UNIT.name in line]
    assert (done.code, told) == (0, [])
