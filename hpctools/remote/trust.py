"""`hp-submit trust`: who the login nodes are, agreed to by a person who compared fingerprints."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpctools.errors import RemoteError
from hpctools.remote import certificates, host_keys, known_hosts
from hpctools.remote.host_keys import Shown, UnknownHost
from hpctools.remote.known_hosts import fingerprint
from hpctools.remote.route import Road, reached
from hpctools.remote.ssh_config import HostSettings
from hpctools.remote.transport import CONNECT_SECONDS, check_host, handshake, shown_by


@dataclass(frozen=True)
class Offer:
    """A key that could be trusted.

    Attributes:
        settings: of the host that showed it.
        key: the host's own key, or that of the authority that signed it.
        kind: its type.
        marker: `@cert-authority` for an authority.
        names: whom the line in known_hosts would be about.
    """

    settings: HostSettings
    key: bytes
    kind: str
    marker: known_hosts.Marker
    names: str

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
        algorithms = host_keys.algorithms(host_keys.load(wanted), host_keys.names(wanted), only_known=False)
        transport = handshake(sock, wanted, algorithms, wanted.connect_seconds or CONNECT_SECONDS)
        found = shown_by(transport)
        try:
            check_host(transport, wanted)
        except UnknownHost:
            return _offer(found, wanted)
        finally:
            transport.close()
            for close in reversed(closers):
                close()
    return None


def _offer(shown: Shown, wanted: HostSettings) -> Offer:
    (name,) = host_keys.names(wanted)
    if shown.certificate:
        try:
            authority = certificates.read(shown.certificate).authority
            return Offer(wanted, authority, _kind(authority), "@cert-authority", name)
        except certificates.CertificateError:
            pass  # the bare key can be trusted all the same
    return Offer(wanted, shown.key, shown.kind, "", name)


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
    if not files:
        raise RemoteError("UserKnownHostsFile is none, so nothing can be remembered", "see ~/.ssh/config")
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
