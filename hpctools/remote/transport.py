"""Paramiko's transport with a host that is checked as OpenSSH checks it, and no broken algorithms."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

import paramiko
from paramiko.message import Message
from paramiko.pkey import UnknownKeyType

from hpctools.errors import RemoteError, UnreachableError
from hpctools.remote import certificates, host_keys
from hpctools.remote.host_keys import Shown
from hpctools.remote.names import shown, shown_lines
from hpctools.remote.ssh_config import HostSettings

CONNECT_SECONDS = 15
_BROKEN = {
    "ciphers": ("aes128-cbc", "aes192-cbc", "aes256-cbc", "3des-cbc"),
    "macs": ("hmac-md5", "hmac-md5-96", "hmac-sha1", "hmac-sha1-96"),
}
# What paramiko has to say stands in the errors that it raises; it would print tracebacks else.
logging.getLogger("paramiko").addHandler(logging.NullHandler())
logging.getLogger("paramiko").propagate = False


class LostConnection(UnreachableError):
    """A connection that was there, and is no more."""


class HungUp(LostConnection):
    """A host that hung up while we logged in: nothing was asked there yet."""


class TurnedAway(RemoteError):
    """A host that knew who we are, said why it does not let us in, and hung up: PAM's no.

    Args:
        words: what it said, as it came.
    """

    def __init__(self, settings: HostSettings, words: str) -> None:
        super().__init__(f"{settings.alias} does not let {settings.user} in; it says:\n{shown_lines(words)}")


class NoKeyTaken(RemoteError):
    """A host that takes none of our keys, and asked nobody: the homes with the keys may not be there."""


class NotSigned(RemoteError):
    """A host that would take a key of ours, which did not sign: its agent is locked, or its token waits."""


class CheckedTransport(paramiko.Transport):  # type: ignore[misc]
    """A transport that asks for the host key algorithms it is given, certificates where they belong."""

    wanted_keys: tuple[str, ...] = ()
    parting: str = ""
    """What the host said as it hung up; paramiko throws it away."""
    had_session = False
    """Whether the host has ever given a session on it."""

    def _parse_disconnect(self, message: Message) -> None:
        message.get_int()
        self.parting = bytes(message.get_binary()).decode("utf-8", "replace")

    @property
    def preferred_keys(self) -> tuple[str, ...]:
        """Host key algorithms in the order in which we want them."""
        return self.wanted_keys


def handshake(sock: Any, settings: HostSettings, wanted: Sequence[str], seconds: float) -> CheckedTransport:
    """Exchange keys with a host; who it is has not been looked at yet.

    Raises:
        UnreachableError: it does not answer, or speaks no SSH.
    """
    transport = CheckedTransport(sock, disabled_algorithms=_BROKEN)
    transport.daemon = True
    transport.wanted_keys = tuple(wanted)
    transport.banner_timeout = transport.handshake_timeout = seconds
    transport.auth_timeout = 120
    try:
        transport.start_client(timeout=seconds)
    except paramiko.ssh_exception.IncompatiblePeer as error:
        transport.close()
        raise host_keys.WrongHost(
            f"{settings.alias} shows no host key of a kind that is known for it: {error}",
            f"compare its keys with what the site says: hp-submit trust {settings.name}",
        ) from None
    except (paramiko.SSHException, EOFError, OSError) as error:
        transport.close()
        raise _no_ssh(settings, str(error)) from None
    if not transport.initial_kex_done:  # paramiko just returns when the time is up
        transport.close()
        raise _no_ssh(settings, "")
    return transport


def _no_ssh(settings: HostSettings, why: str) -> UnreachableError:
    return UnreachableError(
        f"{settings.alias} ({settings.host}, port {settings.port}) speaks no SSH: {shown(why) or 'silence'}",
        "is that its sshd's port?",
    )


def shown_by(transport: CheckedTransport) -> Shown:
    """The host's key, and the certificate that came with it."""
    key = transport.get_remote_server_key()
    blob = getattr(key, "public_blob", None)
    return Shown(key.get_name(), key.asbytes(), blob.key_blob if blob else b"")


def check_host(transport: CheckedTransport, settings: HostSettings) -> None:
    """Refuse a host that is not known; closes the connection then.

    Raises:
        UnknownHost, WrongHost: as `host_keys.judge`.
    """
    try:
        known = host_keys.load(settings)
        host_keys.judge(shown_by(transport), settings, known, time.time(), is_signed)
    except RemoteError:
        transport.close()
        raise


def is_signed(key: bytes, signature: bytes, data: bytes) -> bool:
    """Whether a signature over some bytes is a key's."""
    try:
        kind = Message(key).get_text()
        if kind.endswith(certificates.SUFFIX):
            return False
        loaded = paramiko.PKey.from_type_string(kind, key)
        return bool(loaded.verify_ssh_sig(data, Message(signature)))
    except (UnknownKeyType, paramiko.SSHException, ValueError, IndexError):
        return False
