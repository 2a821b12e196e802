"""A person's keys, of the agent and of files, each with the certificates that are its own.

Paramiko's classes for both are not used: they take a certificate for its bare key (agent), or a key of the
same type for the certificate's own (files). Sources: PROTOCOL.key, PROTOCOL.agent in OpenSSH.
"""

from __future__ import annotations

import base64
import contextlib
import io
import os
import struct
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from paramiko.agent import ALGORITHM_FLAG_MAP
from paramiko.message import Message
from paramiko.pkey import PublicBlob, UnknownKeyType

from hpctools.remote import certificates
from hpctools.remote.ssh_config import HostSettings

UNUSABLE = (ValueError, OSError, paramiko.SSHException, UnsupportedAlgorithm, UnknownKeyType)
"""What reading a private key ends with that is none, or of a kind that only an agent can use (FIDO, DSA)."""
_LIST, _LISTED, _SIGN, _SIGNED = 11, 12, 13, 14
_MAGIC = b"openssh-key-v1\0"
_KINDS = (
    (ed25519.Ed25519PrivateKey, paramiko.Ed25519Key),
    (rsa.RSAPrivateKey, paramiko.RSAKey),
    (ec.EllipticCurvePrivateKey, paramiko.ECDSAKey),
)


class Signer(Protocol):
    """What can sign with a private key: an agent, or a file that was read."""

    def sign_ssh_data(self, data: bytes, algorithm: str | None = None) -> Any:
        """A signature as SSH sends it."""


@dataclass(frozen=True)
class Offer:
    """A key as a host is shown it, bare or with one certificate; paramiko asks no more of a key than this.

    Attributes:
        name: for people.
        blob: its public half, without a certificate.
        certificate: empty: none.
        unable: public halves of keys that did not sign; this one's comes in when it does not.
    """

    name: str
    blob: bytes
    signer: Signer
    unable: set[bytes]
    certificate: bytes = b""

    @property
    def public_blob(self) -> PublicBlob | None:
        """The certificate, where paramiko looks for it."""
        return PublicBlob(kind(self.certificate), self.certificate) if self.certificate else None

    def get_name(self) -> str:
        """The key's type, as SSH names it."""
        return kind(self.blob)

    def asbytes(self) -> bytes:
        """The public half."""
        return self.blob

    def sign_ssh_data(self, data: bytes, algorithm: str | None = None) -> Any:
        """A signature; a void one where there is none (card removed, `ssh-add -c` denied).

        Paramiko calls this in its own thread: an error here would end the connection, and with it the
        keys that are still to come. A void signature costs one attempt.
        """
        try:
            return self.signer.sign_ssh_data(data, algorithm)
        except (ValueError, OSError, struct.error, paramiko.SSHException):
            self.unable.add(self.blob)
            name = (algorithm or self.get_name()).removesuffix(certificates.SUFFIX).encode()
            return _string(name) + _string(bytes(64))


@dataclass(frozen=True)
class AgentKey:
    """An entry of the agent: a key, or a certificate with its key."""

    agent: Any
    blob: bytes
    comment: str

    def sign_ssh_data(self, data: bytes, algorithm: str | None = None) -> bytes:
        """The agent's signature.

        Raises:
            SSHException: it refuses, or is gone.
            OSError: as above.
        """
        request = Message()
        request.add_byte(bytes([_SIGN]))
        request.add_string(self.blob)
        request.add_string(data)
        request.add_int(ALGORITHM_FLAG_MAP.get(algorithm, 0))
        code, answer = self.agent._send_message(request)
        if code != _SIGNED:
            raise paramiko.SSHException("the agent did not sign")
        return bytes(answer.get_binary())


class _Agent(paramiko.Agent):  # type: ignore[misc]
    """Paramiko's agent; its own list fails at a comment that is no UTF-8, and at a key it cannot read."""

    def _connect(self, conn: Any) -> None:
        self._conn = conn
        code, answer = self._send_message(bytes([_LIST]))
        if code != _LISTED:
            raise paramiko.SSHException("the agent does not tell its keys")
        parts = [(answer.get_binary(), answer.get_binary()) for _ in range(answer.get_int())]
        self._keys = tuple(AgentKey(self, blob, text.decode("utf-8", "replace")) for blob, text in parts)


@contextlib.contextmanager
def agent_keys(socket_path: str) -> Iterator[list[AgentKey]]:
    """The agent's entries, none where there is no agent; it signs until the block ends.

    Args:
        socket_path: as `HostSettings.agent`.
    """
    agent = None if socket_path == "none" else _agent(socket_path)
    try:
        yield list(agent.get_keys()) if agent is not None else []
    finally:
        if agent is not None:
            agent.close()


