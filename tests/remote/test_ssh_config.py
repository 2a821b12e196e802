"""What a person's ssh configuration says of a host: by ssh itself, and by paramiko where there is none."""

from __future__ import annotations

import getpass
import shutil
from pathlib import Path

import pytest

from hpctools.errors import RemoteError
from hpctools.remote.ssh_config import HostSettings, expand, interpret, settings

CONFIG = """\
Host login1
  HostName login1.uni.example
  Port 2222
  User me2
  ProxyJump gate.uni.example,other@inner:2200
Host piped
  ProxyCommand nc -X 5 %h %p
  HostKeyAlias uni-login
  ConnectTimeout 7
Host *
  IdentityFile {home}/.ssh/id_%r
  IdentitiesOnly yes
  CertificateFile {home}/.ssh/cert.pub
  UserKnownHostsFile {home}/one {home}/two
  GlobalKnownHostsFile none
  IdentityAgent none
  HashKnownHosts yes
  RevokedHostKeys {home}/revoked
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config"
    path.write_text(CONFIG.format(home=tmp_path))
    return path


@pytest.fixture(params=["ssh", "paramiko"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who reads the file."""
    if request.param == "paramiko":
        monkeypatch.setattr(shutil, "which", lambda program: None)
    return str(request.param)


def test_what_is_said_of_a_host(config: Path, tmp_path: Path, reader: str) -> None:
    assert settings("login1", config=config) == HostSettings(
        "login1",
        "login1.uni.example",
        2222,
        "me2",
        identity_files=(tmp_path / ".ssh/id_me2",),
        certificate_files=(tmp_path / ".ssh/cert.pub",),
        identities_only=True,
        agent="none",
        user_known_hosts=(tmp_path / "one", tmp_path / "two"),
        revoked_keys=tmp_path / "revoked",
        hash_names=True,
        jumps=("gate.uni.example", "other@inner:2200"),
    )


def test_a_program_as_the_way_and_another_name_for_known_hosts(config: Path, reader: str) -> None:
    found = settings("piped", "you", config)
    assert (found.proxy_command, found.known_as, found.connect_seconds) == (
        "nc -X 5 piped 22",
        "uni-login",
        7,
    )
    assert (found.user, found.port, found.jumps) == ("you", 22, ())
    if reader == "ssh":  # paramiko knows no other person than the configuration's
        assert found.identity_files[0].name == "id_you"


def test_a_host_that_nobody_wrote_of_is_itself(tmp_path: Path, reader: str) -> None:
    (tmp_path / "empty").write_text("")
    found = settings("login9", config=tmp_path / "empty")
    assert (found.host, found.port, found.user) == ("login9", 22, getpass.getuser())
    assert {path.name for path in found.identity_files} >= {"id_ed25519", "id_rsa"}
    assert [path.name for path in found.user_known_hosts] == ["known_hosts", "known_hosts2"]
    assert (found.proxy_command, found.jumps, found.identities_only, found.revoked_keys) == (
        "",
        (),
        False,
        None,
    )


def test_a_file_that_cannot_be_understood_is_told(tmp_path: Path) -> None:
    (tmp_path / "wrong").write_text("Nonsense yes\n")
    with pytest.raises(RemoteError, match="cannot read its configuration"):
        settings("login1", config=tmp_path / "wrong")


def test_a_home_that_is_not_there_is_told(tmp_path: Path) -> None:
    """`ssh -G` leaves ~NAME to whoever reads the file."""
    (tmp_path / "config").write_text("IdentityFile ~no-such-person/.ssh/key\n")
    with pytest.raises(RemoteError, match=r"names ~no-such-person/\.ssh/key, and there is no such home"):
        settings("login1", config=tmp_path / "config")


def test_an_agent_by_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_AGENT", "/run/mine")
    assert interpret("a", {"identityagent": ["$MY_AGENT"]}).agent == "/run/mine"
    assert interpret("a", {"identityagent": ["SSH_AUTH_SOCK"]}).agent == ""
    assert interpret("a", {"identityagent": ["$NOT_THERE"]}).agent == "none"


def test_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "there")
    tokens = {"h": "host", "%": "%"}
    assert expand("${PLACE}/%h/%%h/%q/${MISSING}", tokens) == "there/host/%h/%q/${MISSING}"


def test_jump_hosts_have_tokens_of_the_host_behind_them(tmp_path: Path, reader: str) -> None:
    """`ssh -G` prints them as written: `%r@gate` was refused as no host."""
    (tmp_path / "config").write_text(
        "Host login1\n  HostName login1.uni.example\n  User me\n  ProxyJump %r@gate.%h,inner.%n:2200\n"
    )
    found = settings("login1", config=tmp_path / "config")
    assert found.jumps == ("me@gate.login1.uni.example", "inner.login1:2200")


def test_jump_hosts_have_no_other_tokens() -> None:
    stated = {"user": ["me"], "port": ["2222"], "proxyjump": ["%r%%h@%p, %l%i%d%k%u${HOME}, fe80::1%eth0"]}
    assert interpret("a", stated).jumps == ("me%h@2222", "%l%i%d%k%u${HOME}", "fe80::1%eth0")


@pytest.mark.parametrize("host", ["fe80::1%lo", "fe80::1%ib0", "fe80::1%docker0"])
def test_an_address_keeps_its_zone(host: str) -> None:
    """ssh has put in what stands for %h and the like; %l was this machine's name, and %i the uid."""
    assert interpret("node", {"hostname": [host]}, "me").host == host


def test_known_hosts_files_with_spaces_and_none_in_the_present_folder(tmp_path: Path) -> None:
    """`ssh -G` quotes nothing: the second word would be a file of the folder where somebody is."""
    (tmp_path / "config").write_text(
        f'Host login1\n  UserKnownHostsFile "{tmp_path}/My Keys/known_hosts" {tmp_path}/more here\n'
    )
    found = settings("login1", config=tmp_path / "config")
    assert found.user_known_hosts[0] == tmp_path / "My Keys/known_hosts"
    assert all(path.is_absolute() for path in found.user_known_hosts)
    stated = {"userknownhostsfile": ["known_hosts"]}
    assert interpret("a", stated).user_known_hosts == ()
    stated = {"userknownhostsfile": ["~/a b /c none"], "globalknownhostsfile": ["none"]}
    assert interpret("a", stated).user_known_hosts == (Path.home() / "a b", Path("/c"))
    assert interpret("a", stated).global_known_hosts == ()
