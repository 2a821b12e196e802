"""A certificate for a service on 127.0.0.1, and a file that has it beside this machine's authorities."""

from __future__ import annotations

import datetime
import ssl
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a service of benches and tests")])
_HERE = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))])
_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Certificate:
    """A certificate of its own.

    Attributes:
        file: with its key.
        authorities: what whoever asks is told to trust, by $SSL_CERT_FILE.
    """

    file: Path
    authorities: Path

    def context(self, newest: ssl.TLSVersion) -> ssl.SSLContext:
        """A service's, which speaks nothing newer."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(self.file)
        made.maximum_version = newest
        return made


def certificate(folder: Path) -> Certificate:
    """Make one; reading the authorities takes as long as anybody's does."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = x509.CertificateBuilder().subject_name(_NAME).issuer_name(_NAME).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now - _DAY).not_valid_after(now + _DAY)
    made = builder.add_extension(_HERE, critical=False).sign(key, hashes.SHA256())
    shown = made.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    found = Certificate(folder / "service.pem", folder / "authorities.pem")
    found.file.write_bytes(private + shown)
    found.authorities.write_bytes(_of_this_machine() + shown)
    return found


def _of_this_machine() -> bytes:
    with suppress(OSError):
        return Path(ssl.get_default_verify_paths().openssl_cafile).read_bytes()
    return b""
