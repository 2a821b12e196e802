"""A node has a host key where its own sshd says so, whatever was written beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpctools.errors import HpctoolsError
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
    assert {key.role for key in kept.finish_rotation()} == {"now"}


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
