"""What login nodes' sshd is told, as sshd itself reads it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from hpctools.login.sshd import SETTINGS, configuration


def test_sshd_understands_it_where_debian_includes_it(tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-N", "", "-t", "ed25519", "-f", key], check=True, timeout=30)
    file = tmp_path / "sshd_config"
    included = tmp_path / "20-hpctools-login.conf"
    included.write_text(configuration())
    file.write_text(f"Include {tmp_path}/*.conf\nHostKey {key}\nLoginGraceTime 120\nClientAliveInterval 0\n")
    # No sshd goes without this folder, which systemd makes for the first one of a machine.
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    asked = ["/usr/sbin/sshd", "-T", "-f", str(file)]
    told = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=True).stdout
    found = dict(line.partition(" ")[::2] for line in told.splitlines())
    assert {name: found[name.lower()] for name in SETTINGS} == SETTINGS
