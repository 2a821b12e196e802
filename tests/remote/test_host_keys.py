"""Who is believed to be a host: keys and certificates made by ssh-keygen, judged as OpenSSH judges them."""

from __future__ import annotations

import base64
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hpctools.remote import certificates, known_hosts
from hpctools.remote.host_keys import Shown, UnknownHost, WrongHost, algorithms, judge, names
from hpctools.remote.ssh_config import HostSettings
from hpctools.remote.transport import is_signed

LOGIN = HostSettings("login1", "login1.uni.edu", 22, "me")
NOW = time.time()


def blob(path: Path) -> bytes:
    return base64.b64decode(path.read_text().split()[1])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys of a host, of an authority, and of an authority that nobody knows."""
    folder = tmp_path_factory.mktemp("keys")
    for name, kind in (("host", "ed25519"), ("other", "ed25519"), ("ca", "ecdsa"), ("false", "ed25519")):
        subprocess.run(["ssh-keygen", "-q", "-N", "", "-t", kind, "-f", str(folder / name)], check=True)
    return folder


def signed(folder: Path, *words: str, by: str = "ca") -> Shown:
    """The host's key with a certificate."""
    argv = ["ssh-keygen", "-q", "-s", str(folder / by), "-I", "test", *words, str(folder / "host.pub")]
    subprocess.run(argv, check=True, capture_output=True)
    return Shown("ssh-ed25519", blob(folder / "host.pub"), blob(folder / "host-cert.pub"))


def known(*lines: str) -> known_hosts.KnownHosts:
    return known_hosts.read([("known_hosts", "\n".join(lines))])


def public(folder: Path, name: str) -> str:
    return " ".join((folder / f"{name}.pub").read_text().split()[:2])


def verdict(shown: Shown, *lines: str, settings: HostSettings = LOGIN, now: float = NOW) -> str:
    """Empty when the host is believed, else why not."""
    try:
        judge(shown, settings, known(*lines), now, is_signed)
    except (UnknownHost, WrongHost) as error:
        return f"{type(error).__name__}: {error.message}"
    return ""


def test_a_key_that_is_known_is_believed(made: Path) -> None:
    shown = Shown("ssh-ed25519", blob(made / "host.pub"))
    assert verdict(shown, f"*.uni.edu {public(made, 'host')}") == ""


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ([], "UnknownHost: the host key of login1 (login1.uni.edu) is not known: ssh-ed25519 SHA256:"),
        (["login1.uni.edu {other}"], "WrongHost: login1 shows another host key than the known one"),
        (["login1.uni.edu {host}", "@revoked * {host}"], "WrongHost: login1 shows a key that is revoked"),
        (["@cert-authority *.uni.edu {ca}"], "WrongHost: login1 shows a key that no authority signed"),
        (["[login1.uni.edu]:2222 {host}"], "UnknownHost"),
        (["@cert-authority * {host}"], "WrongHost"),
    ],
)
def test_a_bare_key_that_is_not_known_is_refused(made: Path, lines: list[str], wanted: str) -> None:
    keys = {name: public(made, name) for name in ("host", "other", "ca")}
    shown = Shown("ssh-ed25519", blob(made / "host.pub"))
    assert verdict(shown, *(line.format(**keys) for line in lines)).startswith(wanted)


def test_a_certificate_of_a_known_authority_is_believed(made: Path) -> None:
    shown = signed(made, "-h", "-n", "login1.uni.edu", "-V", "-1d:+1d")
    trusted = f"@cert-authority *.uni.edu {public(made, 'ca')}"
    assert verdict(shown, trusted) == ""
    assert verdict(shown, f"@cert-authority *.other.edu {public(made, 'ca')}").startswith("UnknownHost")
    assert "is revoked" in verdict(shown, trusted, f"@revoked * {public(made, 'ca')}")
    assert "is revoked" in verdict(shown, trusted, f"@revoked * {public(made, 'host')}")


@pytest.mark.parametrize(
    ("words", "by", "why"),
    [
        (["-h", "-n", "login2.uni.edu"], "ca", "it holds for login2.uni.edu"),
        (["-n", "login1.uni.edu"], "ca", "it is a person's"),
        (["-h", "-n", "login1.uni.edu", "-V", "-2d:-1d"], "ca", "it has expired"),
        (["-h", "-n", "login1.uni.edu", "-V", "+1d:+2d"], "ca", "it is not valid yet"),
        (["-h", "-n", "login1.uni.edu", "-O", "critical:x@y=1"], "ca", "options that we do not know: x@y"),
        (["-h", "-n", "login1.uni.edu"], "false", "its authority SHA256:"),
    ],
)
def test_a_certificate_that_does_not_hold_is_refused(made: Path, words: list[str], by: str, why: str) -> None:
    said = verdict(signed(made, *words, by=by), f"@cert-authority * {public(made, 'ca')}")
    assert said.startswith("WrongHost")
    assert why in said


def test_a_certificate_that_was_changed_is_refused_at_every_byte(made: Path) -> None:
    """Whichever byte is another one: nobody is believed by it, and nothing breaks."""
    shown = signed(made, "-h", "-n", "login1.uni.edu")
    trusted = f"@cert-authority * {public(made, 'ca')}"
    for place in range(len(shown.certificate)):
        changed = bytearray(shown.certificate)
        changed[place] ^= 1
        assert verdict(Shown(shown.kind, shown.key, bytes(changed)), trusted).startswith("WrongHost"), place


