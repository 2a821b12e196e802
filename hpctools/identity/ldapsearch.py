"""The edge to the directory: OpenLDAP's ldapsearch. All or nothing: an answer that is cut short is none."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from hpctools.errors import CommandError, UnreachableError
from hpctools.identity.ldif import Entry, parse_ldif
from hpctools.identity.sssd import SYSTEM_CA
from hpctools.site.identity import Identity
from hpctools.slurm import run

_SECONDS = 120.0
_NO_SUCH_OBJECT = 32


class Directory(Protocol):
    """Something that answers searches."""

    def search(self, base: str, asked: str, attributes: Sequence[str]) -> tuple[Entry, ...]:
        """Return all entries below `base` for which the filter `asked` holds.

        Raises:
            UnreachableError: not all of them can be told.
        """
        ...


@dataclass(frozen=True)
class Ldapsearch:
    """A directory that is asked with ldapsearch(1), always with TLS and a certificate that is checked.

    Attributes:
        uris: its servers, in the order in which they are asked.
        ca_file: CA certificates.
        bind_dn: who asks; "" for nobody in particular.
        password: the password; it goes through a pipe.
    """

    uris: tuple[str, ...]
    ca_file: str
    bind_dn: str = ""
    password: str = field(default="", repr=False)

    def search(self, base: str, asked: str, attributes: Sequence[str]) -> tuple[Entry, ...]:
        """Return all entries below `base` for which the filter `asked` holds.

        Raises:
            UnreachableError: no server answers, or not with all of it: refused, cut short, no TLS.
        """
        argv = [*self._connection(), "-b", base, asked, *attributes]
        stdin = self.password if self.bind_dn else None
        try:
            done = run.run(
                argv, timeout=_SECONDS, check=False, stdin=stdin, env=self._environment(), cwd=Path("/")
            )
        except CommandError as error:
            raise UnreachableError(str(error), "install the package ldap-utils") from None
        if done.code == _NO_SUCH_OBJECT:
            raise UnreachableError(
                f"the directory has nothing at {base!r}", "check base, user_base, group_base"
            )
        if done.code != 0:
            raise self._failure(done)
        return parse_ldif(done.stdout)

    def _connection(self) -> Iterator[str]:
        yield from ("ldapsearch", "-x", "-LLL", "-o", "ldif-wrap=no", "-o", "nettimeout=5", "-l", "60")
        yield from ("-E", "pr=1000/noprompt", "-H", " ".join(self.uris))
        if not self.uris[0].startswith("ldaps:"):
            yield "-ZZ"
        if self.bind_dn:
            yield from ("-D", self.bind_dn, "-y", "/dev/stdin")

    def _environment(self) -> dict[str, str]:
        """Without the caller's own settings (~/.ldaprc, variables); ours win over the machine's ldap.conf."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("LDAP")}
        ours = {"LDAPTLS_CACERT": self.ca_file, "LDAPTLS_REQCERT": "demand", "LDAPTLS_REQSAN": "try"}
        return {**kept, **ours, "HOME": "/nonexistent", "LC_ALL": "C"}

    def _failure(self, done: run.Completed) -> UnreachableError:
        lines = [line for line in done.stderr.strip().splitlines() if line.strip()]
        said = "; ".join(lines[-2:]) or f"exit code {done.code}"
        return UnreachableError(
            f"the directory at {', '.join(self.uris)} does not tell: {said}",
            "nothing was changed; check its servers, the CA certificate and the reader's password",
        )


@contextmanager
def connected(identity: Identity, password: str) -> Iterator[Ldapsearch]:
    """The site's directory; CA certificates that the site states lie in a folder of ours meanwhile."""
    bind_dn = identity.bind.dn if identity.bind else ""
    with TemporaryDirectory(prefix="hpctools-") as folder:
        ca_file = identity.tls.ca_file or SYSTEM_CA
        if identity.tls.ca_certificate:
            ca_file = str(Path(folder, "ca.pem"))
            Path(ca_file).write_text(identity.tls.ca_certificate, encoding="ascii")
        yield Ldapsearch(identity.uris, ca_file, bind_dn, password)
