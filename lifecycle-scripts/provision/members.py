"""Which Slurm node belongs to which instance group, by slurm.conf and HyperPod's resource_config.json.

Slurm's names on HyperPod are host names (`ip-10-1-1-7`); the site speaks of groups. Addresses and names are
compared whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from provision.hostlist import expand
from provision.roles import instances

_NODE_LINE = re.compile(r"\s*NodeName\s*=\s*(\S+)(.*)", re.IGNORECASE)
_ADDRESS = re.compile(r"\bNodeAddr\s*=\s*(\S+)", re.IGNORECASE)


@dataclass(frozen=True)
class NodeLine:
    """One NodeName line of slurm.conf.

    Attributes:
        names: the nodes that it is about.
        addresses: their addresses, where it states them.
    """

    names: tuple[str, ...]
    addresses: tuple[str, ...]


def node_line(line: str) -> NodeLine | None:
    """Read a line; None when it is about no nodes."""
    match = _NODE_LINE.fullmatch(line.rstrip("\r\n"))
    if match is None or match[1].lower() == "default":
        return None
    address = _ADDRESS.search(match[2])
    return NodeLine(expand(match[1]), expand(address[1]) if address else ())


def groups_by_name(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the group of each name and address that an instance may have in slurm.conf."""
    found: dict[str, str] = {}
    for group, instance in instances(config):
        address = str(instance.get("CustomerIpAddress") or "")
        names = (str(instance.get("InstanceName") or ""), address, f"ip-{address.replace('.', '-')}")
        found.update({name: group for name in names if name and name != "ip-"})
    return found


def groups_of_line(line: NodeLine, known: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each node of a line and its group; nodes that belong to none known are left out."""
    for place, name in enumerate(line.names):
        address = line.addresses[place] if place < len(line.addresses) else ""
        group = known.get(name) or known.get(address)
        if group:
            yield name, group


def nodes_by_group(text: str, known: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the Slurm nodes of each group, in slurm.conf's order."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        about = node_line(line)
        for name, group in groups_of_line(about, known) if about else ():
            found.setdefault(group, []).append(name)
    return found
