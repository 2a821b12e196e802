"""Host keys of login nodes: the same on all of them, changed without anybody being warned.

People meet one host behind one name, whichever node answers, so all nodes have the same keys, or certificates
of one authority. A key is changed in three steps. First all nodes have the old one and the next: sshd proves
both to those who come, and their ssh remembers the next one (UpdateHostKeys, on by default). Weeks later the
next one takes its place, and when all nodes show it, the old one goes. Their ssh also forgets a key that a
node does not prove: so every node notes down which keys it has (`host_key_notes`), and the old one stays
until no node shows it. With an authority (`@cert-authority` in known_hosts) a node's keys can change at any
time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hpctools.errors import CommandError, HpctoolsError, UsageError
from hpctools.login import host_key_notes, key_files, read_by_sshd
from hpctools.login.host_certificates import Certificate, read_certificate
from hpctools.slurm.run import run

KINDS = ("ed25519", "ecdsa", "rsa")
_KEY = "ssh_host_{kind}_key"
_NEXT = "ssh_host_{kind}_key.next"
_BEFORE = "ssh_host_{kind}_key.before"
"""The old key after the change: proved until all nodes show the new one, as ssh would forget it before."""
_CA, _CA_NEXT = "ca", "ca.next"
_CONF = "10-hpctools-host-keys.conf"
_PRINCIPAL = re.compile(r"[A-Za-z0-9*][A-Za-z0-9.*_:-]{0,254}")
_VALIDITY = re.compile(r"\+\d{1,4}[dw]")


@dataclass(frozen=True)
class Key:
    """A key in the folder.

    Attributes:
        role: `now`, `next`, `before`, `authority` or `next authority`.
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
        names += [(_BEFORE.format(kind=kind), "before") for kind in KINDS]
        names += [(_CA, "authority"), (_CA_NEXT, "next authority")]
        return tuple(
            Key(name, role, key_files.fingerprint(self.path / name))
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
        return host_key_notes.installed(self.path)

    def showing(self) -> Mapping[str, frozenset[str]]:
        """The fingerprints of the keys that each node shows first to those who come, by its name."""
        return host_key_notes.showing(self.path)

    def begin_rotation(self) -> tuple[Key, ...]:
        """Make the next key of each kind that there is; one that was made before stays.

        Raises:
            HpctoolsError: there are no keys, one cannot be made, or the change before this one is not over.
        """
        self.check()
        if self._kinds(_BEFORE):
            raise UsageError(
                "the change before this one is not over: its old keys are still in use", self._next_step()
            )
        kinds = self._kinds(_KEY)
        if not kinds:
            raise _empty(self.path)
        for kind in kinds:
            key_files.make(self.path / _NEXT.format(kind=kind), kind)
        return self.present()

    def finish_rotation(self, nodes: Sequence[str] = (), *, force: bool = False) -> tuple[Key, ...]:
        """Put the next keys in place of the old ones, which nodes go on proving (*.before).

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
        kinds = self._kinds(_NEXT)
        if not kinds:
            raise UsageError("no rotation has begun, or this step is done", self._next_step())
        if not force:
            self._check_certificates(kinds)
            host_key_notes.check_having(self.path, nodes, self._prints(_NEXT))
        for kind in kinds:
            key, fresh, before = (self.path / name.format(kind=kind) for name in (_KEY, _NEXT, _BEFORE))
            self._replace(key, fresh, before)
        return self.present()

    def retire(self, nodes: Sequence[str] = (), *, force: bool = False) -> tuple[Key, ...]:
        """Nodes prove the old keys no longer, once `install` has run; they are kept as *.old for a way back.

        Args:
            nodes: who must have said that they show the new keys, beside all that ever said what they have.
            force: nobody has to.

        Raises:
            UsageError: no change has been finished.
            HpctoolsError: a node has not said that it shows the new keys: whoever comes there would be
                warned when their ssh has forgotten the old ones.
        """
        self.check()
        kinds = self._kinds(_BEFORE)
        if not kinds or self._kinds(_NEXT):
            raise UsageError("there are no old keys that could go", self._next_step())
        if not force:
            host_key_notes.check_showing(self.path, nodes, self._prints(_KEY))
        for kind in kinds:
            (self.path / _BEFORE.format(kind=kind)).replace(self.path / f"{_KEY.format(kind=kind)}.old")
        return self.present()

    def _next_step(self) -> str:
        """The command that goes on with a rotation, or begins one."""
        step = "--finish" if self._kinds(_NEXT) else "--retire" if self._kinds(_BEFORE) else "--begin"
        return f"hpctools login host-keys rotate {self.path} {step}"

    def _kinds(self, name: str) -> list[str]:
        return [kind for kind in KINDS if (self.path / name.format(kind=kind)).exists()]

    def _prints(self, name: str) -> set[str]:
        return {key_files.fingerprint(self.path / name.format(kind=kind)) for kind in self._kinds(name)}

    def _check_certificates(self, kinds: Sequence[str]) -> None:
        """People who know the authority alone would be refused by a key that it has not signed."""
        for kind in kinds:
            old, fresh = self.path / _KEY.format(kind=kind), self.path / _NEXT.format(kind=kind)
            signed, following = key_files.files(old)[2], key_files.files(fresh)[2]
            if not signed.exists() or following.exists():
                continue
            # Else it was moved before a kill.
            if read_certificate(signed).key != key_files.fingerprint(fresh):
                raise HpctoolsError(
                    f"{old.name} has a certificate, and {fresh.name}, which takes its place, has none",
                    f"hpctools login host-keys sign AUTHORITY {fresh}.pub --name NAME; --force does without",
                )

    def _replace(self, old: Path, fresh: Path, kept: Path) -> None:
        """The private key comes last: until then the rotation is still on, and can be finished again."""
        if old.exists():
            kept.unlink(missing_ok=True)
            os.link(old, kept)
        key_files.write(old.with_name(f"{old.name}.pub"), key_files.half(fresh), 0o644)
        certificate, following = (path.with_name(f"{path.name}-cert.pub") for path in (old, fresh))
        if following.exists():
            following.replace(certificate)
        elif certificate.exists() and read_certificate(certificate).key != key_files.fingerprint(fresh):
            certificate.unlink()
        fresh.with_name(f"{fresh.name}.pub").unlink(missing_ok=True)
        fresh.replace(old)

    def make_authority(self, *, following: bool = False) -> str:
        """Make the authority, or the one that follows it; its public key.

        Raises:
            HpctoolsError: it cannot be made.
        """
        if not following:
            key_files.make_folder(self.path)
        self.check()
        path = self.path / (_CA_NEXT if following else _CA)
        key_files.make(path, "ed25519")
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
        self._replace(self.path / _CA, self.path / _CA_NEXT, self.path / f"{_CA}.old")
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
            key_files.write(public, key_files.half(private), 0o644)
        sign = ["ssh-keygen", "-q", "-s", str(authority), "-h", "-I", f"host {names[0]}"]
        run([*sign, "-n", ",".join(names), "-V", valid, str(public)], timeout=key_files.SECONDS)
        return public.with_name(f"{public.name.removesuffix('.pub')}-cert.pub")

    def install(
        self, target: Path, node: str = "", reload: Callable[[bool], bool] = lambda changed: True
    ) -> str:
        """Copy the keys to where a node's sshd has its own, tell sshd of them, and have it read them.

        sshd must start without a shared file system, so it gets copies. The keys by which sshd goes are noted
        down in the folder, where `finish_rotation` and `retire` look.

        Args:
            target: /etc/ssh, with its sshd_config.
            node: who notes it down; this machine when empty.
            reload: has sshd read its files again; is told whether they are others now, and tells whether sshd
                has read them: until then this node is noted down as one without these keys.

        Raises:
            HpctoolsError: the folder is not private, or there is nothing in it; or sshd does not read what it
                was told here: what it does have is noted down, and a file that it refuses is taken away; or
                it could not be asked: this node is noted down as one without these keys.
            OSError: the target cannot be written.
        """
        self.check()
        names = [name.format(kind=kind) for name in (_KEY, _NEXT, _BEFORE) for kind in KINDS]
        present = [name for name in names if (self.path / name).exists()]
        if not present:
            raise _empty(self.path)
        before = _all_of(target)
        node = node or os.uname().nodename
        host_key_notes.write(self.path, node, (), ())
        lines = ["# Made by `hpctools login host-keys install`."]
        for name in present:
            lines += self._install(name, target)
        (target / "sshd_config.d").mkdir(exist_ok=True)
        text = "\n".join(lines) + "\n"
        key_files.write(target / "sshd_config.d" / _CONF, text, 0o644)
        for gone in (path for name in set(names) - set(present) for path in key_files.files(target / name)):
            gone.unlink(missing_ok=True)
        having, error = self._read(target, text)
        if error is not None:
            self._note_down(node, having, reloaded=False)
            raise error
        if reload(before != _all_of(target)):
            self._note_down(node, having, reloaded=True)
        return text

    def _read(self, target: Path, text: str) -> tuple[list[str], HpctoolsError | None]:
        """Which keys sshd has, and what is to be said when these are not all."""
        config, file = target / "sshd_config", target / "sshd_config.d" / _CONF
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        error: CommandError | None = None
        try:
            missing = read_by_sshd.unread(config, lines)
        except CommandError as raised:
            missing, error = tuple(lines), raised
        keys = [Path(line.split(" ", 1)[1]).name for line in lines if line.startswith("HostKey ")]
        having = [name for name in keys if f"HostKey {target / name}" not in missing]
        if error is not None and read_by_sshd.has_judged(error):
            _take_away(config, file, text)
        return having, read_by_sshd.not_read(config, file, missing, error) if missing else None

    def _note_down(self, node: str, having: Sequence[str], *, reloaded: bool) -> None:
        """Say which keys sshd has; a note that says more would let the old ones go too early."""
        prints = {name: key_files.fingerprint(self.path / name) for name in having}
        shown = [prints[name] for name in having if reloaded and name.endswith("_key")]
        host_key_notes.write(self.path, node, prints.values(), shown)

    def _install(self, name: str, target: Path) -> Iterator[str]:
        """Copy a key, its public half and its certificate; the lines for sshd."""
        key, public, certificate = key_files.files(target / name)
        key_files.write(key, (self.path / name).read_text(), 0o600)
        key_files.write(public, key_files.half(self.path / name), 0o644)
        yield f"HostKey {key}"
        kept = self.path / certificate.name
        if kept.exists():
            key_files.write(certificate, kept.read_text(), 0o644)
        if certificate.exists() and read_certificate(certificate).key != key_files.fingerprint(key):
            certificate.unlink()  # of the key before this one
        if certificate.exists():
            yield f"HostCertificate {certificate}"

    def known_hosts(self, hosts: Sequence[str], *, stolen: bool = False) -> str:
        """What people's known_hosts say: authorities where there are any, else all keys that nodes prove.

        Args:
            stolen: nobody is to believe the authority before this one, on any host.

        Raises:
            UsageError: `stolen`, and there was none before this one.
        """
        host = ",".join(hosts)
        authorities = [self.path / f"{name}.pub" for name in (_CA, _CA_NEXT)]
        found = [f"@cert-authority {host} {key_files.public(path)}" for path in authorities if path.exists()]
        if not found:
            names = [name.format(kind=kind) for name in (_KEY, _NEXT, _BEFORE) for kind in KINDS]
            paths = [self.path / name for name in names]
            found = [f"{host} {key_files.derived(path)}" for path in paths if path.exists()]
        if stolen:
            before = self.path / f"{_CA}.old"
            if not before.exists():
                raise UsageError(f"there is no {before}", "hpctools login host-keys authority --finish")
            found.append(f"@revoked * {key_files.derived(before)}")
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
            key_files.write(file, text, 0o644)


def _all_of(target: Path) -> dict[str, bytes]:
    """What sshd reads of ours."""
    paths = [*target.glob("ssh_host_*"), target / "sshd_config.d" / _CONF]
    return {path.name: path.read_bytes() for path in paths if path.is_file()}
