"""How a person gets in, and what is said when they do not: real sshds, real PAM, real keys."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from hpctools.remote import identities
from hpctools.remote.identities import Person
from tests.remote.rig import Here, Rig, keygen

CLOSED = "The cluster is being moved.\nBack on Monday.\n"
DOOR = """\
auth required pam_permit.so
account requisite pam_nologin.so file={file}
account required pam_permit.so
session required pam_permit.so
"""
ASKED = """\
auth required pam_exec.so expose_authtok quiet {program}
auth required pam_permit.so
account required pam_permit.so
session required pam_permit.so
"""


@contextmanager
def logged_in_by(cluster: Rig, *keys: Path, more: str = "", names: Sequence[str] = ()) -> Iterator[None]:
    """The laptop has other keys than the one that everybody is let in with."""
    ssh = cluster.home / ".ssh"
    for end in ("", ".pub"):
        (ssh / f"key{end}").rename(ssh / f"elsewhere{end}")
    files = "".join(f"  IdentityFile {key}\n" for key in keys)
    ports = {login.name: login.port for login in cluster.logins if login.name in (names or ("login1",))}
    cluster.configure(ports, more=f"Host *\n{files}{more}")
    cluster.know(*ports.values())
    try:
        yield
    finally:
        for end in ("", ".pub"):
            (ssh / f"elsewhere{end}").rename(ssh / f"key{end}")


@contextmanager
def agent(*keys: Path) -> Iterator[str]:
    """A real ssh-agent that has keys; its socket."""
    said = subprocess.run(["ssh-agent", "-s"], capture_output=True, text=True, check=True).stdout
    parts = dict(part.split("=", 1) for part in said.replace(";", "\n").splitlines() if "=" in part)
    try:
        environment = {**os.environ, "SSH_AUTH_SOCK": parts["SSH_AUTH_SOCK"]}
        for key in keys:
            subprocess.run(["ssh-add", "-q", str(key)], check=True, env=environment)
        yield parts["SSH_AUTH_SOCK"]
    finally:
        os.kill(int(parts["SSH_AGENT_PID"]), 15)


def somebody(monkeypatch: pytest.MonkeyPatch, *answers: str) -> list[str]:
    """Somebody at the terminal, who answers one thing after the other; what they were asked."""
    asked: list[str] = []

    def answer(prompt: str) -> str:
        asked.append(prompt)
        return answers[len(asked) - 1]

    monkeypatch.setattr(identities, "at_terminal", lambda: Person(answer))
    return asked


class TestPam:
    """A key is taken, and PAM says no: the reason comes as a banner, and then sshd hangs up."""

    def closed(self, cluster: Rig, name: str, settings: dict[str, str] | None = None) -> int:
        reason = cluster.folder / "etc/closed"
        reason.write_text(CLOSED)
        return cluster.start(name, pam=DOOR.format(file=reason), settings=settings).port

    def test_its_words_are_told_and_nothing_is_uncertain(self, here: Here, cluster: Rig) -> None:
        port = self.closed(cluster, "closed1")
        cluster.know(port)
        cluster.configure({"closed1": port})
        code, out, err = here("--cluster", "uni", "job.sh")
        assert (code, out, cluster.jobs) == (1, "", [])
        assert err == f"hp-submit: closed1 does not let lab1 in; it says:\n{CLOSED}"
        log = cluster.logins[-1].log.read_text()
        assert log.count("Accepted publickey") + log.count("Access denied for user lab1") == 1, log

    def test_behind_a_banner_for_everybody(self, here: Here, cluster: Rig) -> None:
        """A notice that sshd shows to all who come is not the reason."""
        notice = cluster.folder / "etc/notice"
        notice.write_text("Authorized use only.\n")
        port = self.closed(cluster, "closed2", {"Banner": str(notice)})
        cluster.know(port)
        cluster.configure({"closed2": port})
        code, _, err = here("--cluster", "uni", "job.sh")
        assert (code, err) == (1, f"hp-submit: closed2 does not let lab1 in; it says:\n{CLOSED}")

    def test_another_node_may_let_in(self, here: Here, cluster: Rig) -> None:
        port, open_port = self.closed(cluster, "closed3"), cluster.logins[0].port
        cluster.know(port, open_port)
        cluster.configure({"closed3": port, "login1": open_port})
        code, _, err = here("--cluster", "uni", "job.sh")
        assert (code, len(cluster.jobs)) == (0, 1)
        assert err == "hp-submit: closed3 does not let lab1 in; it says:\n"


class TestKeys:
    """What ssh can do with keys and paramiko, too."""

    def test_a_passphrase_is_asked_for_once_right(
        self, here: Here, cluster: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        key = tmp_path / "locked"
        key.write_bytes((cluster.home / ".ssh/key").read_bytes())
        key.chmod(0o600)
        subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "sesame", "-f", str(key)], check=True)
        asked = somebody(monkeypatch, "wrong", "sesame")
        with logged_in_by(cluster, key):
            code, _, err = here("--cluster", "uni", "job.sh")
        assert (code, asked) == (0, [f"Passphrase of {key}: "] * 2), err
        monkeypatch.setattr(identities, "at_terminal", lambda: Person(None))
        with logged_in_by(cluster, key):
            assert here("--cluster", "uni", "job.sh")[0] == 1  # nobody is there to be asked

    def test_questions_of_the_host(
        self, here: Here, cluster: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """keyboard-interactive, as one-time codes come: by PAM."""
        program = cluster.folder / "etc/ask"
        program.write_text("#!/bin/sh\n[ \"$(tr -d '\\0')\" = 424242 ]\n")
        program.chmod(0o755)
        login = cluster.start(
            "asking",
            pam=ASKED.format(program=program),
            settings={"KbdInteractiveAuthentication": "yes", "AuthenticationMethods": "keyboard-interactive"},
        )
        asked = somebody(monkeypatch, "424242")
        with logged_in_by(cluster, tmp_path / "none", names=["asking"]):
            code, _, err = here("--cluster", "uni", "job.sh")
        assert (code, len(asked), len(cluster.jobs)) == (0, 1, 1), (err, login.log.read_text())

    def test_a_certificate_of_a_persons_key(self, here: Here, cluster: Rig, tmp_path: Path) -> None:
        """CertificateFile; the bare key lets nobody in."""
        keygen(authority := cluster.folder / "etc/people_ca")
        keygen(key := tmp_path / "signed")
        words = ["-q", "-s", str(authority), "-I", "lab1", "-n", "lab1", f"{key}.pub"]
        subprocess.run(["ssh-keygen", *words], check=True, capture_output=True)
        cluster.start("certified", settings={"TrustedUserCAKeys": f"{authority}.pub"})
        certificate = tmp_path / "elsewhere-cert.pub"
        (tmp_path / "signed-cert.pub").rename(certificate)
        with logged_in_by(cluster, key, names=["certified"]):
            assert here("--cluster", "uni", "job.sh")[0] == 1
        more = f"  CertificateFile {certificate}\n"
        with logged_in_by(cluster, key, more=more, names=["certified"]):
            code, _, err = here("--cluster", "uni", "job.sh")
        assert (code, len(cluster.jobs)) == (0, 1), err

    def test_identities_only_leaves_the_agents_others_alone(
        self, here: Here, cluster: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ssh = cluster.home / ".ssh"
        keygen(other := tmp_path / "other")
        with agent(ssh / "key") as socket:
            monkeypatch.setenv("SSH_AUTH_SOCK", socket)
            with logged_in_by(cluster, other):
                assert here("--cluster", "uni", "job.sh")[0] == 0
            with logged_in_by(cluster, other, more="  IdentitiesOnly yes\n"):
                code, _, err = here("--cluster", "uni", "job.sh")
        assert (code, f"does not let lab1 in with {other}" in err) == (1, True), err


class TestHostKeys:
    """A login node that has other keys than before."""

    def test_a_replaced_key_stops_all_even_where_another_node_is_known(
        self, here: Here, cluster: Rig
    ) -> None:
        keygen(changed := cluster.folder / "etc/changed_key")
        port = cluster.start("replaced", settings={"HostKey": str(changed)}).port
        first = cluster.logins[0].port
        cluster.know(port, first)
        cluster.configure({"replaced": port, "login1": first})
        code, _, err = here("--cluster", "uni", "job.sh")
        assert (code, cluster.jobs) == (1, [])
        assert "replaced shows another host key than the known one" in err

    def test_a_rotated_key_needs_no_question_while_both_are_proved(self, here: Here, cluster: Rig) -> None:
        """As `hpctools login host-keys rotate --begin` has it: the node has the old one and the next."""
        keygen(following := cluster.folder / "etc/next_key", "-t", "ecdsa")
        old = cluster.folder / "etc/host_key"
        port = cluster.start("rotating", settings={"HostKey": f"{old}\nHostKey {following}"}).port
        cluster.know(port)
        cluster.configure({"rotating": port})
        assert here("--cluster", "uni", "job.sh")[0] == 0
        key = " ".join(following.with_suffix(".pub").read_text().split()[:2])
        (cluster.home / ".ssh/known_hosts").write_text(f"[127.0.0.1]:{port} {key}\n")
        code, _, err = here("--cluster", "uni", "job.sh")
        assert (code, len(cluster.jobs)) == (0, 2), err


def test_variables_of_the_site_come_from_sshd(here: Here, cluster: Rig) -> None:
    """sshd starts no login shell for `--cluster`, so nothing of /etc/profile.d; SetEnv reaches it."""
    login = cluster.start("priced", more="HPCTOOLS_BUDGET=refuse")
    cluster.know(login.port)
    cluster.configure({"priced": login.port})
    code, _, err = here("--cluster", "uni", "job.sh")
    assert (code, cluster.jobs) == (1, []), err
    assert "this site submits nothing without it" in err


def test_a_node_on_which_hp_submit_cannot_run_is_passed_over(here: Here, cluster: Rig) -> None:
    """/opt is not mounted there: nothing was asked of it, and another node does it."""
    broken = cluster.folder / "etc/no-python"
    broken.mkdir(exist_ok=True)
    (broken / "hp-submit").write_text("#!/bin/sh\necho 'hp-submit: no such file or directory' >&2; exit 1\n")
    (broken / "hp-submit").chmod(0o755)
    sound = cluster.folder / "bin/hp-submit"
    sound.write_text(f'#!/bin/sh\nexec {sys.executable} -m hpctools.cli.hp_submit "$@"\n')
    sound.chmod(0o755)
    settings = {"SetEnv": f"PATH={broken}:/usr/bin:/bin"}
    sick = cluster.start("sick", settings=settings)
    first = cluster.logins[0].port
    cluster.know(sick.port, first)
    cluster.configure({"sick": sick.port, "login1": first})
    config = cluster.home / ".config/hpctools/clusters.yaml"
    config.write_text("clusters:\n  uni: {login_nodes: [sick, login1]}\n")
    code, _, err = here("--cluster", "uni", "job.sh")
    assert (code, len(cluster.jobs)) == (0, 1), err
    assert err.startswith("hp-submit: `hp-submit` on sick failed with exit code 1: hp-submit: no such file")
    config.write_text("clusters:\n  uni: {login_nodes: [sick]}\n")
    code, _, err = here("--cluster", "uni", "job.sh")
    assert (code, "try it there: ssh sick hp-submit --version" in err) == (1, True)
