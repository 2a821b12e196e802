"""People whom only a real slapd knows log in through real sshd, PAM and sssd, which lifecycle steps make."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hpctools.hyperpod.identity import identity_settings
from tests.identity.machine import Machine, machine
from tests.identity.sites import site
from tests.identity.slapd import (
    BASE,
    READER,
    READER_PASSWORD,
    Slapd,
    dn_of,
    group_of_names,
    person,
    posix_group,
    slapd,
)

pytestmark = pytest.mark.system

SECRETS = (READER_PASSWORD, "secret-of-ada", "secret-of-bob")
PEOPLE = (
    person("ada", 20001, password="secret-of-ada", home="/etc"),
    person("bob", 20002, password="secret-of-bob"),
    person("eve", 20003, gid=20099, password="secret"),
    person("toor", 0, password="secret"),
    person("low", 150, password="secret"),
    person("ubuntu", 20009, password="secret"),
    person("local-admin", 20011, password="of-the-directory"),
    posix_group("hpc-users", 20000, "ada", "bob", "toor", "low", "ubuntu", "local-admin"),
    posix_group("lab-a", 20050, "ada"),
    posix_group("tenth", 10, "ada"),  # uucp's number on Debian
    posix_group("sudo", 20051, "ada"),
    posix_group("operators", 20052, "ada"),  # a group of the machine, which may have rights by its name
    posix_group("others", 20099),
)
WHERE = "id -u; id -Gn; pwd; stat -c '%a %U' . .from-skeleton"


@dataclass
class Rig:
    directory: Slapd
    machine: Machine
    folder: Path

    def settings(self, **identity: Any) -> dict[str, Any]:
        """What the node is told; `identity` changes the site."""
        stated: dict[str, Any] = {
            "uris": [f"ldaps://127.0.0.1:{self.directory.tls_port}"],
            "first_id": 10000,
            "login_groups": ["hpc-users"],
            "tls": {"ca_certificate": self.directory.ca.read_text()},
            "bind": {"dn": READER, "secret": {"file": str(self.folder / "password")}},
        }
        return identity_settings(site(**{**stated, **identity}))

    def configure(self, **identity: Any) -> dict[str, Any]:
        """Run the step; returns what it was told."""
        settings = self.settings(**identity)
        done = self.machine.step("26-sssd", "do", settings)
        assert done.returncode == 0, done.stderr
        return settings

    def logins(self, *attempts: tuple[str, str], command: str = "id -un") -> list[Any]:
        """Log in at once with passwords: a refusal takes seconds, on purpose."""
        with ThreadPoolExecutor(len(attempts)) as threads:
            return list(threads.map(lambda attempt: self.machine.login(*attempt, command), attempts))

    def admitted(self, *attempts: tuple[str, str]) -> list[bool]:
        found = self.logins(*attempts)
        for (user, _), done in zip(attempts, found, strict=True):
            assert (done.returncode, done.stdout) in ((0, f"{user}\n"), (255, "")), done.stderr
        return [done.returncode == 0 for done in found]


@pytest.fixture(scope="module")
def configured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("identity")
    with slapd(folder / "slapd", "\n".join(PEOPLE)) as directory, machine(folder / "machine") as node:
        (folder / "password").write_text(READER_PASSWORD + "\n")
        (folder / "password").chmod(0o600)
        made = Rig(directory, node, folder)
        settings = made.settings()
        assert node.step("26-sssd", "check", settings).returncode == 1
        made.configure()
        assert node.step("26-sssd", "check", settings).returncode == 0
        node.start_sshd()
        yield made


@pytest.fixture
def rig(configured: Rig) -> Iterator[Rig]:
    """The machine as the step leaves it, with a directory that answers."""
    yield configured
    was_dead = configured.directory.process is None
    if was_dead:
        configured.directory.start()
    if was_dead or configured.machine.step("26-sssd", "check", configured.settings()).returncode != 0:
        configured.configure()


def forget(rig: Rig) -> None:
    """As if nobody had ever logged in."""
    rig.machine.ok("systemctl", "stop", "sssd")
    rig.machine.ok("sh", "-c", "rm -f /var/lib/sss/db/* /var/lib/sss/mc/*")


def test_a_second_run_changes_nothing_and_the_reader_password_is_root_s_alone(rig: Rig) -> None:
    look = ("stat", "-c", "%n %a %U %i", "/etc/sssd/sssd.conf", "/etc/sssd/conf.d/50-hpctools-bind.conf")
    kept = (
        "cat",
        "/etc/sssd/sssd.conf",
        "/etc/nsswitch.conf",
        "/etc/pam.d/common-auth",
        "/etc/pam.d/common-session",
    )
    before = rig.machine.ok(*look), rig.machine.ok(*kept)
    settings = rig.configure()
    assert (rig.machine.ok(*look), rig.machine.ok(*kept)) == before
    assert [line.split()[1:3] for line in before[0].splitlines()] == [["600", "root"]] * 2
    sources = [
        line.split() for line in before[1].splitlines() if line.startswith(("passwd:", "group:", "shadow:"))
    ]
    assert [words[1:3] for words in sources] == [["files", "sss"]] * 3
    assert before[1].count("pam_mkhomedir.so") == 1
    assert rig.machine.step("26-sssd", "check", settings).returncode == 0
    assert READER_PASSWORD not in json.dumps(settings)
    assert READER_PASSWORD not in rig.machine.ok("cat", "/etc/sssd/sssd.conf")
    running = rig.machine.ok("sh", "-c", "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ | tr '\\0' ' '")
    assert "sssd_be" in running
    assert READER_PASSWORD not in running


def test_what_was_written_and_not_read_is_read_by_the_next_run(rig: Rig) -> None:
    """As a run leaves it that is killed before it restarts sssd."""
    settings = rig.settings()
    rig.machine.ok("touch", "/etc/sssd/conf.d/50-hpctools-bind.conf")
    assert rig.machine.step("26-sssd", "check", settings).returncode == 1
    rig.configure()
    assert rig.machine.step("26-sssd", "check", settings).returncode == 0


def test_a_person_of_the_directory_gets_in_with_groups_and_a_home_of_their_own(rig: Rig) -> None:
    [done] = rig.logins(("ada", "secret-of-ada"), command=WHERE)
    # The directory says that ada's home is /etc, and that she is in groups of the machine.
    assert done.stdout.splitlines() == ["20001", "hpc-users lab-a", "/home/ada", "700 ada", "600 ada"], (
        done.stderr
    )
    logs = rig.machine.ok("sh", "-c", "cat /var/log/sssd/* /run/sshd/log /var/log/auth.log 2>/dev/null; true")
    assert "Accepted password for ada" in logs
    assert [secret for secret in SECRETS if secret in logs] == []


def test_nobody_else_gets_in(rig: Rig) -> None:
    """Wrong password; not in the group; uid 0; the machine's numbers and names, its administrator's too."""
    attempts = {
        ("ada", "wrong"): False,
        ("ada", ""): False,
        ("eve", "secret"): False,
        ("toor", "secret"): False,
        ("low", "secret"): False,
        ("ubuntu", "secret"): False,
        ("local-admin", "of-the-directory"): False,
        ("local-admin", "of-the-machine"): True,
    }
    assert dict(zip(attempts, rig.admitted(*attempts), strict=True)) == attempts
    known = rig.machine.run("getent", "passwd", "toor", "low", "ubuntu", "local-admin").stdout.splitlines()
    assert [line.split(":")[2] for line in known] == ["1900"]


def test_without_the_directory_those_who_were_here_get_in_and_are_told(rig: Rig) -> None:
    assert rig.admitted(("ada", "secret-of-ada")) == [True]
    rig.directory.stop()
    [ada, *others] = rig.logins(
        ("ada", "secret-of-ada"),
        ("ada", "wrong"),
        ("bob", "secret-of-bob"),
        ("local-admin", "of-the-machine"),
    )
    assert ada.stdout == "ada\n"
    assert "Authenticated with cached credentials, your cached password will expire at" in ada.stderr
    assert [done.returncode for done in others] == [255, 255, 0]


def test_without_the_directory_nobody_of_it_gets_in_where_the_site_says_so(rig: Rig) -> None:
    assert rig.admitted(("ada", "secret-of-ada")) == [True]
    rig.configure(cache={"logins": False})
    assert rig.admitted(("ada", "secret-of-ada")) == [True]
    rig.directory.stop()
    assert rig.admitted(("ada", "secret-of-ada"), ("local-admin", "of-the-machine")) == [False, True]


def test_without_sssd_administrators_get_in(rig: Rig) -> None:
    rig.machine.ok("systemctl", "stop", "sssd")
    assert rig.machine.step("26-sssd", "check", rig.settings()).returncode == 1
    assert rig.admitted(("ada", "secret-of-ada"), ("local-admin", "of-the-machine")) == [False, True]


def test_start_tls_and_locked_accounts(rig: Rig) -> None:
    """Over ldap:// with StartTLS; a filter says who may log in, and then expired accounts may not."""
    expired = f"dn: uid=bob,ou=people,{BASE}\nchangetype: modify\n"
    rig.directory.change(
        f"{expired}add: objectClass\nobjectClass: shadowAccount\n-\nadd: shadowExpire\nshadowExpire: 1\n"
    )
    filtered = {"login_groups": [], "login_filter": "(|(uid=ada)(uid=bob))"}
    forget(rig)
    rig.configure(uris=[f"ldap://127.0.0.1:{rig.directory.port}"], **filtered)
    attempts = (("ada", "secret-of-ada"), ("bob", "secret-of-bob"), ("eve", "secret"))
    assert rig.admitted(*attempts) == [True, False, False]
    rig.directory.change(
        f"{expired}delete: shadowExpire\n-\ndelete: objectClass\nobjectClass: shadowAccount\n"
    )


