"""The units of login nodes, as systemd itself judges them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hpctools.login
from hpctools.slurm.run import run

FOLDER = Path(hpctools.login.__file__).parent / "systemd"
UNIT = FOLDER / "hp-login-agent.service"
BALANCER = FOLDER / "hp-login-nlb.service"
MOST_EXPOSED = 3.0


@pytest.mark.parametrize("unit", [UNIT, BALANCER])
def test_what_runs_is_shut_in(unit: Path) -> None:
    told = run(["systemd-analyze", "security", "--no-pager", "--offline=true", str(unit)], timeout=60).stdout
    found = re.search(r"Overall exposure level for \S+: (\d+\.\d+)", told)
    assert found, told
    assert float(found[1]) <= MOST_EXPOSED, told


@pytest.mark.parametrize(
    ("names", "program"),
    [
        ((UNIT.name,), "hp-login-agent"),
        ((BALANCER.name, BALANCER.with_suffix(".timer").name), "hpctools"),
    ],
)
def test_every_line_of_the_units_is_understood(tmp_path: Path, names: tuple[str, ...], program: str) -> None:
    """systemd only warns of what it does not know, and goes on without it."""
    stand_in = tmp_path / program
    stand_in.write_text("#!/bin/sh\n")
    stand_in.chmod(0o755)
    for name in names:
        text = (FOLDER / name).read_text()
        (tmp_path / name).write_text(text.replace(f"/opt/hpctools/bin/{program}", str(stand_in)))
    units = [str(tmp_path / name) for name in names]
    done = run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *units], timeout=60, check=False
    )
    told = [
        line for line in done.stderr.splitlines() if any(name in line for name in (str(tmp_path), *names))
    ]
    assert (done.code, told) == (0, [])
