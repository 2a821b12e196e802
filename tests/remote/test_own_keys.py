"""Keys and certificates as ssh takes them: `if ssh login1 lets you in, so does hp-submit`."""

from __future__ import annotations

import base64
import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hpctools.remote import own_keys
from tests.remote.rig import Here, Rig, keygen
from tests.remote.test_entering import agent, logged_in_by
from tests.remote.token_agent import KIND, TokenAgent, string, token_agent

Authority = Path


def fido_file(path: Path) -> None:
    """A private key file as `ssh-keygen -t ed25519-sk` writes it: a handle, not a key."""
    public = string(KIND) + string(b"p" * 32) + string(b"ssh:")
    secret = struct.pack(">II", 7, 7) + public + b"\x01" + string(b"handle") + string(b"") + string(b"mine")
    secret += bytes(range(1, 1 + -len(secret) % 8))
    head = b"openssh-key-v1\0" + string(b"none") * 2 + string(b"") + struct.pack(">I", 1)
    text = base64.encodebytes(head + string(public) + string(secret)).decode()
    path.write_text(f"-----BEGIN OPENSSH PRIVATE KEY-----\n{text}-----END OPENSSH PRIVATE KEY-----\n")
    path.chmod(0o600)


@pytest.mark.parametrize("kind", ["fido", "dsa"])
def test_a_key_that_cannot_be_used_does_not_end_the_search(
    here: Here, cluster: Rig, tmp_path: Path, kind: str
) -> None:
    key = tmp_path / "first"
    if kind == "fido":
        fido_file(key)
    else:
        keygen(key, "-t", "dsa")
    with logged_in_by(cluster, key, cluster.home / ".ssh/elsewhere"):
        code, _, err = here("--cluster", "uni", "job.sh")
    assert (code, len(cluster.jobs), "Warning" in err) == (0, 1, False), err
    with logged_in_by(cluster, key):
        code, _, err = here("--cluster", "uni", "job.sh")
    assert code == 1
    assert "a key of a FIDO token has to be in the agent (ssh-add)" in err


def test_a_broken_certificate_leaves_the_key_beside_it(here: Here, cluster: Rig, tmp_path: Path) -> None:
    key = tmp_path / "id"
    key.write_bytes((cluster.home / ".ssh/key").read_bytes())
    (tmp_path / "id-cert.pub").write_text("ssh-ed25519-cert-v01@openssh.com AAAA\n")
    with logged_in_by(cluster, key):
        code, _, err = here("--cluster", "uni", "job.sh")
    assert code == 0, err


@pytest.fixture
def authority(cluster: Rig) -> Authority:
    """Who signs people's keys; the login node `certified` takes only what it signed, and one plain key."""
    made = cluster.folder / "etc/people_ca"
    if not made.exists():
        keygen(made)
        cluster.start("certified", settings={"TrustedUserCAKeys": f"{made}.pub"})
    return made


def sign(authority: Authority, key: Path, *more: str) -> Path:
    words = ["-q", "-s", str(authority), "-I", "lab1", "-n", "lab1", *more, f"{key}.pub"]
    subprocess.run(["ssh-keygen", *words], check=True, capture_output=True)
    return key.with_name(f"{key.name}-cert.pub")


