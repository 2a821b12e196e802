"""OpenSSH host certificates: read, and judged. Source: PROTOCOL.certkeys in OpenSSH.

Paramiko takes a host's certificate for its bare key: it looks at nothing else in it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hpctools.remote.known_hosts import matches

SUFFIX = "-cert-v01@openssh.com"
_HOST = 2
_NUMBERS = {"ssh-ed25519": 1, "ssh-rsa": 2, "ecdsa-sha2-nistp256": 2, "ecdsa-sha2-nistp384": 2}
_NUMBERS["ecdsa-sha2-nistp521"] = 2
_TOKENS = {"sk-ssh-ed25519@openssh.com": 2, "sk-ecdsa-sha2-nistp256@openssh.com": 3}
"""Kinds that only people have."""
WEAK_SIGNATURES = {"ssh-rsa", "ssh-dss"}
"""SHA-1: no certificate authority of today signs with it, and OpenSSH takes it no more."""


class CertificateError(ValueError):
    """A certificate that does not hold; the message says why."""


@dataclass(frozen=True)
class Certificate:
    """A certificate.

    Attributes:
        kind: its type.
        plain_key: the host's own key, without the certificate.
        of_host: it is a host's, not a person's.
        key_id: what its authority called it.
        principals: names of the hosts that it holds for; none: every one.
        valid_after, valid_before: Unix seconds; the second is exclusive.
        critical: names of options that who does not know them must refuse.
        authority: the key that signed it.
        signature: over `signed`, with the algorithm's name before it.
    """

    kind: str
    plain_key: bytes
    of_host: bool
    key_id: str
    principals: tuple[str, ...]
    valid_after: int
    valid_before: int
    critical: tuple[str, ...]
    authority: bytes
    signature: bytes
    signed: bytes


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        end = self.position + size
        if size < 0 or end > len(self.data):
            raise CertificateError("it ends too early")
        found = self.data[self.position : end]
        self.position = end
        return found

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def string(self) -> bytes:
        return self.take(self.number(4))

    def text(self) -> str:
        return self.string().decode("utf-8", "backslashreplace")

    @property
    def more(self) -> bool:
        return self.position < len(self.data)


def read(blob: bytes) -> Certificate:
    """Read a certificate as SSH sends it.

    Raises:
        CertificateError: it is none, or of a type that we do not know.
    """
    reader = _Reader(blob)
    kind = reader.text()
    plain = kind.removesuffix(SUFFIX)
    if plain == kind or plain not in _NUMBERS:
        raise CertificateError(f"its type {kind!r} is not known")
    reader.string()  # the nonce
    numbers = [reader.string() for _ in range(_NUMBERS[plain])]
    reader.number(8)  # the serial number
    type_, key_id = reader.number(4), reader.text()
    principals = _texts(reader.string())
    after, before = reader.number(8), reader.number(8)
    critical = _texts(reader.string(), with_values=True)
    reader.string(), reader.string()  # extensions, which hosts have none of; reserved
    authority = reader.string()
    signed = blob[: reader.position]
    signature = reader.string()
    if reader.more:
        raise CertificateError("something follows it")
    key = b"".join(struct.pack(">I", len(part)) + part for part in (plain.encode(), *numbers))
    return Certificate(
        kind,
        key,
        type_ == _HOST,
        key_id,
        principals,
        after,
        before,
        critical,
        authority,
        signature,
        signed,
    )


def plain_key(blob: bytes) -> bytes | None:
    """The bare key of a public key or of a certificate of any kind; None: it cannot be read.

    Of a person's certificate: who it holds for is not looked at, that is the host's to judge.
    """
    try:
        reader = _Reader(blob)
        kind = reader.text()
        plain = kind.replace(SUFFIX, "@openssh.com" if kind.startswith("sk-") else "")
        if plain == kind:
            return blob
        reader.string()  # the nonce
        numbers = [reader.string() for _ in range({**_NUMBERS, **_TOKENS}[plain])]
    except (CertificateError, KeyError):
        return None
    return b"".join(struct.pack(">I", len(part)) + part for part in (plain.encode(), *numbers))


def _texts(data: bytes, *, with_values: bool = False) -> tuple[str, ...]:
    reader, found = _Reader(data), []
    while reader.more:
        found.append(reader.text())
        if with_values:
            reader.string()
    return tuple(found)


def check(
    certificate: Certificate, names: Sequence[str], now: float, verify: Callable[[bytes, bytes, bytes], bool]
) -> None:
    """Whether a certificate holds for a host; that its authority is to be trusted is not looked at.

    Args:
        names: what the host is called, without a port.
        now: Unix seconds.
        verify: whether a signature (second) over some bytes (third) is a key's (first).

    Raises:
        CertificateError: it does not hold.
    """
    if not certificate.of_host:
        raise CertificateError("it is a person's, not a host's")
    if certificate.critical:
        raise CertificateError(f"it has options that we do not know: {', '.join(certificate.critical)}")
    if now < certificate.valid_after:
        raise CertificateError("it is not valid yet; is this machine's clock right?")
    if now >= certificate.valid_before:
        raise CertificateError("it has expired; is this machine's clock right?")
    principals = certificate.principals
    if principals and not any(matches(each, name) for each in principals for name in names):
        raise CertificateError(f"it holds for {', '.join(principals)}")
    algorithm = _Reader(certificate.signature).text()
    if algorithm in WEAK_SIGNATURES:
        raise CertificateError(f"it is signed with {algorithm}, which is broken")
    if not _is_whole(certificate.signature) or not verify(
        certificate.authority, certificate.signature, certificate.signed
    ):
        raise CertificateError("its signature is wrong")


def _is_whole(signature: bytes) -> bool:
    """Whether a signature has its parts and nothing else; paramiko fills up what is too short."""
    reader = _Reader(signature)
    algorithm, parts = reader.text(), _Reader(reader.string())
    if algorithm.startswith("ecdsa"):
        parts.string(), parts.string()
        return not reader.more and not parts.more
    return not reader.more
