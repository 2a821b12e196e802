"""Which of a node's networks gloo uses."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed

INTERFACES = "GLOO_SOCKET_IFNAME"
"""torch's own variable: network interfaces, with commas between them."""

# torch.distributed does not type what it exports from C++.
_c10d: Any = torch.distributed


def interfaces(environ: Mapping[str, str]) -> list[str]:
    """The network interfaces that INTERFACES names; none: it is not set."""
    return [name for each in environ.get(INTERFACES, "").split(",") if (name := each.strip())]


def gloo_devices(host: str, members: Callable[[], Sequence[str]] = tuple) -> list[Any]:
    """What gloo listens and connects with: a device for each interface that is named, else one for `host`.

    gloo has a connection for each device between any two members, and uses them in turn, so all members need
    as many.

    Args:
        host, members: as `gloo_host`.

    Raises:
        RuntimeError: there is no such interface, or `host` is no address of ours.
    """
    create = _c10d.ProcessGroupGloo.create_device
    named = interfaces(os.environ)
    if named:
        return [create(interface=each) for each in named]
    return [create(hostname=gloo_host(host, members))]


def resolved(host: str) -> str | None:
    """The address that a name has here when it leads to the network; None: to ourselves, or nowhere."""
    try:
        address = socket.gethostbyname(host)
    except (OSError, UnicodeError):
        return None
    return None if ipaddress.ip_address(address).is_loopback else address


def source_towards(address: str) -> str | None:
    """Our address on the way to another one, as routes are now; None: no way. No packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
        except OSError:
            return None
        return str(probe.getsockname()[0])


def gloo_host(
    host: str,
    members: Callable[[], Sequence[str]],
    resolve: Callable[[str], str | None] = resolved,
    source: Callable[[str], str | None] = source_towards,
) -> str:
    """Our own address as gloo is to take it: it tells the others what our name resolves to here.

    Where that leads to ourselves (Debian's 127.0.1.1), it is our address on the way to one of the others, who
    has a name that leads to the network. Where nobody has, all are on this machine.

    Args:
        host: our address, as the others are told.
        members: what all members are told of each other; asked only where it is needed.
        resolve: what a name leads to here, as `resolved`.
        source: our address on the way there, as `source_towards`.
    """
    if resolve(host) is not None:
        return host
    for other in dict.fromkeys(members()):
        address = resolve(other)
        if address is not None and (ours := source(address)) is not None:
            return ours
    return host
