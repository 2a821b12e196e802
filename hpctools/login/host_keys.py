"""Host keys of login nodes: the same on all of them, changed without anybody being warned.

People meet one host behind one name, whichever node answers, so all nodes have the same keys, or certificates
of one authority. A key is changed in two steps. First all nodes have the old one and the next: sshd proves
both to those who come, and their ssh remembers the next one (UpdateHostKeys, on by default). Weeks later the
old one goes. Their ssh also forgets a key that a node does not prove: so every node notes down which keys it
has, and the old one stays until all have the next. With an authority (`@cert-authority` in known_hosts) a
node's keys can change at any time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hpctools.errors import CommandError, HpctoolsError, UsageError
from hpctools.login import read_by_sshd
from hpctools.login.host_certificates import Certificate, read_certificate
from hpctools.slurm.run import run

KINDS = ("ed25519", "ecdsa", "rsa")
_KEY = "ssh_host_{kind}_key"
_NEXT = "ssh_host_{kind}_key.next"
_CA, _CA_NEXT = "ca", "ca.next"
_CONF = "10-hpctools-host-keys.conf"
_INSTALLED = "installed."
"""Then a node's name: the fingerprints of the keys by which its sshd goes, one a line; nothing where it has
none of these, so that the node is still waited for."""
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

    def certificates(self) -> tuple[Certificate, ...]:
        """The certificates that lie beside the keys.

        Raises:
            HpctoolsError: ssh-keygen does not understand one.
        """
        names = [name.format(kind=kind) for name in (_KEY, _NEXT) for kind in KINDS]
        paths = [self.path / f"{name}-cert.pub" for name in names]
        return tuple(read_certificate(path) for path in paths if path.exists())

    def installed(self) -> Mapping[str, frozenset[str]]:
        """The fingerprints of the keys that each node was given, by its name."""
        notes = sorted(self.path.glob(f"{_INSTALLED}*"))
        return {each.name.removeprefix(_INSTALLED): frozenset(each.read_text().split()) for each in notes}

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

    def finish_rotation(self, nodes: Sequence[str] = (), *, force: bool = False) -> tuple[Key, ...]:
        """Put the next keys in place of the old ones, which are kept as *.old for a way back.

        A key's last change is one rename; run it again when it was interrupted.

        Args:
            nodes: who must have said that they have the next keys, beside all that ever said what they have.
            force: nobody has to.

        Raises:
            UsageError: no rotation has begun.
            HpctoolsError: a node has not said that it has the next keys, or one of these has no certificate
                where the old one has.
        """
        self.check()
        kinds = [kind for kind in KINDS if (self.path / _NEXT.format(kind=kind)).exists()]
        if not kinds:
            raise UsageError("no rotation has begun", "hpctools login host-keys rotate --begin")
        if not force:
            self._check_certificates(kinds)
            self._check_nodes(nodes, {_fingerprint(self.path / _NEXT.format(kind=kind)) for kind in kinds})
        for kind in kinds:
            self._replace(self.path / _KEY.format(kind=kind), self.path / _NEXT.format(kind=kind))
        return self.present()

    def _check_certificates(self, kinds: Sequence[str]) -> None:
        """People who know the authority alone would be refused by a key that it has not signed."""
        for kind in kinds:
            old, fresh = self.path / _KEY.format(kind=kind), self.path / _NEXT.format(kind=kind)
            signed, following = _files(old)[2], _files(fresh)[2]
            if not signed.exists() or following.exists():
                continue
            if read_certificate(signed).key != _fingerprint(fresh):  # else it was moved before a kill
                raise HpctoolsError(
                    f"{old.name} has a certificate, and {fresh.name}, which takes its place, has none",
                    f"hpctools login host-keys sign AUTHORITY {fresh}.pub --name NAME; --force does without",
                )

    def _check_nodes(self, nodes: Sequence[str], wanted: set[str]) -> None:
        """Whoever comes to a node without the next keys would not learn them, or forget them again."""
        known = {**dict.fromkeys(nodes, frozenset[str]()), **self.installed()}
        without = sorted(node for node, prints in known.items() if not wanted <= prints)
        if known and not without:
            return
        who = f"{', '.join(without)} did not say so" if without else "no login node has said so"
        raise HpctoolsError(
            f"all login nodes need the next keys before the old ones go, and {who}",
            f"on each: hpctools login host-keys install {self.path}, and weeks later again --finish; "
            f"for a node that is gone: rm {self.path}/{_INSTALLED}NODE; --force asks nobody",
        )

    def _replace(self, old: Path, fresh: Path) -> None:
        """The private key comes last: until then the rotation is still on, and can be finished again."""
        if old.exists():
            kept = self.path / f"{old.name}.old"
            kept.unlink(missing_ok=True)
            os.link(old, kept)
        _write(old.with_name(f"{old.name}.pub"), _half(fresh), 0o644)
        certificate, following = (path.with_name(f"{path.name}-cert.pub") for path in (old, fresh))
        if following.exists():
            following.replace(certificate)
        elif certificate.exists() and read_certificate(certificate).key != _fingerprint(fresh):
            certificate.unlink()
        fresh.with_name(f"{fresh.name}.pub").unlink(missing_ok=True)
        fresh.replace(old)

    def make_authority(self, *, following: bool = False) -> str:
        """Make the authority, or the one that follows it; its public key.

        Raises:
            HpctoolsError: it cannot be made.
        """
        self.check()
        path = self.path / (_CA_NEXT if following else _CA)
        _make(path, "ed25519")
        return path.with_name(f"{path.name}.pub").read_text().strip()

    def finish_authority(self) -> str:
        """Put the next authority in place of the old one, which is kept as ca.old; its public key.

        Run it again when it was interrupted. All nodes need certificates of the next one before, and people
        its line: this folder knows neither.

        Raises:
            UsageError: there is no next one.
        """
        self.check()
        if not (self.path / _CA_NEXT).exists():
            raise UsageError("no authority follows this one", "hpctools login host-keys authority --next")
        self._replace(self.path / _CA, self.path / _CA_NEXT)
        return (self.path / f"{_CA}.pub").read_text().strip()

    def sign(
        self, public: Path, names: Sequence[str], valid: str = "+52w", *, following: bool = False
    ) -> Path:
        """Make the certificate of a key beside it: in the folder of all nodes, `install` brings it to each.

        Args:
            public: the key's public half; made from the private one where only that is there.
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
        private = public.with_name(public.name.removesuffix(".pub"))
        if not public.exists() and private.exists():
            _write(public, _half(private), 0o644)
        sign = ["ssh-keygen", "-q", "-s", str(authority), "-h", "-I", f"host {names[0]}"]
        run([*sign, "-n", ",".join(names), "-V", valid, str(public)], timeout=_SECONDS)
        return public.with_name(f"{public.name.removesuffix('.pub')}-cert.pub")

    def install(self, target: Path, node: str = "") -> str:
        """Copy the keys of now and next to where a node's sshd has its own, and tell sshd of them.

        sshd must start without a shared file system, so it gets copies. It has to be reloaded then. The keys
        by which sshd goes are noted down in the folder, where `finish_rotation` looks.

        Args:
            target: /etc/ssh, with its sshd_config.
            node: who notes it down; this machine when empty.

        Raises:
            HpctoolsError: the folder is not private, or there is nothing in it; or sshd does not read what it
                was told here: what it does have is noted down, and a file that it refuses is taken away; or
                it could not be asked: this node is noted down as one without these keys.
            OSError: the target cannot be written.
        """
        self.check()
        names = [name.format(kind=kind) for name in (_KEY, _NEXT) for kind in KINDS]
        present = [name for name in names if (self.path / name).exists()]
        if not present:
            raise _empty(self.path)
        lines = ["# Made by `hpctools login host-keys install`."]
        for name in present:
            lines += self._install(name, target)
        (target / "sshd_config.d").mkdir(exist_ok=True)
        text = "\n".join(lines) + "\n"
        _write(target / "sshd_config.d" / _CONF, text, 0o644)
        for gone in (path for name in set(names) - set(present) for path in _files(target / name)):
            gone.unlink(missing_ok=True)
        self._note_down(target, text, node or os.uname().nodename)
        return text

    def _note_down(self, target: Path, text: str, node: str) -> None:
        """Say which keys sshd has; a note that says more would let the old ones go too early."""
        config, file = target / "sshd_config", target / "sshd_config.d" / _CONF
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        error: CommandError | None = None
        try:
            missing = read_by_sshd.unread(config, lines)
        except CommandError as raised:
            missing, error = tuple(lines), raised
        keys = [Path(line.split(" ", 1)[1]).name for line in lines if line.startswith("HostKey ")]
        having = [name for name in keys if f"HostKey {target / name}" not in missing]
        prints = sorted(_fingerprint(self.path / name) for name in having)
        _write(self.path / f"{_INSTALLED}{node.replace('/', '_')}", "".join(f"{p}\n" for p in prints), 0o600)
        if error is not None and read_by_sshd.has_judged(error):
            _take_away(config, file, text)
        if missing:
            raise read_by_sshd.not_read(config, file, missing, error)

    def _install(self, name: str, target: Path) -> Iterator[str]:
        """Copy a key, its public half and its certificate; the lines for sshd."""
        key, public, certificate = _files(target / name)
        _write(key, (self.path / name).read_text(), 0o600)
        _write(public, _half(self.path / name), 0o644)
        yield f"HostKey {key}"
        kept = self.path / certificate.name
        if kept.exists():
            _write(certificate, kept.read_text(), 0o644)
        if certificate.exists() and read_certificate(certificate).key != _fingerprint(key):
            certificate.unlink()  # of the key before this one
        if certificate.exists():
            yield f"HostCertificate {certificate}"

    def known_hosts(self, names: Sequence[str], *, stolen: bool = False) -> str:
        """What people's known_hosts say: authorities where there are any, else the keys of now and next.

        Args:
            stolen: nobody is to believe the authority before this one, on any host.

        Raises:
            UsageError: `stolen`, and there was none before this one.
        """
        host = ",".join(names)
        authorities = [self.path / f"{name}.pub" for name in (_CA, _CA_NEXT)]
        found = [f"@cert-authority {host} {_public(path)}" for path in authorities if path.exists()]
        if not found:
            paths = [self.path / name.format(kind=kind) for name in (_KEY, _NEXT) for kind in KINDS]
            found = [f"{host} {_derived(path)}" for path in paths if path.exists()]
        if stolen:
            before = self.path / f"{_CA}.old"
            if not before.exists():
                raise UsageError(f"there is no {before}", "hpctools login host-keys authority --finish")
            found.append(f"@revoked * {_derived(before)}")
        return "".join(f"{line}\n" for line in found)


def _empty(folder: Path) -> UsageError:
    return UsageError(f"there are no host keys in {folder}", "a login node keeps its own there first")


def _take_away(config: Path, file: Path, text: str) -> None:
    """An sshd that refuses its files because of ours would end at its next reload.

    Ours stays where it refuses the others, too, or could not be asked of them.
    """
    stays = True
    file.unlink()
    try:
        with suppress(CommandError):
            stays = read_by_sshd.refuses(config)
    finally:
        if stays:
            _write(file, text, 0o644)


def _files(key: Path) -> tuple[Path, Path, Path]:
    """A private key, its public half and its certificate."""
    return key, key.with_name(f"{key.name}.pub"), key.with_name(f"{key.name}-cert.pub")


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
    return " ".join(_half(path).split()[:2])


def _half(path: Path) -> str:
    """The public half of a private key, as a .pub file has it."""
    return run(["ssh-keygen", "-y", "-f", str(path)], timeout=_SECONDS).stdout


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