def test_what_helps_names_the_port_that_was_stated_with_the_name(made: Path) -> None:
    """`hp-submit trust gate` looked at port 22, where another sshd is, or none."""
    shown = Shown("ssh-ed25519", blob(made / "host.pub"))
    other = f"[gate.uni.edu]:2222 {public(made, 'ca')}"
    for host, lines, name in (
        ("gate", (), "gate:2222"),
        ("gate", (other,), "gate:2222"),
        ("2001:db8::1", (), "[2001:db8::1]:2222"),
    ):
        with pytest.raises((UnknownHost, WrongHost)) as caught:
            judge(shown, HostSettings(host, "gate.uni.edu", 22, "me").at(2222), known(*lines), NOW, is_signed)
        assert caught.value.remedy.endswith(f"hp-submit trust {name}")


def test_another_hosts_certificate_helps_nobody(made: Path) -> None:
    certificate = signed(made, "-h", "-n", "login1.uni.edu").certificate
    stolen = Shown("ssh-ed25519", blob(made / "other.pub"), certificate)
    assert "it is another key's" in verdict(stolen, f"@cert-authority * {public(made, 'ca')}")


@pytest.mark.parametrize("kind", [["rsa", "-b", "2048"], ["ecdsa"], ["ed25519"]])
def test_all_kinds_of_certificates_are_read(tmp_path: Path, made: Path, kind: list[str]) -> None:
    key = tmp_path / "k"
    subprocess.run(["ssh-keygen", "-q", "-N", "", "-t", *kind, "-f", str(key)], check=True)
    argv = ["ssh-keygen", "-q", "-s", str(made / "ca"), "-I", "me", "-h", "-n", "a,b", f"{key}.pub"]
    subprocess.run(argv, check=True, capture_output=True)
    read = certificates.read(blob(tmp_path / "k-cert.pub"))
    assert (read.plain_key, read.principals, read.key_id) == (blob(tmp_path / "k.pub"), ("a", "b"), "me")
    certificates.check(read, ["b"], NOW, is_signed)


def test_kinds_of_known_keys_are_asked_for_and_no_others(made: Path) -> None:
    """Else a host with several keys would be a stranger by the one that it shows first."""
    ask: Callable[..., tuple[str, ...]] = algorithms
    assert ask(known(f"login1.uni.edu {public(made, 'ca')}"), names(LOGIN)) == ("ecdsa-sha2-nistp256",)
    by_authority = ask(known(f"@cert-authority * {public(made, 'ca')}"), names(LOGIN))
    assert all(each.endswith("-cert-v01@openssh.com") for each in by_authority)
    assert ask(known(), names(LOGIN))[0] == "ssh-ed25519-cert-v01@openssh.com"


def test_a_file_of_revoked_keys_counts_and_must_be_readable(made: Path, tmp_path: Path) -> None:
    revoked = tmp_path / "revoked"
    revoked.write_text(f"# old\n{public(made, 'host')} a comment\n")
    shown = Shown("ssh-ed25519", blob(made / "host.pub"))
    line = f"login1.uni.edu {public(made, 'host')}"
    there = HostSettings("login1", "login1.uni.edu", 22, "me", revoked_keys=revoked)
    assert f"is revoked in {revoked}" in verdict(shown, line, settings=there)
    missing = HostSettings("login1", "login1.uni.edu", 22, "me", revoked_keys=tmp_path / "none")
    assert "cannot be read" in verdict(shown, line, settings=missing)


@pytest.mark.parametrize("authorities", [("@cert-authority * {ca}",), ("login1.uni.edu {host}",)])
def test_a_revoked_authority_is_refused_wherever_that_is_written(
    made: Path, tmp_path: Path, authorities: tuple[str, ...]
) -> None:
    """In RevokedHostKeys as with @revoked, and even where the bare key is known."""
    lines = [each.format(ca=public(made, "ca"), host=public(made, "host")) for each in authorities]
    shown = signed(made, "-h", "-n", "login1.uni.edu")
    assert verdict(shown, *lines) == ""
    assert "authority that is revoked in" in verdict(shown, *lines, f"@revoked * {public(made, 'ca')}")
    (tmp_path / "revoked").write_text(public(made, "ca"))
    there = HostSettings("login1", "login1.uni.edu", 22, "me", revoked_keys=tmp_path / "revoked")
    assert "authority that is revoked in" in verdict(shown, *lines, settings=there)


def test_what_a_host_wrote_is_no_command_for_a_terminal(made: Path) -> None:
    shown = signed(made, "-h", "-n", "\x1b]0;owned\x07")
    why = verdict(shown, f"@cert-authority * {public(made, 'ca')}")
    assert "it holds for" in why
    assert why.isprintable()


def test_another_port_is_looked_up_by_the_bare_name_where_nothing_is_known_of_it(made: Path) -> None:
    """As ssh does, "checking without port identifier"; but not under a HostKeyAlias."""
    there = HostSettings("login1", "login1.uni.edu", 2222, "me")
    shown, host, other = (
        Shown("ssh-ed25519", blob(made / "host.pub")),
        *map(public, [made] * 2, ["host", "other"]),
    )
    bare = f"login1.uni.edu {host}"
    assert verdict(shown, bare, settings=there) == ""
    assert verdict(shown, f"login1.uni.edu {other}", settings=there).startswith("UnknownHost")
    assert verdict(shown, bare, f"[login1.uni.edu]:2222 {other}", settings=there).startswith("WrongHost")
    for name in ("login1.uni.edu", "[login1.uni.edu]:2222"):
        revoked = f"@revoked {name} {host}"
        assert "revoked" in verdict(shown, bare, revoked, settings=there)
    alias = HostSettings("login1", "login1.uni.edu", 2222, "me", known_as="login")
    assert verdict(shown, bare, settings=alias).startswith("UnknownHost")
    certificate = signed(made, "-h", "-n", "login1.uni.edu")
    assert verdict(certificate, f"@cert-authority *.uni.edu {public(made, 'ca')}", settings=there) == ""
