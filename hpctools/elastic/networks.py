"""Which of a node's networks gloo uses."""

from __future__ import annotations

import os
from collections.abc import Mapping
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


def gloo_devices(host: str) -> list[Any]:
    """What gloo listens and connects with: a device for each interface that is named, else one for `host`.

    gloo has a connection for each device between any two members, and uses them in turn, so all members need
    as many.

    Raises:
        RuntimeError: there is no such interface, or `host` is no address of ours.
    """
    create = _c10d.ProcessGroupGloo.create_device
    named = interfaces(os.environ)
    return [create(interface=each) for each in named] if named else [create(hostname=host)]
