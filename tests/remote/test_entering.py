"""How a person gets in, and what is said when they do not: real sshds, real PAM, real keys."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from hpctools.remote import identities
from hpctools.remote.identities import Person
from tests.remote.rig import Here, Login, Rig, keygen

TOO_MANY = "Too many authentication failures"
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
        port, open_port = self.closed(cluster, "closed4"), cluster.logins[0].port
        cluster.know(port, open_port)
        cluster.configure({"closed4": port, "login1": open_port})
        code, _, err = here("--cluster", "uni", "job.sh")
        assert (code, len(cluster.jobs)) == (0, 1)
        assert err == "hp-submit: closed4 does not let lab1 in; it says:\n"


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
        login = asking(cluster, "asking")
        asked = somebody(monkeypatch, "424242")
        with logged_in_by(cluster, tmp_path / "none", names=["asking"]):
            code, _, err = here("--cluster", "uni", "job.sh")
        assert (code, len(asked), len(cluster.jobs)) == (0, 1, 1), (err, login.log.read_text())

    @pytest.mark.parametrize(("questions", "answers"), [("no", ["424242"]), ("yes", ["0", "424242"])])
    def test_a_password(
        self,
        here: Here,
        cluster: Rig,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        questions: str,
        answers: list[str],
    ) -> None:
        """Of a host that asks nothing else; of one whose question was not answered."""
        name = f"password-{questions}"
        more = {"KbdInteractiveAuthentication": questions, "AuthenticationMethods": "any"}
        login = asking(cluster, name, PasswordAuthentication="yes", **more)
        asked = somebody(monkeypatch, *answers)
        with logged_in_by(cluster, tmp_path / "none", names=[name]):
            code, _, err = here("--cluster", "uni", "job.sh")
        assert (code, asked[-1]) == (0, f"Password of lab1@{name}: "), (err, login.log.read_text())
        assert len(asked) == len(answers)

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


class TestAttempts:
    """sshd takes six (MaxAuthTries) and hangs up: that is no broken line."""

    def test_too_many_keys_are_one_login(
        self, here: Here, cluster: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        keys = [tmp_path / f"wrong{n}" for n in range(6)]
        for key in keys:
            keygen(key)
        logins = [cluster.start(name) for name in ("busy1", "busy2")]
        with agent(*keys[:5]) as socket:
            monkeypatch.setenv("SSH_AUTH_SOCK", socket)
            with logged_in_by(cluster, keys[5], names=["busy1", "busy2"]):
                code, _, err = here("--cluster", "uni", "job.sh")
        assert (code, "IdentitiesOnly yes" in err, err.count("busy")) == (1, True, 2), err
        assert used_up(*logins) == 1

    def test_the_file_after_five_keys_of_the_agent_is_the_sixth(
        self, here: Here, cluster: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        keys = [tmp_path / f"wrong{n}" for n in range(7)]
        for key in keys:
            keygen(key)
        with agent(*keys) as socket:
            monkeypatch.setenv("SSH_AUTH_SOCK", socket)
            with logged_in_by(cluster, cluster.home / ".ssh/elsewhere"):
                assert here("--cluster", "uni", "job.sh")[0] == 0

    def test_fewer_where_the_site_takes_fewer(self, here: Here, cluster: Rig, tmp_path: Path) -> None:
        keys = [tmp_path / f"wrong{n}" for n in range(3)]
        for key in keys:
            keygen(key)
        login = cluster.start("strict", settings={"MaxAuthTries": "3"})
        with logged_in_by(cluster, *keys, names=["strict"]):
            code, _, err = here("--cluster", "uni", "job.sh")
        assert (code, "takes no more attempts" in err) == (1, True), err
        assert used_up(login) == 1


def used_up(*logins: Login, limit: float = 10) -> int:
    """How often sshds hung up because of MaxAuthTries; they write it down after they did."""
    end = time.monotonic() + limit
    while not (said := "".join(each.log.read_text() for each in logins)).count(TOO_MANY):
        assert time.monotonic() < end, said
        time.sleep(0.02)
    return said.count(TOO_MANY)


class TestAsking:
    """What a person is asked, and how often."""

    @pytest.fixture
    def locked(self, cluster: Rig, tmp_path: Path) -> Path:
        key = tmp_path / "locked"
        key.write_bytes((cluster.home / ".ssh/key").read_bytes())
        key.chmod(0o600)
        subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "sesame", "-f", str(key)], check=True)
        return key

    def test_three_passphrases_and_no_fourth(
        self, here: Here, cluster: Rig, locked: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = somebody(monkeypatch, "a", "b", "c", "sesame")
        with logged_in_by(cluster, locked):
            assert (here("--cluster", "uni", "job.sh")[0], len(asked)) == (1, 3)

    def test_the_third_may_be_right(
        self, here: Here, cluster: Rig, locked: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = somebody(monkeypatch, "a", "b", "sesame")
        with logged_in_by(cluster, locked):
            assert (here("--cluster", "uni", "job.sh")[0], len(asked)) == (0, 3)

    @pytest.mark.parametrize("what", ["passphrase", "code"])
    def test_who_goes_is_not_asked_again(
        self, here: Here, cluster: Rig, locked: Path, monkeypatch: pytest.MonkeyPatch, what: str
    ) -> None:
        """Ctrl-D."""
        asked: list[str] = []

        def gone(prompt: str) -> str:
            asked.append(prompt)
            raise EOFError

        monkeypatch.setattr(identities, "at_terminal", lambda: Person(gone))
        names = ["login1"]
        if what == "code":
            asking(cluster, "left")
            names, locked = ["left"], locked.with_name("none")
        with logged_in_by(cluster, locked, names=names):
            code, _, err = here("--cluster", "uni", "job.sh")
        assert (code, len(asked)) == (1, 1), err

    def test_at_the_terminal_though_standard_input_is_none(self, cluster: Rig, locked: Path) -> None:
        """`hp-submit --cluster uni < script`: passphrases are asked at /dev/tty, as ssh does."""
        with logged_in_by(cluster, locked), terminal(cluster, piped=True) as (there, process):
            until(there, "Passphrase of")
            os.write(there, b"sesame\n")
            assert process.wait(60) == 0

    def test_interrupting_a_one_time_code_leaves_the_terminal_as_it_was(
        self, cluster: Rig, tmp_path: Path
    ) -> None:
        asking(cluster, "interrupted")
        with (
            logged_in_by(cluster, tmp_path / "none", names=["interrupted"]),
            terminal(cluster) as (there, process),
        ):
            until(there, "assword")
            assert not termios.tcgetattr(there)[3] & termios.ECHO
            os.write(there, b"\x03")
            assert process.wait(30) != 0
            assert termios.tcgetattr(there)[3] & termios.ECHO


def asking(cluster: Rig, name: str, **more: str) -> Login:
    """A login node that asks for a one-time code."""
    program = cluster.folder / "etc/ask"
    program.write_text("#!/bin/sh\n[ \"$(tr -d '\\0')\" = 424242 ]\n")
    program.chmod(0o755)
    settings = {"KbdInteractiveAuthentication": "yes", "AuthenticationMethods": "keyboard-interactive"}
    return cluster.start(name, pam=ASKED.format(program=program), settings={**settings, **more})


@contextmanager
def terminal(cluster: Rig, *, piped: bool = False) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """hp-submit in a terminal of its own: our end of it, and the process."""
    there, its = pty.openpty()
    words = ["setsid", "--ctty", sys.executable, "-m", "hpctools.cli.hp_submit", "--cluster", "uni"]
    script = 'exec "$@" <job.sh' if piped else 'exec "$@" job.sh'
    process = subprocess.Popen(
        [*words[:2], "sh", "-c", script, "sh", *words[2:]],
        stdin=its,
        stdout=its,
        stderr=its,
        cwd=cluster.home,
        env=cluster.environment,
    )
    try:
        yield there, process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(10)
        os.close(its)
        os.close(there)


def until(there: int, text: str, limit: float = 60) -> None:
    """Read a terminal until it shows a text."""
    end, shown = time.monotonic() + limit, b""
    while text.encode() not in shown:
        ready, _, _ = select.select([there], [], [], max(0, end - time.monotonic()))
        assert ready, shown
        shown += os.read(there, 4096)


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
    sick = cluster.start("sick2", settings=settings)
    first = cluster.logins[0].port
    cluster.know(sick.port, first)
    cluster.configure({"sick2": sick.port, "login1": first})
    config = cluster.home / ".config/hpctools/clusters.yaml"
    config.write_text("clusters:\n  uni: {login_nodes: [sick2, login1]}\n")
    code, _, err = here("--cluster", "uni", "job.sh")
    assert (code, len(cluster.jobs)) == (0, 1), err
    assert err.startswith("hp-submit: `hp-submit` on sick2 failed with exit code 1: hp-submit: no such file")
    config.write_text("clusters:\n  uni: {login_nodes: [sick2]}\n")
    code, _, err = here("--cluster", "uni", "job.sh")
    assert (code, "try it there: ssh sick2 hp-submit --version" in err) == (1, True)


def test_a_node_without_its_homes_is_passed_over(here: Here, cluster: Rig) -> None:
    """No authorized_keys there: each node is asked once, and if none takes a key, that is what is said."""
    empty = cluster.folder / "etc/no_keys"
    empty.write_text("")
    homeless = cluster.start("homeless4", settings={"AuthorizedKeysFile": str(empty)})
    first = cluster.logins[0].port
    cluster.know(homeless.port, first)
    cluster.configure({"homeless4": homeless.port, "login1": first})
    code, _, err = here("--cluster", "uni", "job.sh")
    key = cluster.home / ".ssh/key"
    no = f"hp-submit: homeless4 does not let lab1 in with {key}"
    assert (code, len(cluster.jobs), err) == (0, 1, f"{no}\n")
    cluster.configure({"homeless4": homeless.port})
    code, _, err = here("--cluster", "uni", "job.sh")
    assert (code, len(cluster.jobs), err.startswith(no), "try `ssh homeless4`" in err) == (1, 1, True, True)
    assert homeless.log.read_text().count("Failed publickey") <= 2
