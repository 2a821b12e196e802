"""Where this node is found: what was stated for it, else the address by which it gets out itself."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress

from hpctools.login.agent.settings import Settings

VARIABLE = "HPCTOOLS_LOGIN_ADDRESS"
"""What a node's own environment says of its address; the settings are the same on all nodes."""
# Addresses that nobody has (RFC 5737, RFC 3849), so that the default route is what is asked for.
_FAR = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
_PORT = 9  # nothing is sent there


def finder(settings: Settings, node: str, environment: Mapping[str, str]) -> Callable[[], str]:
    """A question: where this node is. Asked anew each time: a lease of DHCP may end in another address.

    Args:
        node: its name.
        environment: may have `VARIABLE`.

    Returns:
        What was stated: `address`, then that of `addresses`, then the environment's; else `route_address`.
    """
    stated = settings.address or settings.addresses.get(node, "") or environment.get(VARIABLE, "")
    return (lambda: stated) if stated else route_address


def route_address() -> str:
    """The address that the kernel would send from, by the default route; empty where others have none.

    One of the link only, or with a scope (`fe80::1%eth0`), says nothing to other machines.

    A UDP socket is connected, which looks the route up and sends nothing.
    """
    for family, far in _FAR:
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as asked:
            asked.connect((far, _PORT))
            found = str(asked.getsockname()[0])
            known = ipaddress.ip_address(found)
            if not (known.is_loopback or known.is_link_local or "%" in found):
                return found
    return ""
