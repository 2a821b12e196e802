"""Who is in a group of a real slapd becomes a member of a lab in a real slurmdbd; nobody goes by accident."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpctools.sandbox.cluster import Sandbox
from hpctools.sandbox.fall import down
from hpctools.sandbox.rise import up
from hpctools.slurm.run import Completed, run
from tests.identity.slapd import BASE, READER, READER_PASSWORD, Slapd, dn_of, person, posix_group, slapd
from tests.system.harness import Cluster

pytestmark = pytest.mark.system

HOSTILE = ("Robert'); DROP", "root", "x account=root", "a,b", "Ada", "ünal", "x" * 33, "slurm")
STUDENTS = tuple(f"st{number}" for number in range(6))


def entries() -> str:
    """Two labs with ordinary people, and one with people who were never up to any good."""
    people = [person(name, 30000 + number) for number, name in enumerate(("ada", "bob", *STUDENTS))]
    dns = [f"cn=hostile{number},ou=people,{BASE}" for number in range(len(HOSTILE))]
    hostile = [person(name, 31000 + number, dn=dns[number]) for number, name in enumerate(HOSTILE)]
    odd = [person("toor", 0), person("twin1", 32000), person("twin2", 32000)]
    groups = [
        posix_group("speech", 20001, "ada", *HOSTILE, "toor", "twin1", "twin2", "nobody-has-this"),
        posix_group("vision", 20002, "bob", *STUDENTS),
    ]
    return "\n".join([*people, *hostile, *odd, *groups])


class Rig:
    def __init__(self, cluster: Cluster, directory: Slapd, folder: Path, site: Path) -> None:
        self.cluster = cluster
        self.directory = directory
        password = folder / "password"
        password.write_text(READER_PASSWORD)
        password.chmod(0o600)
        identity = {
            "directory": "ldap",
            "domain": "uni.example",
            "uris": [f"ldaps://127.0.0.1:{directory.tls_port}"],
            "base": BASE,
            "tls": {"ca_file": str(directory.ca)},
            "bind": {"dn": READER, "secret": {"file": str(password)}},
            "login_groups": ["hpc-users"],
        }
        text = site.read_text()
        text = text[: text.index("# Who the people are")] + f"identity: {json.dumps(identity)}\n"
        for lab, group in (("nlp-lab-b", "speech"), ("dl-lab-a", "vision")):
            assert text.count(f"name: {lab}\n") == 1
            text = text.replace(f"name: {lab}\n", f"name: {lab}\n        members_from: [{group}]\n")
        self.site = cluster.sandbox.layout.slurm_conf / "site.yaml"
        self.site.write_text(text)

    def sync(self, *words: str) -> Completed:
        """As the person who runs the cluster: the sandbox's own network has no directory."""
        argv = [sys.executable, "-m", "hpctools.cli.main", "identity", "sync", str(self.site), *words]
        return run(argv, timeout=60, check=False)

    def apply(self, *words: str) -> Any:
        return json.loads(
            self.cluster.inside("hpctools", "apply", "--yes", "--json", *words, timeout=90).stdout
        )

    def members(self, account: str) -> set[str]:
        argv = ("sacctmgr", "-nP", "show", "assoc", f"account={account}", "format=User")
        return set(self.cluster.inside(*argv).stdout.split())

    def leave(self, group: str, *names: str) -> None:
        gone = "\n-\n".join(f"delete: memberUid\nmemberUid: {name}" for name in names)
        self.directory.change(f"dn: cn={group},ou=groups,{BASE}\nchangetype: modify\n{gone}\n")


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory, site_file: Path) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("directory")
    sandbox = Sandbox(tmp_path_factory.mktemp("accounts") / "state")
    with slapd(folder / "slapd", entries()) as directory:
        try:
            up(sandbox, site_file, 1, lambda name, seconds: None)
            yield Rig(Cluster(sandbox), directory, folder, site_file)
        finally:
            down(sandbox)


@pytest.mark.slow
def test_groups_become_members_and_nobody_goes_by_accident(rig: Rig) -> None:
    speech, vision = {"nlp3", "nlp-cv1", "nlp-lead-b"}, {"dl1", "dl2", "dl-lead-a"}
    members = rig.site.with_name("members.yaml")

    # Nobody has read the directory: somebody whom only slurmdbd knows may be in it, and stays.
    rig.cluster.inside("sacctmgr", "-i", "add", "user", "guest", "account=dl-lab-a")
    plan = rig.cluster.inside("hpctools", "plan", "--prune", "--json").stdout
    why = "the directory may name them, and was not read: hpctools identity sync"
    assert f"association guest in dl-lab-a stays: {why}" in json.loads(plan)["warnings"]

    # Whoever may be somebody becomes a member, and nobody else.
    done = rig.sync()
    assert done.code == 1, done.stderr
    refused = {
        line.split(": ")[1] for line in done.stdout.splitlines() if line.startswith("! refused in speech")
    }
    expected = {f"cn=hostile{number},ou=people,{BASE}" for number in range(len(HOSTILE))}
    assert refused == expected | {dn_of("toor"), dn_of("twin1"), dn_of("twin2"), "nobody-has-this"}
    rig.apply("--prune")
    assert rig.members("nlp-lab-b") == speech | {"ada"}
    assert rig.members("dl-lab-a") == vision | {"bob", *STUDENTS}
    everybody = rig.cluster.inside("sacctmgr", "-nP", "show", "assoc", "format=Account,User").stdout
    assert [line for line in everybody.splitlines() if line.startswith("root|")] == ["root|", "root|root"]

    # A second time nothing is written.
    before = (members.stat().st_mtime_ns, members.read_text())
    assert rig.sync().stdout.splitlines()[-1] == f"{members}: nothing has changed"
    assert (members.stat().st_mtime_ns, members.read_text()) == before

    # One student leaves: the next apply takes the membership.
    rig.leave("vision", "st0")
    assert "- vision: st0" in rig.sync().stdout

    # Nearly all leave at once, then all, then the directory is gone: everybody else stays, and it is said.
    rig.leave("vision", *STUDENTS[2:])
    done = rig.sync()
    assert (done.code, "! vision stays as it was: 4 of 6 would leave at once" in done.stdout) == (1, True)
    rig.leave("vision", "bob", "st1")
    assert "! vision stays as it was: it is empty now, and had 6" in rig.sync().stdout
    rig.directory.stop()
    text = members.read_text()
    done = rig.sync()
    assert (done.code, done.stdout) == (3, "")
    assert "does not tell" in done.stderr
    assert members.read_text() == text
    rig.apply("--prune")
    assert rig.members("dl-lab-a") == vision | {"bob", *STUDENTS[1:]}

    # A person has looked: now they go.
    rig.directory.start()
    rig.sync("--accept-removals", "vision")
    rig.apply("--prune")
    assert rig.members("dl-lab-a") == vision
