"""The units that we ship, as systemd itself judges them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import api
from hpctools.slurm.run import run

UNITS = Path(api.__file__).parent / "systemd"
MOST_EXPOSED = 2.0


@pytest.mark.parametrize("unit", ["hpctools-api.service", "hpctools-api-backup.service"])
def test_a_service_is_shut_in_tightly(unit: str) -> None:
    security = ["systemd-analyze", "security", "--no-pager", "--offline=true", str(UNITS / unit)]
    told = run(security, timeout=60).stdout
    found = re.search(r"Overall exposure level for \S+: (\d+\.\d+)", told)
    assert found, told
    assert float(found[1]) <= MOST_EXPOSED


@pytest.mark.parametrize("unit", sorted(path.name for path in UNITS.iterdir()))
def test_every_line_of_a_unit_is_understood(unit: str, tmp_path: Path) -> None:
    """systemd only warns of what it does not know, and goes on without it."""
    program = tmp_path / "hpctools-api"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for path in UNITS.iterdir():
        text = path.read_text().replace("/opt/hpctools/bin/hpctools-api", str(program))
        (tmp_path / path.name).write_text(text)
    verify = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(tmp_path / unit)]
    done = run(verify, timeout=60, check=False)
    told = [line for line in done.stderr.splitlines() if str(tmp_path) in line or unit in line]
    assert (done.code, told) == (0, [])
