"""Who this node is: its group and role, read from HyperPod's resource_config.json.

Addresses and names are compared whole: 10.1.1.1 is not 10.1.1.17, and group `gpu` is not `gpu-2`. A group
without instances has `null` there. A copy on a worker may be old: it then lacks nodes that came later, and
nothing here needs them but this node itself and the controllers.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provision.failures import Failure
from provision.files import on_node, read_json, read_text

ROLES = ("controller", "login", "compute")
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Node:
    """This node.

    Attributes:
        role: controller, login or compute; unknown when it cannot be told.
        group: its instance group.
        instance: its name in the group, as in `gpu-1`.
        instance_id: EC2's name of it.
        address: its address in the cluster.
        controllers: addresses of the controllers, the primary first.
        cluster: the cluster's name.
    """

    role: str
    group: str = ""
    instance: str = ""
    instance_id: str = ""
    address: str = ""
    controllers: tuple[str, ...] = ()
    cluster: str = ""

    @classmethod
    def unknown(cls) -> Node:
        """A node of which nothing is known."""
        return cls(UNKNOWN)

    def environment(self) -> dict[str, str]:
        """The same for the environment of a step."""
        return {
            "HPCTOOLS_ROLE": self.role,
            "HPCTOOLS_NODE": socket.gethostname().partition(".")[0],
            "HPCTOOLS_GROUP": self.group,
            "HPCTOOLS_INSTANCE": self.instance,
            "HPCTOOLS_INSTANCE_ID": self.instance_id,
            "HPCTOOLS_ADDRESS": self.address,
            "HPCTOOLS_CONTROLLERS": ",".join(self.controllers),
            "HPCTOOLS_CLUSTER": self.cluster,
        }


def read_node(path: Path, roles: Mapping[str, str]) -> Node:
    """Read who this node is.

    Args:
        path: resource_config.json.
        roles: the role of each group, from the site.

    Raises:
        Failure: the file is missing or damaged, knows none of this node's addresses, or a group that the
            site does not know.
    """
    found = read_json(path, "HyperPod's resource_config.json")
    try:
        return node_among(found, local_addresses(), roles)
    except Failure as failure:
        raise Failure(f"{path}: {failure}", exit_code=3) from None


def node_among(config: object, addresses: frozenset[str], roles: Mapping[str, str]) -> Node:
    """Find this node in the configuration; pure.

    Args:
        config: what resource_config.json says.
        addresses: this node's addresses.
        roles: the role of each group.

    Raises:
        Failure: it is not there, not exactly once, or in a group without a role.
    """
    if not isinstance(config, dict):
        raise Failure("is no JSON object: the file is damaged")
    controllers = _controllers(config)
    found = [(group, one) for group, one in instances(config) if one.get("CustomerIpAddress") in addresses]
    if len(found) != 1:
        known = ", ".join(sorted(addresses)) or "none"
        count = "no instance has" if not found else f"{len(found)} instances have"
        raise Failure(f"{count} an address of this node ({known}): the file is old or of another node")
    group, instance = found[0]
    address = str(instance["CustomerIpAddress"])
    return Node(
        role=_role(group, address, controllers, roles),
        group=group,
        instance=str(instance.get("InstanceName") or ""),
        instance_id=str(instance.get("InstanceId") or ""),
        address=address,
        controllers=controllers,
        cluster=str(_object(config, "ClusterConfig").get("ClusterName") or ""),
    )


def _object(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = config.get(key)
    return value if isinstance(value, dict) else {}


def instances(config: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each instance with its group's name; a group without instances has null there.

    Raises:
        Failure: there is no list of groups.
    """
    groups = config.get("InstanceGroups")
    if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
        raise Failure("has no list of InstanceGroups: the file is damaged")
    for group in groups:
        for instance in group.get("Instances") or ():
            if isinstance(instance, dict):
                yield str(group.get("Name") or ""), instance


def _controllers(config: Mapping[str, Any]) -> tuple[str, ...]:
    slurm = _object(config, "SlurmConfig")
    addresses = [slurm.get("PrimaryControllerIp"), *(slurm.get("SecondaryControllerIps") or ())]
    return tuple(str(address) for address in addresses if address)


def _role(group: str, address: str, controllers: tuple[str, ...], roles: Mapping[str, str]) -> str:
    if address in controllers:
        return "controller"
    role = roles.get(group)
    if role not in ROLES:
        known = ", ".join(sorted(roles)) or "none"
        raise Failure(f"the site knows no group {group!r} (it has: {known}): add it, bundle and upload again")
    return role


def local_addresses() -> frozenset[str]:
    """This node's own IPv4 addresses, as the kernel's routing table has them."""
    text = read_text(on_node("/proc/net/fib_trie"), "the kernel's table of addresses")
    found = re.findall(r"\|-- (\d+\.\d+\.\d+\.\d+)\s+/32 host LOCAL", text)
    return frozenset(address for address in found if not address.startswith("127."))