class TestCertificates:
    """Each key is offered with what was signed for it, and bare."""

    def test_an_expired_one_leaves_the_plain_key(
        self, here: Here, cluster: Rig, authority: Authority, tmp_path: Path
    ) -> None:
        key = tmp_path / "id"
        for end in ("", ".pub"):
            (tmp_path / f"id{end}").write_bytes((cluster.home / f".ssh/key{end}").read_bytes())
        key.chmod(0o600)
        sign(authority, key, "-V", "20200101:20200102")
        with logged_in_by(cluster, key, names=["certified"]):
            code, _, err = here("--cluster", "uni", "job.sh")
        assert code == 0, err

    def test_beside_a_key_under_the_name_that_ssh_uses(
        self, here: Here, cluster: Rig, authority: Authority, tmp_path: Path
    ) -> None:
        keygen(key := tmp_path / "id")
        sign(authority, key)
        with logged_in_by(cluster, key, names=["certified"]):
            assert here("--cluster", "uni", "job.sh")[0] == 0

    def test_of_another_key_is_not_shown_with_this_one(
        self, here: Here, cluster: Rig, authority: Authority, tmp_path: Path
    ) -> None:
        """Two keys of one type, one certificate."""
        keygen(signed := tmp_path / "signed")
        certificate = sign(authority, signed).rename(tmp_path / "elsewhere-cert.pub")
        plain = cluster.home / ".ssh/elsewhere"
        for key in (plain, signed):
            with logged_in_by(cluster, key, more=f"  CertificateFile {certificate}\n", names=["certified"]):
                code, _, err = here("--cluster", "uni", "job.sh")
            assert code == 0, err

    @pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
    @pytest.mark.parametrize("when", ["before", "after"])
    def test_with_a_key_of_the_agent(
        self,
        here: Here,
        cluster: Rig,
        authority: Authority,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        kind: str,
        when: str,
    ) -> None:
        """ssh-add before signing: the agent has the bare key; after: the certificate as well."""
        keygen(key := tmp_path / "id", "-t", kind)
        if when == "after":
            sign(authority, key)
        with agent(key) as socket:
            certificate = sign(authority, key) if when == "before" else Path("none")
            key.unlink()
            monkeypatch.setenv("SSH_AUTH_SOCK", socket)
            more = f"  CertificateFile {certificate}\n"
            if when == "after":
                (tmp_path / "id-cert.pub").unlink()
            with logged_in_by(cluster, tmp_path / "none", more=more, names=["certified"]):
                code, _, err = here("--cluster", "uni", "job.sh")
        assert code == 0, err

    def test_the_agent_has_only_the_certificate(
        self, here: Here, cluster: Rig, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As tools of certificate authorities add it."""
        keygen(key := tmp_path / "id", "-t", "rsa")
        sign(authority, key)
        with agent(key) as socket:
            monkeypatch.setenv("SSH_AUTH_SOCK", socket)
            subprocess.run(["ssh-add", "-q", "-d", "-k", str(key)], check=True)
            (tmp_path / "id-cert.pub").unlink()
            with logged_in_by(cluster, key, more="  IdentitiesOnly yes\n", names=["certified"]):
                code, _, err = here("--cluster", "uni", "job.sh")
        assert code == 0, err


class TestTheAgent:
    """What an agent may say."""

    def test_a_locked_file_without_its_public_half_names_a_key_of_the_agent(
        self, here: Here, cluster: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The public half stands in the private file, unencrypted."""
        locked = tmp_path / "locked"
        locked.write_bytes((cluster.home / ".ssh/key").read_bytes())
        locked.chmod(0o600)
        with agent(locked) as socket:
            subprocess.run(
                ["ssh-keygen", "-q", "-p", "-P", "", "-N", "sesame", "-f", str(locked)], check=True
            )
            monkeypatch.setenv("SSH_AUTH_SOCK", socket)
            with logged_in_by(cluster, locked, more="  IdentitiesOnly yes\n"):
                code, _, err = here("--cluster", "uni", "job.sh")
        assert code == 0, err

    def test_one_that_does_not_sign_is_asked_once_and_the_others_go_on(
        self, here: Here, cluster: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The card was pulled out."""
        authorized = cluster.folder / "etc/authorized_keys"
        before = authorized.read_text()
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
        with refusing(tmp_path / "agent") as token:
            authorized.write_text(before + token.public_line)
            try:
                with logged_in_by(cluster, cluster.home / ".ssh/elsewhere"):
                    code, _, err = here("--cluster", "uni", "job.sh")
            finally:
                authorized.write_text(before)
        assert (code, token.touched) == (0, 1), err

    def test_a_comment_that_is_no_text(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with token_agent(tmp_path / "agent") as token:
            monkeypatch.setattr(token, "comment", b"caf\xe9")
            with own_keys.agent_keys(str(tmp_path / "agent")) as found:
                assert [each.comment for each in found] == ["caf\ufffd"]
        assert "SSH_AUTH_SOCK" not in os.environ or os.environ["SSH_AUTH_SOCK"] != str(tmp_path / "agent")


@contextmanager
def refusing(path: Path) -> Iterator[TokenAgent]:
    with token_agent(path) as token:
        token.refuses = True
        yield token