def _agent(socket_path: str) -> _Agent | None:
    before = os.environ.get("SSH_AUTH_SOCK")
    if socket_path:
        os.environ["SSH_AUTH_SOCK"] = socket_path  # the only way that paramiko has
    try:
        return _Agent()
    except (paramiko.SSHException, OSError, ValueError, struct.error):
        return None
    finally:
        if socket_path and before is None:
            del os.environ["SSH_AUTH_SOCK"]
        elif before is not None:
            os.environ["SSH_AUTH_SOCK"] = before


@dataclass(frozen=True)
class Ring:
    """What the agent has, and the certificates of files.

    Attributes:
        held: entries of the agent by the bare key that they are of, in the agent's order.
        of_files: certificates by the bare key that they are of.
        unable: as of `Offer`.
    """

    held: dict[bytes, list[AgentKey]]
    of_files: dict[bytes, list[bytes]]
    unable: set[bytes]

    def of_agent(self, blob: bytes, name: str = "") -> list[Offer]:
        """A key of the agent's: with each certificate, then bare, unless only a certificate is known.

        Args:
            name: of the file that names it; then the bare key is offered in any case.
        """
        entries = self.held[blob]
        called = name or entries[0].comment or kind(blob)
        # An entry signs with its private key, whatever of it is shown.
        signer = next((entry for entry in entries if entry.blob == blob), entries[0])
        signed = {entry.blob: entry for entry in entries if entry.blob != blob}
        signed |= {each: signer for each in self.of_files.get(blob, ()) if each not in signed}
        found = [Offer(f"{called} (agent)", blob, by, self.unable, each) for each, by in signed.items()]
        if name or signer.blob == blob:
            found.append(Offer(f"{called} (agent)", blob, signer, self.unable))
        return found

    def of_file(self, key: paramiko.PKey, name: str) -> list[Offer]:
        """A key of a file: with each certificate of its own, then bare."""
        blob = bytes(key.asbytes())
        return [Offer(name, blob, key, self.unable, each) for each in (*self.of_files.get(blob, ()), b"")]


def ring(entries: Iterable[AgentKey], settings: HostSettings, unable: set[bytes]) -> Ring:
    """Sort the agent's entries, and read the certificates that ssh would."""
    held: dict[bytes, list[AgentKey]] = {}
    for entry in entries:
        if plain := certificates.plain_key(entry.blob):
            held.setdefault(plain, []).append(entry)
    beside = [path.with_name(f"{path.name}-cert.pub") for path in settings.identity_files]
    of_files: dict[bytes, list[bytes]] = {}
    for path in (*settings.certificate_files, *beside):
        blob = _line(path)
        plain = certificates.plain_key(blob) if blob else None
        if blob and plain and plain != blob and blob not in of_files.setdefault(plain, []):
            of_files[plain].append(blob)
    return Ring(held, of_files, unable)


def public_half(path: Path) -> bytes | None:
    """The public half of a private key: from beside it, from the file itself, which may be a public key, or
    from within a private key of OpenSSH's format, where it is not encrypted."""
    blob = _line(path.with_name(path.name + ".pub")) or _line(path) or _within(path)
    return certificates.plain_key(blob) if blob else None


def _line(path: Path) -> bytes | None:
    with contextlib.suppress(OSError, ValueError):
        return bytes(PublicBlob.from_file(str(path)).key_blob)
    return None


def _within(path: Path) -> bytes | None:
    with contextlib.suppress(OSError, ValueError):
        lines = path.read_text("ascii").splitlines()
        data = base64.b64decode("".join(line for line in lines if not line.startswith("-----")))
        reader = Message(data)
        if reader.get_bytes(len(_MAGIC)) == _MAGIC:
            for _ in ("cipher", "kdf", "kdf's options"):
                reader.get_string()
            return bytes(reader.get_string()) if reader.get_int() == 1 else None
    return None


def load(path: Path, passphrase: str | None) -> paramiko.PKey:
    """Read a private key.

    `PKey.from_path` would take a certificate beside it as well, and fail at a broken one.

    Raises:
        TypeError, PasswordRequiredException: it has a passphrase, and none is given.
        UNUSABLE: it cannot be read, or the passphrase is wrong.
    """
    data, secret = path.read_bytes(), passphrase.encode() if passphrase else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that DSA is old is no news for who submits a job
        read = _read(data, secret)
    for one, kind_of_key in _KINDS:
        if isinstance(read, one):
            return kind_of_key.from_private_key(io.StringIO(data.decode()), secret)
    raise UnknownKeyType(key_type=type(read).__name__, key_bytes=b"")


def _read(data: bytes, secret: bytes | None) -> object:
    try:
        return serialization.load_ssh_private_key(data, secret)
    except ValueError:
        return serialization.load_pem_private_key(data, secret)


def kind(blob: bytes) -> str:
    """The type of a public key or certificate, as SSH names it."""
    return bytes(Message(blob).get_binary()).decode("utf-8", "replace")


def _string(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data
