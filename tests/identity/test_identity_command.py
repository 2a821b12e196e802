"""`hpctools identity` as the person who runs the cluster uses it, on a real slapd."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.identity.sites import HEAD, site_text
from tests.identity.slapd import BASE, READER, READER_PASSWORD, Slapd, dn_of, person, posix_group, slapd

pytestmark = pytest.mark.system

ENTRIES = (
    person("ada", 20001),
    person("bob", 20002, gid=20010),
    person("toor", 0),
    posix_group("lab-a", 20000, "ada", "toor"),
    posix_group("lab-b", 20010, "bob"),
    posix_group("lab b guests", 20011, "ada"),
)


REFUSED = (
    f"! refused in lab-a: {dn_of('toor')}: the uid 0 is one of the machines' own (people have 1000 and above)"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slapd]:
    with slapd(tmp_path_factory.mktemp("directory") / "slapd", "\n".join(ENTRIES)) as made:
        yield made


@pytest.fixture
def site_file(server: Slapd, tmp_path: Path) -> Path:
    (tmp_path / "password").write_text(READER_PASSWORD + "\n")
    (tmp_path / "password").chmod(0o600)
    text = site_text(
        uris=[f"ldaps://127.0.0.1:{server.tls_port}"],
        tls={"ca_certificate": server.ca.read_text()},
        bind={"dn": READER, "secret": {"file": str(tmp_path / "password")}},
    )
    (tmp_path / "site.yaml").write_text(text)
    return tmp_path / "site.yaml"


def identity(*words: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "hpctools.cli.main", "identity", *map(str, words)]
    return subprocess.run(
        argv, capture_output=True, text=True, timeout=60, env={**os.environ, **env}, check=False
    )


def told(*words: str | Path) -> Any:
    return json.loads(identity(*words, "--json").stdout)


def test_groups_shows_people_and_changes_nothing(site_file: Path) -> None:
    done = identity("groups", site_file)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines() == [
        "lab-a: ada",
        "lab-b: bob",
        "lab b guests: ada",
        REFUSED,
    ]
    assert sorted(path.name for path in site_file.parent.iterdir()) == ["password", "site.yaml"]
    plain = {"group": "lab-b", "found": 1, "users": ["bob"], "refused": []}
    assert told("groups", site_file)["groups"][1] == plain


def test_sync_writes_once_and_tells(site_file: Path) -> None:
    members = site_file.with_name("members.yaml")
    assert identity("sync", site_file, "--dry-run").stdout.splitlines()[-1] == f"{members}: would be written"
    assert not members.exists()
    first = identity("sync", site_file)
    assert first.stdout.splitlines() == [
        "+ lab-a: ada",
        "+ lab-b: bob",
        "+ lab b guests: ada",
        REFUSED,
        f"{members}: written; `hpctools plan` shows what it means",
    ]
    assert (first.returncode, members.stat().st_mode & 0o777) == (1, 0o644)
    second = told("sync", site_file)
    assert (second["written"], second["file"]) == (False, str(members))
    assert [each["users"] for each in second["groups"]] == [["ada"], ["bob"], ["ada"]]


def test_a_group_that_would_be_emptied_waits_for_a_person(site_file: Path, server: Slapd) -> None:
    members = site_file.with_name("members.yaml")
    identity("sync", site_file)
    members.write_text(
        members.read_text().replace('"lab-b":\n    - "bob"', '"lab-b":\n    - "x1"\n    - "x2"\n    - "x3"')
    )
    before = members.read_text()
    done = identity("sync", site_file)
    assert done.returncode == 1
    assert (
        "! lab-b stays as it was: 3 of 3 would leave at once (x1, x2, x3); "
        "if that is right: --accept-removals lab-b" in done.stdout.splitlines()
    )
    assert members.read_text() == before
    agreed = identity("sync", site_file, "--accept-removals", "lab-b")
    assert "- lab-b: x1, x2, x3" in agreed.stdout.splitlines()
    assert "x1" not in members.read_text()


def test_a_directory_that_does_not_tell_leaves_the_file_alone(site_file: Path) -> None:
    identity("sync", site_file)
    members = site_file.with_name("members.yaml")
    before = (members.read_text(), members.stat().st_mtime_ns)
    (site_file.parent / "password").write_text("wrong")
    done = identity("sync", site_file)
    assert (done.returncode, done.stdout) == (3, "")
    assert "Invalid credentials" in done.stderr
    assert "wrong" not in done.stderr
    assert (members.read_text(), members.stat().st_mtime_ns) == before


def test_wrong_words_and_wrong_places(site_file: Path, tmp_path: Path) -> None:
    assert identity("sync", site_file, "--accept-removals", "lab-z").returncode == 2
    bare = tmp_path / "bare.yaml"
    bare.write_text(
        HEAD.replace(", members_from: [lab-a]", "").replace(', members_from: [lab-b, "lab b guests"]', "")
    )
    done = identity("sync", bare)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "has no section `identity`" in done.stderr
    (site_file.parent / "password").chmod(0o644)
    assert "others may read or change it" in identity("groups", site_file).stderr
    (site_file.parent / "password").unlink()
    assert "No such file" in identity("groups", site_file).stderr
    assert identity("sssd", tmp_path / "none.yaml").returncode == 2


def test_the_site_is_found_in_its_usual_place(site_file: Path) -> None:
    done = identity("sssd", HPCTOOLS_SITE=str(site_file))
    assert done.returncode == 0
    assert f"ldap_search_base = {BASE}\n" in done.stdout
    assert READER_PASSWORD not in done.stdout


def test_run_as_prints_the_table_the_policy_and_the_preferences(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(site_text(run_as={"principals": {"role/builds": "ada"}}))
    found = told("run-as", tmp_path / "site.yaml")
    assert found["principals"] == [
        {"principal": "role/builds", "user": "ada", "tags": [{"Key": "SSMSessionRunAs", "Value": "ada"}]}
    ]
    assert found["policy"]["Version"] == "2012-10-17"
    assert "role/builds" in identity("run-as", tmp_path / "site.yaml").stdout.splitlines()[0]
