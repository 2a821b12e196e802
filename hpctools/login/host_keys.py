"""Host keys of login nodes: the same on all of them, changed without anybody being warned.

People meet one host behind one name, whichever node answers, so all nodes have the same keys, or certificates
of one authority. A key is changed in two steps. First all nodes have the old one and the next: sshd proves
both to those who come, and their ssh remembers the next one (UpdateHostKeys, on by default). Weeks later the
old one goes. With an authority (`@cert-authority` in known_hosts) a node's keys can change at any time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hpctools.errors import HpctoolsError, UsageError
from hpctools.slurm.run import run

KINDS = ("ed25519", "ecdsa", "rsa")
_KEY = "ssh_host_{kind}_key"
_NEXT = "ssh_host_{kind}_key.next"
_CA, _CA_NEXT = "ca", "ca.next"
_CONF = "10-hpctools-host-keys.conf"
_SECONDS = 60.0
_PRINCIPAL = re.compile(r"[A-Za-z0-9*][A-Za-z0-9.*_:-]{0,254}")
_VALIDITY = re.compile(r"\+\d{1,4}[dw]")


@dataclass(frozen=True)
class Key:
    """A key in the folder.

    Attributes:
        role: `now`, `next`, `authority` or `next authority`.
        fingerprint: as ssh shows it.
    """

    name: str
    role: str
    fingerprint: str


@dataclass(frozen=True)
class KeyFolder:
    """The folder that all login nodes share, for root alone (`lifecycle.ssh_keys.host_keys`/GROUP)."""

    path: Path

    def check(self) -> None:
        """Refuse a folder that others can look into or write to.

        Raises:
            HpctoolsError: it is one.
        """
        try:
            found = self.path.lstat()
        except OSError as error:
            raise UsageError(
                f"cannot use {self.path}: {error.strerror}", "name the folder of host keys"
            ) from None
        if (
            self.path.is_symlink()
            or not self.path.is_dir()
            or found.st_uid != os.geteuid()
            or found.st_mode & 0o077
        ):
            raise HpctoolsError(
                f"{self.path} is not a folder for you alone", f"chown and chmod 700 {self.path}"
            )

    def present(self) -> tuple[Key, ...]:
        """All keys that are there.

        Raises:
            HpctoolsError: ssh-keygen does not understand one.
        """
        names = [(_KEY.format(kind=kind), "now") for kind in KINDS]
        names += [(_NEXT.format(kind=kind), "next") for kind in KINDS]
        names += [(_CA, "authority"), (_CA_NEXT, "next authority")]
        return tuple(
            Key(name, role, _fingerprint(self.path / name))
            for name, role in names
            if (self.path / name).exists()
        )

    def begin_rotation(self) -> tuple[Key, ...]:
        """Make the next key of each kind that there is; one that was made before stays.

        Raises:
            HpctoolsError: there are no keys, or one cannot be made.
        """
        self.check()
        kinds = [kind for kind in KINDS if (self.path / _KEY.format(kind=kind)).exists()]
        if not kinds:
            raise _empty(self.path)
        for kind in kinds:
            _make(self.path / _NEXT.format(kind=kind), kind)
        return self.present()

    def finish_rotation(self) -> tuple[Key, ...]:
        """Put the next keys in place of the old ones, which are kept as *.old for a way back.

        Each is one rename; run it again when it was interrupted.

        Raises:
            UsageError: no rotation has begun.
        """
        self.check()
        kinds = [kind for kind in KINDS if (self.path / _NEXT.format(kind=kind)).exists()]
        if not kinds:
            raise UsageError("no rotation has begun", "hpctools login host-keys rotate --begin")
        for kind in kinds:
            old, fresh = self.path / _KEY.format(kind=kind), self.path / _NEXT.format(kind=kind)
            kept = self.path / f"{old.name}.old"
            if old.exists():
                kept.unlink(missing_ok=True)
                os.link(old, kept)
            fresh.replace(old)
            public = fresh.with_name(f"{fresh.name}.pub")
            if public.exists():
                public.replace(old.with_name(f"{old.name}.pub"))
        return self.present()

    def make_authority(self, *, following: bool = False) -> str:
        """Make the authority, or the one that follows it; its public key.

        Raises:
            HpctoolsError: it cannot be made.
        """
        self.check()
        path = self.path / (_CA_NEXT if following else _CA)
        _make(path, "ed25519")
        return path.with_name(f"{path.name}.pub").read_text().strip()

    def sign(
        self, public: Path, names: Sequence[str], valid: str = "+52w", *, following: bool = False
    ) -> Path:
        """Make a node's certificate beside its public key.

        Args:
            names: what people call the node and what is in front of it.
            valid: such as +52w.
            following: by the next authority, once people know it.

        Raises:
            UsageError: there is no authority, or a name is none.
            HpctoolsError: ssh-keygen refuses.
        """
        self.check()
        wrong = next((name for name in names if not _PRINCIPAL.fullmatch(name)), None)
        if not names or wrong is not None or not _VALIDITY.fullmatch(valid):
            raise UsageError(f"cannot sign for {wrong or valid!r}", "give host names, and --valid +52w")
        authority = self.path / (_CA_NEXT if following else _CA)
        if not authority.exists():
            raise UsageError(f"there is no {authority}", "hpctools login host-keys authority")
        sign = ["ssh-keygen", "-q", "-s", str(authority), "-h", "-I", f"host {names[0]}"]
        run([*sign, "-n", ",".join(names), "-V", valid, str(public)], timeout=_SECONDS)
        return public.with_name(f"{public.name.removesuffix('.pub')}-cert.pub")

    def install(self, target: Path) -> str:
        """Copy the keys of now and next to where a node's sshd has its own, and tell sshd of them.

        sshd must start without a shared file system, so it gets copies. It has to be reloaded then.

        Args:
            target: /etc/ssh.

        Raises:
            HpctoolsError: the folder is not private, or there is nothing in it.
            OSError: the target cannot be written.
        """
        self.check()
        names = [name.format(kind=kind) for name in (_KEY, _NEXT) for kind in KINDS]
        present = [name for name in names if (self.path / name).exists()]
        if not present:
            raise _empty(self.path)
        lines = ["# Made by `hpctools login host-keys install`."]
        for name in present:
            _write(target / name, (self.path / name).read_text(), 0o600)
            lines.append(f"HostKey {target / name}")
            certificate = target / f"{name}-cert.pub"
            if certificate.exists():
                lines.append(f"HostCertificate {certificate}")
        (target / "sshd_config.d").mkdir(exist_ok=True)
        text = "\n".join(lines) + "\n"
        _write(target / "sshd_config.d" / _CONF, text, 0o644)
        for name in set(names) - set(present):
            (target / name).unlink(missing_ok=True)
        return text

    def known_hosts(self, names: Sequence[str]) -> str:
        """What people's known_hosts say: authorities where there are any, else the keys of now and next."""
        host = ",".join(names)
        authorities = [self.path / f"{name}.pub" for name in (_CA, _CA_NEXT)]
        found = [f"@cert-authority {host} {_public(path)}" for path in authorities if path.exists()]
        if not found:
            paths = [self.path / name.format(kind=kind) for name in (_KEY, _NEXT) for kind in KINDS]
            found = [f"{host} {_derived(path)}" for path in paths if path.exists()]
        return "".join(f"{line}\n" for line in found)


def _empty(folder: Path) -> UsageError:
    return UsageError(f"there are no host keys in {folder}", "a login node keeps its own there first")


def _make(path: Path, kind: str) -> None:
    if not path.exists():
        run(
            ["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "login nodes", "-f", str(path)], timeout=_SECONDS
        )


def _fingerprint(path: Path) -> str:
    return run(["ssh-keygen", "-l", "-f", str(path)], timeout=_SECONDS).stdout.split()[1]


def _public(path: Path) -> str:
    return " ".join(path.read_text().split()[:2])


def _derived(path: Path) -> str:
    return " ".join(run(["ssh-keygen", "-y", "-f", str(path)], timeout=_SECONDS).stdout.split()[:2])


def _write(path: Path, text: str, mode: int) -> None:
    """Write a whole file or nothing; nobody else can read it before it has its mode."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        os.fchmod(file.fileno(), mode)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