def test_groups_of_entries_and_of_groups(rig: Rig, tmp_path: Path) -> None:
    """rfc2307bis: who is in a group that is in the group may log in; the machine's groups are nobody's."""
    entries = (
        person("cara", 20011, gid=20090, password="secret"),
        person("dora", 20012, gid=20090, password="secret"),
        group_of_names("hpc-users", f"cn=lab-z,ou=groups,{BASE}", gid=20000),
        group_of_names("lab-z", dn_of("cara"), gid=20091),
        group_of_names("everybody", dn_of("cara"), dn_of("dora"), gid=20090),
        group_of_names("tenth", dn_of("cara"), gid=10),
        group_of_names("sudo", dn_of("cara"), gid=20092),
    )
    with slapd(tmp_path / "slapd", "\n".join(entries), bis=True) as other:
        forget(rig)
        tls = {"ca_certificate": other.ca.read_text()}
        rig.configure(uris=[f"ldaps://127.0.0.1:{other.tls_port}"], tls=tls, ldap_schema="rfc2307bis")
        cara, dora = rig.logins(("cara", "secret"), ("dora", "secret"), command="id -Gn")
        assert sorted(cara.stdout.split()) == ["everybody", "hpc-users", "lab-z"], cara.stderr
        assert (dora.returncode, dora.stdout) == (255, "")
    forget(rig)


