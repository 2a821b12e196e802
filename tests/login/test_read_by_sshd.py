"""A node has a host key where its own sshd says so, whatever was written beside it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hpctools.errors import HpctoolsError
from hpctools.login import read_by_sshd
from hpctools.login.host_keys import KeyFolder
from tests.login.test_host_keys import etc_ssh, fingerprints, kept

__all__ = ["kept"]


def test_a_node_whose_sshd_does_not_read_the_file_does_not_count_as_one_with_the_next_key(
    kept: KeyFolder, tmp_path: Path
) -> None:
    """Without an Include sshd goes on with what sshd_config names: the next key it would not prove."""
    ssh = tmp_path / "ssh"
    etc_ssh(ssh, "HostKey {0}/ssh_host_ed25519_key\n")
    kept.begin_rotation()
    with pytest.raises(HpctoolsError, match=r"does not go by `HostKey .*ed25519_key.next`") as refused:
        kept.install(ssh, "login-1")
    assert f"begin {ssh}/sshd_config with `Include {ssh}/sshd_config.d/*.conf`" in refused.value.remedy
    assert kept.installed() == {"login-1": {fingerprints(kept)["now"]}}
    with pytest.raises(HpctoolsError, match=r"and login-1 did not say so"):
        kept.finish_rotation()
    (ssh / "sshd_config").write_text(f"Include {ssh}/sshd_config.d/*.conf\n")
    kept.install(ssh, "login-1")
    assert {key.role for key in kept.finish_rotation()} == {"now", "before"}


def test_a_file_that_sshd_refuses_is_taken_away_and_its_node_still_waited_for(
    kept: KeyFolder, tmp_path: Path
) -> None:
    """After a Match no file may name host keys: sshd would end at its reload. Other faults are not ours."""
    ssh = tmp_path / "ssh"
    etc_ssh(ssh, "Match User nobody\nInclude {0}/sshd_config.d/*.conf\n")
    file = ssh / "sshd_config.d/10-hpctools-host-keys.conf"
    kept.begin_rotation()
    with pytest.raises(HpctoolsError, match=r"'HostKey' is not allowed within a Match block"):
        kept.install(ssh, "login-1")
    assert not file.exists()
    assert kept.installed() == {"login-1": frozenset()}
    with pytest.raises(HpctoolsError, match=r"and login-1 did not say so"):
        kept.finish_rotation()
    (ssh / "sshd_config").write_text("NoSuchWord yes\n")
    with pytest.raises(HpctoolsError, match=r"NoSuchWord"):
        kept.install(ssh, "login-1")
    assert file.exists(), "it was not its fault"


REFUSING = '[ "$1" = -t ] || { echo "Missing something" >&2; exit 255; }\n'


@pytest.mark.parametrize(
    ("stand_in", "said"),
    [
        (None, "sshd of this node could not be asked whether it reads"),
        ("exec sleep 60", "did not end within 0.2 s"),
        ("kill -9 $$", "sshd of this node could not be asked whether it reads"),
        (REFUSING + "exec sleep 60", "Missing something"),
        (REFUSING + "kill -9 $$", "Missing something"),
    ],
)
def test_a_file_stays_that_no_sshd_has_judged(
    kept: KeyFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stand_in: str | None, said: str
) -> None:
    """What is good would be gone, and sshd without the next key after its reload."""
    ssh = tmp_path / "ssh"
    etc_ssh(ssh)
    kept.install(ssh, "login-1")
    file = ssh / "sshd_config.d/10-hpctools-host-keys.conf"
    before = file.read_text()
    sshd = tmp_path / "bin/sshd"
    sshd.parent.mkdir()
    if stand_in is not None:
        sshd.write_text(f"#!/bin/sh\n{stand_in}\n")
        sshd.chmod(0o755)
    monkeypatch.setattr(read_by_sshd, "_sshd", lambda: str(sshd))
    monkeypatch.setattr(read_by_sshd, "_SECONDS", 0.2)
    with pytest.raises(HpctoolsError, match=said) as raised:
        kept.install(ssh, "login-1")
    assert "Include" not in raised.value.remedy
    assert file.read_text() == before
    assert kept.installed() == {"login-1": frozenset()}


APART = 'mount -t tmpfs none /run && "$@" && stat -c "%A %U" /run/sshd'
INSTALL = """
import sys
from pathlib import Path
from hpctools.login.host_keys import KeyFolder
KeyFolder(Path(sys.argv[1])).install(Path(sys.argv[2]), "login-1")
"""


def test_without_the_folder_that_systemd_makes_for_sshd(kept: KeyFolder, tmp_path: Path) -> None:
    """With ssh.socket, or while an image is made, no sshd has been started yet."""
    ssh = tmp_path / "ssh"
    etc_ssh(ssh)
    script = [sys.executable, "-c", INSTALL, str(kept.path), str(ssh)]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", APART, "sh", *script],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "drwxr-xr-x root\n"), done.stderr
    assert kept.installed() == {"login-1": {fingerprints(kept)["now"]}}
