"""A real slapd with TLS in a temporary folder, on free ports of the loopback interface."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

BASE = "dc=uni,dc=example"
READER = f"cn=hpc-reader,{BASE}"
READER_PASSWORD = "p#a;s\"s'w=or d%[x]$"
SLAPD = "/usr/sbin/slapd"

_CONF = """
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include {folder}/nis.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
TLSCACertificateFile {folder}/ca.pem
TLSCertificateFile {folder}/server.pem
TLSCertificateKeyFile {folder}/server.key
security simple_bind=128
pidfile {folder}/slapd.pid
sizelimit size.soft=20 size.hard=20 size.pr=1000 size.prtotal=100000
database mdb
maxsize 67108864
suffix {base}
rootdn cn=admin,{base}
rootpw admin
directory {folder}/data
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="{reader}" read by anonymous auth by * none
dbnosync
"""


@dataclass
class Slapd:
    """A directory server.

    Attributes:
        folder: everything of it.
        tls_port, port: for ldaps and for ldap with StartTLS.
    """

    folder: Path
    tls_port: int
    port: int
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    def start(self) -> None:
        """Start it and wait until it answers."""
        uris = f"ldaps://127.0.0.1:{self.tls_port} ldap://127.0.0.1:{self.port}"
        argv = [SLAPD, "-f", str(self.folder / "slapd.conf"), "-h", uris, "-d", "0"]
        self.process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        limit = time.monotonic() + 10
        while not _answers(self.port):
            assert self.process.poll() is None, "slapd has ended"
            assert time.monotonic() < limit, "slapd does not answer"
            time.sleep(0.02)

    def stop(self) -> None:
        """End it as if its machine had died."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(10)
            self.process = None

    def change(self, ldif: str) -> None:
        """Change entries as the directory's administrator (LDIF with changetype)."""
        environment = {**os.environ, "LDAPTLS_CACERT": str(self.ca)}
        argv = ["ldapmodify", "-x", "-H", f"ldaps://127.0.0.1:{self.tls_port}"]
        argv += ["-D", f"cn=admin,{BASE}", "-w", "admin"]
        done = subprocess.run(
            argv, input=ldif, text=True, env=environment, capture_output=True, timeout=20, check=False
        )
        assert done.returncode == 0, done.stderr


@contextmanager
def slapd(folder: Path, ldif: str, *, bis: bool = False) -> Iterator[Slapd]:
    """Run a directory with these entries below BASE.

    With `bis` a group is a groupOfNames with a number, as rfc2307bis has it: posixGroup is auxiliary then.
    """
    (folder / "data").mkdir(parents=True)
    schema = Path("/etc/ldap/schema/nis.schema").read_text()
    group = "'posixGroup'\n\tDESC 'Abstraction of a group of accounts'\n\tSUP top "
    assert f"{group}STRUCTURAL" in schema
    changed = schema.replace(f"{group}STRUCTURAL", f"{group}AUXILIARY")
    (folder / "nis.schema").write_text(changed if bis else schema)
    _certificates(folder)
    (folder / "slapd.conf").write_text(_CONF.format(folder=folder, base=BASE, reader=READER))
    (folder / "slapd.conf").chmod(0o600)
    head = f"dn: {BASE}\nobjectClass: dcObject\nobjectClass: organization\no: uni\ndc: uni\n"
    head += "".join(f"\ndn: ou={name},{BASE}\nobjectClass: organizationalUnit\nou: {name}\n" for name in OUS)
    head += f"\ndn: {READER}\nobjectClass: person\ncn: hpc-reader\nsn: r\nuserPassword: {READER_PASSWORD}\n"
    _run("/usr/sbin/slapadd", "-q", "-f", folder / "slapd.conf", stdin=f"{head}\n{ldif}")
    server = _started(folder)
    try:
        yield server
    finally:
        server.stop()


def _started(folder: Path) -> Slapd:
    """On ports that were free a moment ago: others may take one meanwhile."""
    for _ in range(4):
        server = Slapd(folder, _free_port(), _free_port())
        with suppress(AssertionError):
            server.start()
            return server
    server.start()
    return server


OUS = ("people", "groups")


def person(name: str, uid: int, *, gid: int = 20000, password: str = "", dn: str = "", **more: str) -> str:
    """LDIF of a person."""
    lines = [f"dn: {dn or f'uid={name},ou=people,{BASE}'}"]
    lines += [f"objectClass: {each}" for each in ("inetOrgPerson", "posixAccount")]
    lines += [f"uid: {name}", f"cn: {name}", "sn: x", f"uidNumber: {uid}", f"gidNumber: {gid}"]
    lines += [f"homeDirectory: {more.get('home', f'/nowhere/{name}')}", "loginShell: /bin/bash"]
    lines += [f"userPassword: {password}"] if password else []
    return "\n".join(lines) + "\n"


def posix_group(name: str, gid: int, *members: str) -> str:
    """LDIF of a group that names its members (rfc2307)."""
    lines = [f"dn: cn={name},ou=groups,{BASE}", "objectClass: posixGroup", f"cn: {name}", f"gidNumber: {gid}"]
    return "\n".join([*lines, *(f"memberUid: {member}" for member in members)]) + "\n"


def group_of_names(name: str, *members: str, gid: int = 0) -> str:
    """LDIF of a group that names its members' entries; with a number where the directory is rfc2307bis."""
    lines = [f"dn: cn={name},ou=groups,{BASE}", "objectClass: groupOfNames"]
    lines += ["objectClass: posixGroup", f"gidNumber: {gid}"] if gid else []
    lines.append(f"cn: {name}")
    return "\n".join([*lines, *(f"member: {member}" for member in members)]) + "\n"


def dn_of(name: str) -> str:
    """The distinguished name of a person."""
    return f"uid={name},ou=people,{BASE}"


def _answers(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def _certificates(folder: Path) -> None:
    """A CA of our own and a server's certificate for 127.0.0.1, good for two days."""
    new = (
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    )
    _run(*new, "-subj", "/CN=test ca", "-keyout", folder / "ca.key", "-out", folder / "ca.pem")
    signed = ("-CA", folder / "ca.pem", "-CAkey", folder / "ca.key", "-addext", "subjectAltName=IP:127.0.0.1")
    plain = ("-addext", "basicConstraints=critical,CA:FALSE")
    place = ("-keyout", folder / "server.key", "-out", folder / "server.pem")
    _run(*new, "-subj", "/CN=127.0.0.1", *signed, *plain, *place)


def _run(*argv: str | Path, stdin: str = "") -> None:
    done = subprocess.run(
        [str(word) for word in argv], input=stdin, text=True, capture_output=True, timeout=30, check=False
    )
    assert done.returncode == 0, f"{argv[0]}: {done.stderr}"
