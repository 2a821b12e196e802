"""Limits of people under cgroup v2, with and without systemd, on a kernel that has its controllers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.system import login_slices_probe
from tests.system.login_slices_probe import MIB
from tests.system.uml import boot

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
PROBE = f"{sys.executable} {login_slices_probe.__file__}"
IN_FOLDERS = f"""\
cd /run
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={ROOT} {PROBE} folders /run/hpctools/found
halt -f
"""
UNDER_SYSTEMD = f"""\
mkdir -p /run/units/user-.slice.d
cp /lib/systemd/system/dbus.socket /lib/systemd/system/dbus.service /run/units
for each in sysinit basic shutdown; do
  printf '[Unit]\\nDefaultDependencies=no\\n' >/run/units/$each.target
done
printf '[Unit]\\nDefaultDependencies=no\\nWants=probe.service\\n' >/run/units/default.target
printf '[Slice]\\nCPUQuota=60%%\\nMemoryMax=200M\\n' >/run/units/user-.slice.d/override.conf
cat >/run/units/probe.service <<UNIT
[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
Environment=PYTHONPATH={ROOT} PYTHONDONTWRITEBYTECODE=1
ExecStart={PROBE} systemd /run/hpctools/found
ExecStopPost=/sbin/halt -ff
StandardOutput=file:/run/hpctools/said
StandardError=file:/run/hpctools/said
UNIT
export SYSTEMD_UNIT_PATH=/run/systemd/system.control:/run/systemd/transient:/run/units
exec /lib/systemd/systemd --system --unit=default.target --show-status=false
"""


def found(folder: Path, script: str) -> dict[str, Any]:
    """What the probe has found."""
    console, file, said = boot(folder, script), folder / "found", folder / "said"
    assert file.exists(), console + (said.read_text() if said.exists() else "")
    seen: dict[str, Any] = json.loads(file.read_text())
    return seen


def test_folders_of_the_agents_own_slow_down_end_and_let_go(tmp_path: Path) -> None:
    """A tenth of a processor is no more; who takes more memory than the most is ended."""
    seen = found(tmp_path, IN_FOLDERS)
    assert seen["slices"] == "CgroupTwo"
    assert seen["limited"] == ["10000 100000", str(64 * MIB), str(96 * MIB)]
    assert seen["used"] < 0.2
    assert seen["hoarder"] == 137
    assert seen["lifted"] == ["max 100000", "max", "max"]
    assert seen["used_then"] > 0.2


def test_systemds_slices_keep_a_limit_beside_the_sites_own(tmp_path: Path) -> None:
    """Whatever systemd reads anew, also for who leaves and comes back; then the site's own counts again."""
    seen = found(tmp_path, UNDER_SYSTEMD)
    site, limited = ["60000 100000", "max", str(200 * MIB)], ["10000 100000", str(64 * MIB), str(200 * MIB)]
    assert seen["slices"] == "SystemdSlices"
    assert (seen["site"], seen["limited"], seen["reloaded"]) == (site, limited, limited)
    assert (seen["back"], seen["lifted"]) == (limited, site)
    assert seen["used"] < 0.2
    assert 0 < seen["holds"] < 64 * MIB
    assert seen["outside"] == [True], "the probe is a service, as Session Manager's agent is"
    then, now = seen["moved"]
    assert then == "0::/system.slice/amazon-ssm-agent.service\n"
    assert now.startswith("0::/user.slice/user-54321.slice/hpctools-login-54321-")
    assert seen["has"] < 8_000_000 < seen["brought"], "what it had stays counted for the service"
    assert (seen["ended"], seen["left"]) == ("137\n", ""), "it outlived the service, and not the limit"
