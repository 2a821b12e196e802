"""Groups as a real slapd tells them, in both schemas; what it does not tell whole is an error."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctools.errors import HpctoolsError, UnreachableError
from hpctools.identity.filters import both, equals, escape
from hpctools.identity.ldapsearch import Ldapsearch, connected
from hpctools.identity.ldif import Entry, parse_ldif
from hpctools.identity.reading import Reading, read_groups
from hpctools.site.identity import Identity
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

MANY = tuple(f"u{number}" for number in range(250))
ENTRIES = (
    *(person(name, 40000 + number, gid=39999) for number, name in enumerate(MANY)),
    person("ada", 20001, gid=20000),
    person("bob", 20002, gid=20005),
    posix_group("lab-a", 20000, "bob", "bob ", "gone"),
    posix_group("everybody", 30000, *MANY),
    posix_group("nobody", 30001),
    group_of_names("inner", dn_of("bob"), f"cn=outer,ou=groups,{BASE}"),
    group_of_names("outer", dn_of("ada"), f"cn=inner,ou=groups,{BASE}", dn_of("gone"), f"ou=people,{BASE}"),
    group_of_names("large", *(dn_of(name) for name in MANY)),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slapd]:
    with slapd(tmp_path_factory.mktemp("directory") / "slapd", "\n".join(ENTRIES)) as made:
        yield made


def stated(server: Slapd, **more: object) -> Identity:
    text = server.ca.read_text()
    uri = f"ldaps://127.0.0.1:{server.tls_port}"
    bind = {"dn": READER, "secret": {"file": "/root/password"}}
    found = site(uris=[uri], tls={"ca_certificate": text}, bind=bind, login_groups=["x"], **more).identity
    assert found is not None
    return found


def names(reading: Reading) -> list[str]:
    return sorted(name for entry in reading.people for name in entry.values("uid"))


@pytest.mark.system
def test_posix_groups(server: Slapd) -> None:
    """By name, by primary group, and names that nobody has; without pages the server tells 20 entries."""
    identity = stated(server)
    with connected(identity, READER_PASSWORD) as directory:
        found = read_groups(identity, ("lab-a", "everybody", "nobody", "no such group"), directory)
    assert [(each.group, each.found, names(each)) for each in found] == [
        ("lab-a", 1, ["ada", "bob"]),
        ("everybody", 1, sorted(MANY)),
        ("nobody", 1, []),
        ("no such group", 0, []),
    ]
    assert found[0].nobody == ("bob ", "gone")  # who is known, and somebody by another name


@pytest.mark.system
def test_groups_of_entries_and_of_groups(server: Slapd) -> None:
    """Two groups that are in each other end; what is neither person nor group is told as it is."""
    identity = stated(server, ldap_schema="rfc2307bis")
    with connected(identity, READER_PASSWORD) as directory:
        outer, large = read_groups(identity, ("outer", "large"), directory)
    assert (names(outer), outer.nobody) == (["ada", "bob"], (dn_of("gone"),))
    assert [entry.dn for entry in outer.people if not entry.values("uid")] == [f"ou=people,{BASE}"]
    assert names(large) == sorted(MANY)


@pytest.mark.system
def test_an_answer_that_is_cut_short_is_none(
    server: Slapd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without pages the server tells 20 of 250: reading that as all of them would remove the others."""
    program = tmp_path / "ldapsearch"
    program.write_text(
        '#!/bin/bash\nkept=()\nfor word; do [[ $word = -E || $word = pr=* ]] || kept+=("$word"); done\n'
        'exec /usr/bin/ldapsearch "${kept[@]}"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(UnreachableError, match="Size limit exceeded"):
        reader(server).search(BASE, "(uid=u*)", ("uid",))


def reader(server: Slapd, **changes: object) -> Ldapsearch:
    whole = Ldapsearch((f"ldaps://127.0.0.1:{server.tls_port}",), str(server.ca), READER, READER_PASSWORD)
    return replace(whole, **changes)  # type: ignore[arg-type]


@pytest.mark.system
def test_start_tls_and_the_second_server(server: Slapd) -> None:
    dead, alive = "ldap://127.0.0.1:1", f"ldap://127.0.0.1:{server.port}"
    assert len(reader(server, uris=(dead, alive)).search(BASE, "(uid=ada)", ("uid",))) == 1


@pytest.mark.system
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"password": "wrong"}, "Invalid credentials"),
        ({"bind_dn": ""}, "Insufficient access"),
        ({"ca_file": "/etc/ssl/certs/ca-certificates.crt"}, "Can't contact"),
        ({"uris": ("ldaps://127.0.0.1:1",)}, "Can't contact"),
    ],
)
def test_what_keeps_the_directory_from_telling_is_said(
    server: Slapd, change: dict[str, object], words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also where somebody's own settings would not check certificates."""
    (tmp_path / ".ldaprc").write_text("TLS_REQCERT never\n")
    (tmp_path / "ldaprc").write_text("TLS_REQCERT never\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LDAPTLS_REQCERT", "never")
    with pytest.raises(UnreachableError, match="nothing was changed") as caught:
        reader(server, **change).search(BASE, "(uid=ada)", ("uid",))
    assert words in str(caught.value)
    assert "wrong" not in str(caught.value)


@pytest.mark.system
def test_a_base_that_is_not_there_is_said(server: Slapd) -> None:
    with pytest.raises(UnreachableError, match="has nothing at 'ou=x,"):
        reader(server).search(f"ou=x,{BASE}", "(uid=ada)", ("uid",))


def test_the_password_is_in_no_argument_and_no_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, said = tmp_path / "ldapsearch", tmp_path / "said"
    program.write_text(f'#!/bin/bash\n{{ printf "%s\\n" "$@"; env; }} >{said}\ncat >{said}.stdin\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    directory = Ldapsearch(("ldaps://x",), "/ca.pem", "cn=reader", "top-secret")
    assert directory.search("dc=x", "(a=b)", ("c",)) == ()
    assert "top-secret" not in said.read_text()
    assert (tmp_path / "said.stdin").read_text() == "top-secret"
    assert "top-secret" not in repr(directory)


def test_without_ldapsearch_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UnreachableError, match="ldap-utils"):
        Ldapsearch(("ldaps://x",), "/ca.pem").search("dc=x", "(a=b)", ())


class Recorded:
    """A directory that answers nothing but one group, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def search(self, base: str, asked: str, attributes: object) -> tuple[Entry, ...]:
        self.asked.append((base, asked))
        classes = {"objectclass": ("top", "group")}
        return (Entry("cn=lab (a),dc=ad", classes),) if asked.startswith("(cn=") else ()


def test_active_directory_is_asked_for_everybody_in_the_group_and_in_groups_below_it() -> None:
    identity = site(directory="ad", base="dc=ad", user_base="ou=p,dc=ad", group_base="ou=g,dc=ad").identity
    assert identity is not None
    directory = Recorded()
    assert read_groups(identity, ("lab (a)",), directory) == (Reading("lab (a)", 1),)
    in_chain = r"(memberOf:1.2.840.113556.1.4.1941:=cn=lab \28a\29,dc=ad)"
    assert directory.asked == [
        ("ou=g,dc=ad", r"(cn=lab \28a\29)"),
        ("ou=p,dc=ad", f"(&(&(objectClass=user)(!(objectClass=computer))){in_chain})"),
    ]


@given(st.text(alphabet="*()\\\0a=&|!\u00fc"))
def test_no_value_changes_a_filter(value: str) -> None:
    spelled = escape(value)
    assert not set(spelled) & set("*()\0")
    assert equals("uid", value).count("(") == both("(a=b)", equals("uid", value)).count("(") - 2
    back = spelled
    for character in "*()\0\\":
        back = back.replace(f"\\{ord(character):02x}", character) if character != "\\" else back
    assert back.replace("\\5c", "\\") == value or "\\" in value


@given(st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"])), max_size=4))
def test_ldif_gives_back_every_value(values: list[str]) -> None:
    coded = [base64.b64encode(value.encode()).decode() for value in values]
    text = "dn: uid=x,dc=y\n" + "".join(f"cn:: {value}\n" for value in coded) + "\n"
    assert parse_ldif(text) == (Entry("uid=x,dc=y", {"cn": tuple(values)} if values else {}),)


def test_ldif_as_ldapsearch_prints_it() -> None:
    text = (
        "dn: uid=ada,dc=x\nuid: ada\ndescription:\nObjectClass: a\nobjectclass: b\nseparator: a\u2028b: c\n\n"
        "# refldap://other/\n\nref: ldap://other\n\ndn:: dWlkPcO8\n"
    )
    assert parse_ldif(text) == (
        Entry(
            "uid=ada,dc=x",
            {"uid": ("ada",), "description": ("",), "objectclass": ("a", "b"), "separator": ("a\u2028b: c",)},
        ),
        Entry("uid=ü", {}),
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [("nonsense", "no LDIF"), ("cn:: %%%", "no LDIF"), ("member;range=0-1499: x", "only a part")],
)
def test_what_is_no_whole_ldif_is_refused(line: str, words: str) -> None:
    with pytest.raises(HpctoolsError, match=words):
        parse_ldif(f"dn: a=b\n{line}\n")
