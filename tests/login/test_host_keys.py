"""Host keys, by ssh-keygen itself: made, changed in three steps, signed."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import pytest

from hpctools.errors import HpctoolsError, UsageError
from hpctools.login.host_certificates import read_certificate
from hpctools.login.host_keys import KeyFolder
from hpctools.remote import host_keys, known_hosts, trust
from hpctools.remote.ssh_config import HostSettings
from hpctools.sandbox import ports
from tests.system.harness import until


@pytest.fixture
def kept(tmp_path: Path) -> KeyFolder:
    """A folder with an ed25519 key, as login nodes share it."""
    folder = tmp_path / "keys"
    folder.mkdir(mode=0o700)
    make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "ssh_host_ed25519_key"]
    subprocess.run(make, check=True, timeout=30)
    return KeyFolder(folder)


def etc_ssh(folder: Path, config: str = "Include {0}/sshd_config.d/*.conf\n") -> Path:
    """A node's /etc/ssh, whose sshd reads what lies beside its sshd_config as Debian's does."""
    folder.mkdir()
    (folder / "sshd_config").write_text(config.format(folder))
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    return folder


def fingerprints(kept: KeyFolder) -> dict[str, str]:
    return {key.role: key.fingerprint for key in kept.present()}


def test_a_key_is_changed_in_three_steps_and_interrupted_ones_go_on(kept: KeyFolder, tmp_path: Path) -> None:
    old = fingerprints(kept)["now"]
    kept.begin_rotation()
    both = fingerprints(kept)
    assert both["now"] == old != both["next"]
    assert {key.role: key.fingerprint for key in kept.begin_rotation()} == both
    ssh = etc_ssh(tmp_path / "ssh")
    text = kept.install(ssh)
    assert text.splitlines()[1:] == [
        f"HostKey {ssh}/ssh_host_ed25519_key", f"HostKey {ssh}/ssh_host_ed25519_key.next",
    ]  # fmt: skip
    assert (ssh / "ssh_host_ed25519_key").stat().st_mode & 0o777 == 0o600
    assert (ssh / "ssh_host_ed25519_key.next").stat().st_mode & 0o777 == 0o600
    assert (ssh / "sshd_config.d/10-hpctools-host-keys.conf").read_text() == text
    assert len(kept.known_hosts(["login.uni.example"]).splitlines()) == 2
    kept.finish_rotation()
    assert fingerprints(kept) == {"now": both["next"], "before": old}
    assert kept.install(ssh).splitlines()[1:] == [
        f"HostKey {ssh}/ssh_host_ed25519_key", f"HostKey {ssh}/ssh_host_ed25519_key.before",
    ]  # fmt: skip
    assert len(kept.known_hosts(["login.uni.example"]).splitlines()) == 2
    with pytest.raises(UsageError, match="its old keys are still in use"):
        kept.begin_rotation()
    kept.retire()
    assert fingerprints(kept) == {"now": both["next"]}
    assert public_of(kept.path / "ssh_host_ed25519_key.old") == old
    with pytest.raises(UsageError, match="no old keys that could go"):
        kept.retire()
    kept.install(ssh)
    assert sorted(path.name for path in ssh.glob("ssh_host*")) == [
        "ssh_host_ed25519_key", "ssh_host_ed25519_key.pub",
    ]  # fmt: skip
    assert public_of(ssh / "ssh_host_ed25519_key.pub") == public_of(kept.path / "ssh_host_ed25519_key.pub")
    with pytest.raises(UsageError, match=r"no rotation has begun, .* --begin$"):
        kept.finish_rotation()


def public_of(path: Path) -> str:
    """The fingerprint of a public key."""
    argv = ["ssh-keygen", "-l", "-f", path]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=30).stdout.split()[1]


def test_the_old_key_stays_until_every_node_has_said_that_it_has_the_next(
    kept: KeyFolder, tmp_path: Path
) -> None:
    """Whoever comes to a node without the next key has it forgotten by their ssh."""
    places = [tmp_path / name for name in ("login-1", "login-2")]
    for each in places:
        kept.install(etc_ssh(each), each.name)
    kept.begin_rotation()
    before = kept.present()
    with pytest.raises(HpctoolsError, match=r"login-1, login-2 did not say so") as refused:
        kept.finish_rotation()
    assert "host-keys install" in str(refused.value.remedy)
    kept.install(places[0], "login-1")
    with pytest.raises(HpctoolsError, match=r"and login-2 did not say so"):
        kept.finish_rotation()
    assert kept.present() == before
    kept.install(places[1], "login-2")
    with pytest.raises(HpctoolsError, match=r"and login-3 did not say so"):
        kept.finish_rotation(["login-2", "login-3"])
    assert {key.role for key in kept.finish_rotation()} == {"now", "before"}


def test_nobody_has_said_anything(kept: KeyFolder) -> None:
    kept.begin_rotation()
    with pytest.raises(HpctoolsError, match="no login node has said so"):
        kept.finish_rotation()
    assert {key.role for key in kept.finish_rotation(force=True)} == {"now", "before"}


@pytest.mark.parametrize("calls", range(8))
def test_a_rotation_whose_end_is_killed_anywhere_is_ended_by_the_next(
    kept: KeyFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """Private and public halves, and certificates, belong together afterwards, in every case."""
    etc_ssh(tmp_path / "ssh")
    kept.begin_rotation()
    kept.make_authority()
    for name in ("ssh_host_ed25519_key.pub", "ssh_host_ed25519_key.next.pub"):
        kept.sign(kept.path / name, ["login.uni.example"])
    kept.install(tmp_path / "ssh")
    old, following = fingerprints(kept)["now"], fingerprints(kept)["next"]
    left = iter(range(calls))

    def dying(real: Callable[..., object]) -> Callable[..., object]:
        def call(*given: object, **more: object) -> object:
            if next(left, None) is None:
                raise Killed
            return real(*given, **more)

        return call

    with monkeypatch.context() as patch, suppress(Killed):
        for owner, name in ((os, "link"), (Path, "replace"), (Path, "unlink")):
            patch.setattr(owner, name, dying(getattr(owner, name)))
        kept.finish_rotation()
    with suppress(UsageError):  # it was through
        kept.finish_rotation()
    assert {role for role in fingerprints(kept) if role != "authority"} == {"now", "before"}
    assert fingerprints(kept)["before"] == old
    assert fingerprints(kept)["now"] == following == public_of(kept.path / "ssh_host_ed25519_key.pub")
    assert [each.key for each in kept.certificates()] == [following]
    assert not (kept.path / "ssh_host_ed25519_key.next.pub").exists()


class Killed(BaseException):
    """kill -9."""


def test_certificates_come_to_the_nodes_and_stale_ones_go(kept: KeyFolder, tmp_path: Path) -> None:
    ssh = etc_ssh(tmp_path / "ssh")
    kept.make_authority()
    (kept.path / "ssh_host_ed25519_key.pub").unlink()  # lifecycle scripts keep private keys alone
    kept.sign(kept.path / "ssh_host_ed25519_key.pub", ["login.uni.example"], "+4w")
    wanted = f"HostCertificate {ssh}/ssh_host_ed25519_key-cert.pub"
    assert kept.install(ssh).splitlines()[2:] == [wanted]
    (found,) = kept.certificates()
    left = found.days_left(datetime.now())  # ssh-keygen tells local time
    assert left is not None
    assert 27.9 < left <= 28.01
    kept.begin_rotation()
    kept.install(ssh)
    with pytest.raises(HpctoolsError, match=r"ssh_host_ed25519_key.next, which takes its place, has none"):
        kept.finish_rotation()
    kept.finish_rotation(force=True)
    assert kept.certificates() == ()
    assert wanted not in kept.install(ssh)
    assert not (ssh / "ssh_host_ed25519_key-cert.pub").exists()


def test_what_is_no_certificate_is_said_so(tmp_path: Path, kept: KeyFolder) -> None:
    with pytest.raises(HpctoolsError, match=r"certificate|ssh-keygen"):
        read_certificate(kept.path / "ssh_host_ed25519_key.pub")


def test_an_authority_signs_and_the_next_one_is_known_before_it_does(kept: KeyFolder) -> None:
    with pytest.raises(UsageError, match="host-keys authority"):
        kept.sign(kept.path / "ssh_host_ed25519_key.pub", ["login.uni.example"])
    kept.make_authority()
    public = kept.make_authority()
    certificate = kept.sign(kept.path / "ssh_host_ed25519_key.pub", ["login.uni.example", "login-1"], "+4w")
    shown = subprocess.run(
        ["ssh-keygen", "-L", "-f", certificate], capture_output=True, text=True, check=True, timeout=30
    ).stdout
    assert "host certificate" in shown
    assert "login.uni.example\n" in shown
    assert fingerprints(kept)["authority"] in shown
    kept.make_authority(following=True)
    known = kept.known_hosts(["*.uni.example"]).splitlines()
    assert known[0] == f"@cert-authority *.uni.example {' '.join(public.split()[:2])}"
    assert len(known) == 2


@pytest.mark.parametrize("name", ["", "-oProxyCommand=x", "a,b", "a b", "a\n"])
def test_only_host_names_are_signed_for(kept: KeyFolder, name: str) -> None:
    kept.make_authority()
    with pytest.raises(UsageError, match="cannot sign"):
        kept.sign(kept.path / "ssh_host_ed25519_key.pub", [name])


def test_a_folder_that_others_see_is_refused(kept: KeyFolder, tmp_path: Path) -> None:
    kept.path.chmod(0o750)
    with pytest.raises(HpctoolsError, match="not a folder for you alone"):
        kept.begin_rotation()
    (tmp_path / "link").symlink_to(kept.path)
    with pytest.raises(HpctoolsError, match="not a folder for you alone"):
        KeyFolder(tmp_path / "link").check()
    with pytest.raises(UsageError, match="cannot use"):
        KeyFolder(tmp_path / "nothing").check()


@pytest.fixture
def door(kept: KeyFolder, tmp_path: Path) -> Iterator[Door]:
    """An sshd with what `install` wrote, and somebody whose ssh knows its present key."""
    made = Door(kept, tmp_path)
    try:
        yield made
    finally:
        made.end()


class Door:
    """A real sshd and a real ssh."""

    def __init__(self, kept: KeyFolder, folder: Path, node: str = "") -> None:
        self.kept, self.folder, self.node = kept, folder, node
        folder.mkdir(exist_ok=True)
        self.port = ports.choose(["sshd"])["sshd"]
        self.process: subprocess.Popen[bytes] | None = None
        self.options: list[str] = []
        etc_ssh(folder / "ssh")
        key = folder / "mine"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True, timeout=30)
        self.known = folder / "known_hosts"
        self.known.write_text(kept.known_hosts([f"[127.0.0.1]:{self.port}"]))

    def serve(self) -> None:
        """Begin anew with the keys of now; it answers when this returns."""
        self.end()
        self.kept.install(self.folder / "ssh", self.node)
        lines = [
            f"Include {self.folder}/ssh/sshd_config.d/*.conf",
            f"Port {self.port}", "ListenAddress 127.0.0.1", "PidFile none", "UsePAM no",
            "PermitRootLogin yes", "StrictModes no", f"AuthorizedKeysFile {self.folder}/mine.pub",
        ]  # fmt: skip
        conf = self.folder / "sshd_config"
        conf.write_text("\n".join(lines) + "\n")
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(["/usr/sbin/sshd", "-D", "-e", "-f", conf], stderr=log)
        until(lambda: not ports.is_free(self.port) or None, 20)

    def come(self) -> subprocess.CompletedProcess[str]:
        """Log in, believing no key that is not known."""
        options = [
            "StrictHostKeyChecking=yes", f"UserKnownHostsFile={self.known}", "UpdateHostKeys=yes",
            "BatchMode=yes", "IdentitiesOnly=yes", *self.options,
        ]  # fmt: skip
        words = [word for option in options for word in ("-o", option)]
        argv = [
            "ssh",
            "-F",
            "none",
            "-i",
            self.folder / "mine",
            "-p",
            str(self.port),
            *words,
            "root@127.0.0.1",
        ]
        # A session of some length: sshd proves its other keys after the login.
        return subprocess.run(
            [*argv, "sleep 1; echo in"], capture_output=True, text=True, timeout=60, check=False
        )

    def end(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(10)


def test_nobody_is_warned_when_keys_change(door: Door) -> None:
    """ssh learns the next key from a server that proves it has both; who did not come meanwhile is warned."""
    door.serve()
    assert door.come().stdout == "in\n"
    stranger = door.known.read_text()
    door.kept.begin_rotation()
    door.serve()
    assert door.come().stdout == "in\n"
    assert len(door.known.read_text().splitlines()) == 2
    door.kept.finish_rotation()
    door.serve()
    assert door.come().stdout == "in\n"
    door.known.write_text(stranger)
    late = door.come()
    assert (late.returncode, "HOST IDENTIFICATION HAS CHANGED" in late.stderr) == (255, True)


def test_under_two_names_the_next_key_is_learned_from_the_sites_list(door: Door) -> None:
    """ssh skips UpdateHostKeys when the key stands under another name, too; then `trust --from` has to do."""
    first, second = f"[127.0.0.1]:{door.port}", f"[login2]:{door.port}"
    door.known.write_text(door.kept.known_hosts([first]) + door.kept.known_hosts([second]))
    door.kept.begin_rotation()
    door.serve()
    assert door.come().stdout == "in\n"
    assert len(door.known.read_text().splitlines()) == 2  # it learned nothing
    listed = known_hosts.read([("list", door.kept.known_hosts(["127.0.0.1", "login2"]))])
    for host in ("127.0.0.1", "login2"):
        settings = HostSettings(host, host, door.port, "me", user_known_hosts=(door.known,))
        (offer,) = trust.told(settings, listed)
        trust.remember(offer)
        assert trust.told(settings, listed) == []
    door.kept.finish_rotation()
    door.serve()
    assert door.come().stdout == "in\n"
    key = base64.b64decode((door.kept.path / "ssh_host_ed25519_key.pub").read_text().split()[1])
    for host in ("127.0.0.1", "login2"):  # and so it is judged by hp-submit
        settings = HostSettings(host, host, door.port, "me", user_known_hosts=(door.known,))
        shown = host_keys.Shown("ssh-ed25519", key)
        host_keys.judge(shown, settings, host_keys.load(settings), 0.0, lambda *_: False)


def test_under_one_alias_ssh_learns_the_next_key_itself(door: Door) -> None:
    door.known.write_text(door.kept.known_hosts(["login.uni.example"]))
    door.options = ["HostKeyAlias=login.uni.example"]
    door.kept.begin_rotation()
    door.serve()
    assert door.come().stdout == "in\n"
    door.kept.finish_rotation()
    door.serve()
    assert door.come().stdout == "in\n"


def test_ssh_knows_an_sshd_at_another_port_by_the_bare_name_as_we_do(door: Door) -> None:
    door.known.write_text(door.kept.known_hosts(["127.0.0.1"]))
    door.serve()
    assert door.come().stdout == "in\n"
    settings = HostSettings("a", "127.0.0.1", door.port, "me", user_known_hosts=(door.known,))
    key = base64.b64decode(door.known.read_text().split()[2])
    shown = host_keys.Shown("ssh-ed25519", key)
    host_keys.judge(shown, settings, host_keys.load(settings), 0.0, lambda *_: False)


def test_the_change_of_an_authority_is_ended_and_a_stolen_one_is_revoked(door: Door) -> None:
    kept, name = door.kept, f"[127.0.0.1]:{door.port}"
    public = kept.path / "ssh_host_ed25519_key.pub"
    old = kept.make_authority().split()[1]
    with pytest.raises(UsageError, match="no authority follows"):
        kept.finish_authority()
    certificate = kept.sign(public, ["127.0.0.1"])
    signed_by_old = certificate.read_text()
    door.known.write_text(kept.known_hosts([name]))
    door.serve()
    assert door.come().stdout == "in\n"
    fresh = kept.make_authority(following=True).split()[1]
    door.known.write_text(both := kept.known_hosts([name]))
    assert door.come().stdout == "in\n"
    kept.sign(public, ["127.0.0.1"], following=True)
    door.serve()
    assert kept.finish_authority().split()[1] == fresh
    door.known.write_text(kept.known_hosts([name]))
    assert door.known.read_text() == f"@cert-authority {name} ssh-ed25519 {fresh}\n"
    assert door.come().stdout == "in\n"
    (revoked,) = kept.known_hosts([name], stolen=True).splitlines()[1:]
    assert revoked == f"@revoked * ssh-ed25519 {old}"
    certificate.write_text(signed_by_old)
    door.serve()
    door.known.write_text(both)
    assert door.come().stdout == "in\n"
    door.known.write_text(f"{both}{revoked}\n")
    late = door.come()
    assert (late.returncode, "REVOKED" in late.stderr.upper()) == (255, True)
    with pytest.raises(UsageError, match="no authority follows"):
        kept.finish_authority()


def test_nobody_is_revoked_who_never_was_an_authority(kept: KeyFolder) -> None:
    kept.make_authority()
    with pytest.raises(UsageError, match=r"ca\.old"):
        kept.known_hosts(["login"], stolen=True)
