"""From here to a host: directly, through other hosts (ProxyJump), or through a program (ProxyCommand)."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import paramiko

from hpctools.errors import RemoteError, UnreachableError, UsageError
from hpctools.remote import host_keys
from hpctools.remote.identities import Person, authenticate
from hpctools.remote.names import host_and_port, is_host, is_user
from hpctools.remote.ssh_config import HostSettings, settings
from hpctools.remote.transport import CONNECT_SECONDS, CheckedTransport, check_host, handshake
from hpctools.slurm.run import Process, start

_KEEPALIVE_SECONDS = 15
_MOST_JUMPS = 8


@dataclass
class Connection:
    """A host that we are logged in to.

    Attributes:
        transport: to it.
        closers: what ends with it: connections that it goes through, programs.
    """

    transport: CheckedTransport
    settings: HostSettings
    closers: list[Callable[[], None]] = field(default_factory=list)

    def close(self) -> None:
        """Hang up."""
        self.transport.close()
        for close in reversed(self.closers):
            close()


@dataclass(frozen=True)
class Road:
    """What is common to all hosts of a connection.

    Attributes:
        config: another file than ssh's own; None: those.
        person: who can be asked for passphrases.
    """

    config: Path | None
    person: Person


def connect(alias: str, user: str, road: Road) -> Connection:
    """Log in to a host that has to be known.

    Raises:
        UnreachableError: it, or a host on the way, does not answer.
        UnknownHost, WrongHost: it is not who it should be.
        RemoteError: it does not let us in.
    """
    return _connect(settings(alias, user, road.config), road, _MOST_JUMPS)


def _connect(wanted: HostSettings, road: Road, jumps_left: int) -> Connection:
    seconds = wanted.connect_seconds or CONNECT_SECONDS
    with reached(wanted, road, jumps_left) as (sock, closers):
        known = host_keys.load(wanted)
        called = host_keys.known_names(wanted, known)
        # What is known of the bare name may be another sshd's: then this one is to be called unknown.
        only_known = called == host_keys.names(wanted)
        algorithms = host_keys.algorithms(known, called, only_known=only_known)
        transport = handshake(sock, wanted, algorithms, seconds)
        check_host(transport, wanted)
        try:
            authenticate(transport, wanted, road.person)
        except BaseException:
            transport.close()
            raise
        transport.set_keepalive(_KEEPALIVE_SECONDS)
        return Connection(transport, wanted, list(closers))


@contextlib.contextmanager
def reached(
    wanted: HostSettings, road: Road, jumps_left: int = _MOST_JUMPS
) -> Iterator[tuple[Any, list[Callable[[], None]]]]:
    """A stream to a host's sshd, and what has to be closed with it; it is, when the block fails.

    Raises:
        UnreachableError: nothing answers there.
    """
    closers: list[Callable[[], None]] = []
    try:
        yield _stream(wanted, road, jumps_left, closers), closers
    except BaseException:
        for close in reversed(closers):
            close()
        raise


def _stream(wanted: HostSettings, road: Road, jumps_left: int, closers: list[Callable[[], None]]) -> Any:
    if wanted.jumps:
        return _through_hosts(wanted, road, jumps_left, closers)
    if wanted.proxy_command:
        return _through_program(wanted, closers)
    return _directly(wanted, closers)


def _directly(wanted: HostSettings, closers: list[Callable[[], None]]) -> socket.socket:
    seconds = wanted.connect_seconds or CONNECT_SECONDS
    try:
        sock = socket.create_connection((wanted.host, wanted.port), timeout=seconds)
    except (OSError, UnicodeError) as error:
        raise _silent(wanted, str(getattr(error, "strerror", None) or error)) from None
    # Requests are small, and each is waited for.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    closers.append(sock.close)
    return sock


def _through_hosts(
    wanted: HostSettings, road: Road, jumps_left: int, closers: list[Callable[[], None]]
) -> paramiko.Channel:
    if jumps_left <= 0:
        raise RemoteError(f"ProxyJump of {wanted.alias} goes in a circle", "see ~/.ssh/config")
    *before, last = wanted.jumps
    hop = _hop(last, road)
    # The hosts before the last one are its way, whatever its own configuration says.
    way = replace(hop, jumps=tuple(before), proxy_command="") if before else hop
    connection = _connect(way, road, jumps_left - 1)
    closers.append(connection.close)
    try:
        return connection.transport.open_channel(
            "direct-tcpip", (wanted.host, wanted.port), ("127.0.0.1", 0), timeout=CONNECT_SECONDS
        )
    except (paramiko.SSHException, EOFError, OSError) as error:
        raise _silent(wanted, f"{last} does not get there: {error}") from None


def _hop(word: str, road: Road) -> HostSettings:
    """[user@]host[:port] or ssh://[user@]host[:port] of ProxyJump."""
    user, _, address = word.removeprefix("ssh://").rpartition("@")
    try:
        host, port = host_and_port(address)
    except UsageError as error:
        raise RemoteError(f"ProxyJump of ~/.ssh/config: {error.message}", error.remedy) from None
    if not is_host(host) or (user and not is_user(user)):
        raise RemoteError(f"ProxyJump names {word!r}, which is no host", "see ~/.ssh/config")
    return settings(host, user, road.config).at(port)


def _through_program(wanted: HostSettings, closers: list[Callable[[], None]]) -> socket.socket:
    """Its standard input and output are a socket, which paramiko can wait for."""
    ours, its = socket.socketpair()
    shell = os.environ.get("SHELL") or "/bin/sh"
    with its:
        # It keeps our terminal, where it may ask for a passphrase; Ctrl-C is ours to answer, not its.
        process = start(
            ["/bin/sh", "-c", "trap '' INT; exec \"$@\"", "sh", shell, "-c", f"exec {wanted.proxy_command}"],
            stdin=its.fileno(),
            stdout=its.fileno(),
        )
    closers += [lambda: _end(process), ours.close]
    return ours


def _end(process: Process) -> None:
    process.terminate()
    try:
        process.wait(5)
    except Exception:  # noqa: BLE001 - it does not end when asked
        process.kill()
        process.wait()


def _silent(wanted: HostSettings, why: str) -> UnreachableError:
    return UnreachableError(
        f"{wanted.alias} ({wanted.host}, port {wanted.port}) does not answer: {why}",
        f"is the network there? `ssh {wanted.alias}` shows more",
    )
