"""`hp-submit trust`: who the login nodes are, agreed to by a person who compared fingerprints."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpctools.errors import RemoteError
from hpctools.remote import certificates, host_keys, known_hosts
from hpctools.remote.host_keys import Shown, UnknownHost
from hpctools.remote.known_hosts import KnownHosts, fingerprint
from hpctools.remote.names import shown as printable
from hpctools.remote.route import Road, reached
from hpctools.remote.ssh_config import HostSettings
from hpctools.remote.transport import CONNECT_SECONDS, check_host, handshake, is_signed, shown_by


@dataclass(frozen=True)
class Offer:
    """A key that could be trusted.

    Attributes:
        settings: of the host that showed it.
        key: the host's own key, or that of the authority that signed it.
        kind: its type.
        marker: `@cert-authority` for an authority.
        names: whom the line in known_hosts would be about.
        why: why its certificate does not hold, where it showed one and its own key is offered.
    """

    settings: HostSettings
    key: bytes
    kind: str
    marker: known_hosts.Marker
    names: str
    why: str = ""

    @property
    def fingerprint(self) -> str:
        """What to compare."""
        return fingerprint(self.key)


def look(wanted: HostSettings, road: Road) -> Offer | None:
    """What a host shows, when it is not known yet; None when it is.

    Raises:
        WrongHost: it shows another key than the known one: that is for `ssh-keygen -R`, by a person.
        UnreachableError: it does not answer.
    """
    with reached(wanted, road) as (sock, closers):
        known = host_keys.load(wanted)
        algorithms = host_keys.algorithms(known, host_keys.known_names(wanted, known), only_known=False)
        transport = handshake(sock, wanted, algorithms, wanted.connect_seconds or CONNECT_SECONDS)
        found = shown_by(transport)
        try:
            check_host(transport, wanted)
        except UnknownHost:
            return offered(found, wanted)
        finally:
            transport.close()
            for close in reversed(closers):
                close()
    return None


def told(wanted: HostSettings, listed: KnownHosts) -> list[Offer]:
    """What a site's list says of a host, and the person's known_hosts files do not say yet.

    A host shows one key of a kind, so the one that comes next is learned from a list only.

    Args:
        listed: lines of `hpctools login host-keys known-hosts`; they may name the host without its port.
    """
    known, called = host_keys.load(wanted), host_keys.names(wanted)
    asked = [*called, wanted.host, wanted.alias]
    offers: dict[tuple[str, bytes], Offer] = {}
    markers: tuple[known_hosts.Marker, ...] = ("", "@cert-authority")
    for marker in markers:
        for line in listed.keys(asked, marker):
            had = any(each.key == line.key for each in known.keys(called, marker))
            if not had and not (known.is_revoked(line.key, called) or listed.is_revoked(line.key, asked)):
                offers[marker, line.key] = Offer(wanted, line.key, line.kind, marker, called[0])
    return list(offers.values())


def is_told(wanted: HostSettings, listed: KnownHosts) -> bool:
    """Whether a site's list says anything of a host."""
    asked = [*host_keys.names(wanted), wanted.host, wanted.alias]
    return bool(listed.keys(asked) or listed.keys(asked, "@cert-authority"))


def offered(shown: Shown, wanted: HostSettings) -> Offer:
    """An authority only where its certificate holds today: else the host would be refused ever after."""
    (name,) = host_keys.names(wanted)
    why = ""
    if shown.certificate:
        try:
            certificate = certificates.read(shown.certificate)
            called = [wanted.known_as] if wanted.known_as else [wanted.host]
            certificates.check(certificate, called, time.time(), is_signed)
            if certificate.plain_key == shown.key:
                authority = certificate.authority
                return Offer(wanted, authority, _kind(authority), "@cert-authority", name)
            why = "it is another key's"
        except certificates.CertificateError as error:
            why = printable(str(error))  # the host wrote what it holds for
    return Offer(wanted, shown.key, shown.kind, "", name, why)


def _kind(key: bytes) -> str:
    length = int.from_bytes(key[:4], "big")
    return key[4 : 4 + length].decode("ascii", "replace")


def agree(offers: Sequence[Offer], agreed: Callable[[Sequence[Offer]], bool]) -> list[Offer]:
    """Those that somebody agrees to; hosts that show the same key or authority are one question."""
    groups: dict[tuple[str, bytes], list[Offer]] = {}
    for offer in offers:
        groups.setdefault((offer.marker, offer.key), []).append(offer)
    return [offer for group in groups.values() if agreed(group) for offer in group]


def remember(offer: Offer) -> Path:
    """Add a line to the person's first known_hosts file; return the file.

    Raises:
        RemoteError: it cannot be written.
    """
    files = offer.settings.user_known_hosts
    if not files or files[0] == Path(os.devnull):
        raise RemoteError(
            f"UserKnownHostsFile of {offer.settings.alias} is {files[0] if files else 'none'}, "
            "so nothing can be remembered",
            "give it a file in ~/.ssh/config: UserKnownHostsFile ~/.ssh/known_hosts",
        )
    # A hashed authority is of no use: ssh knows no patterns in hashes.
    hide = offer.settings.hash_names and not offer.marker
    names = known_hosts.hashed(offer.names) if hide else offer.names
    text = known_hosts.line(names, offer.kind, offer.key, offer.marker)
    try:
        _append(files[0], text)
    except OSError as error:
        raise RemoteError(f"cannot write {files[0]}: {error.strerror}", "check its permissions") from None
    return files[0]


def _append(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(size - 1)
            # A file may end without a line break.
            text = text if file.read(1) == b"\n" else "\n" + text
        file.write(text.encode("ascii"))
        file.flush()
        os.fsync(file.fileno())