def test_a_server_that_cannot_prove_who_it_is_is_not_asked(rig: Rig, tmp_path: Path) -> None:
    """The node comes up and says so; nobody of the directory gets in, also with what was remembered."""
    forget(rig)
    done = rig.machine.step("26-sssd", "do", rig.settings(tls={}))
    assert done.returncode == 0, done.stderr
    assert "warning: the directory does not answer" in done.stdout
    assert rig.admitted(("ada", "secret-of-ada"), ("local-admin", "of-the-machine")) == [False, True]


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        ("x\n", 0o644, "others may read"),
        ("\n", 0o600, "is empty"),
        ("two words \n", 0o600, "blanks around it"),
    ],
)
def test_a_password_that_cannot_be_used_is_refused_in_words(
    rig: Rig, tmp_path: Path, text: str, mode: int, words: str
) -> None:
    (tmp_path / "password").write_text(text)
    (tmp_path / "password").chmod(mode)
    bind = {"dn": READER, "secret": {"file": str(tmp_path / "password")}}
    done = rig.machine.step("26-sssd", "do", rig.settings(bind=bind))
    assert (done.returncode, done.stdout) == (78, "")
    assert words in done.stderr


def homes(
    rig: Rig, *users: str, root: str = "/home/shared", role: str = "controller"
) -> tuple[dict[str, Any], Mapping[str, str]]:
    stated = rig.settings(homes={"make": "by_step", "root": root})
    stated["homes"]["users"] = list(users)
    return stated, {"HPCTOOLS_ROLE": role}


def test_homes_are_made_whole_for_those_whom_the_node_knows(rig: Rig) -> None:
    told, role = homes(rig, "ada", "bob", "gone", "toor")
    rig.machine.ok("sh", "-c", "mkdir -p /home/shared/.hpctools-new-left/x; ln -s /etc /home/shared/bob")
    assert rig.machine.step("27-homes", "check", told, **role).returncode == 1
    done = rig.machine.step("27-homes", "do", told, **role)
    assert done.returncode == 0, done.stderr
    assert "toor has no home" in done.stdout
    assert rig.machine.step("27-homes", "check", told, **role).returncode == 0
    there = rig.machine.ok("find", "/home/shared", "-mindepth", "1", "-printf", "%P %m %u %y\n").splitlines()
    assert sorted(line for line in there if "/." not in line) == ["ada 700 ada d", "bob 777 root l"]
    assert "ada/.from-skeleton 644 ada f" in there
    assert rig.machine.step("27-homes", "do", told, **role).stdout == "".join(
        f"{name} has no home: no account on this node, or one of the machine's own\n"
        for name in ("gone", "toor")
    )
    assert (
        rig.machine.step(
            "27-homes", "check", *homes(rig, "bob", role="login")[:1], HPCTOOLS_ROLE="login"
        ).returncode
        == 0
    )


def test_homes_where_root_has_no_rights_are_refused_in_words(rig: Rig) -> None:
    """Root squash answers as the kernel does to a root without the capability to change owners."""
    told, role = homes(rig, "ada", root="/home/squashed")
    rig.machine.ok("mkdir", "/home/squashed")
    done = rig.machine.step("27-homes", "do", told, prefix=("setpriv", "--bounding-set=-chown"), **role)
    assert done.returncode == 78
    assert "root may not make homes in /home/squashed" in done.stderr
    assert rig.machine.ok("ls", "-A", "/home/squashed") == ""
