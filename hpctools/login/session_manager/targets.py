"""Which login node a Session Manager target is."""

from __future__ import annotations

import re
from collections.abc import Mapping

_HYPERPOD = re.compile(
    r"sagemaker-cluster:[a-z0-9]+_(?P<group>[a-z0-9](?:-*[a-z0-9])*)-(?P<instance>i-[0-9a-f]+)"
)


def instance_of(target: str) -> str:
    """The instance's id of a target: of HyperPod's `sagemaker-cluster:CLUSTER_GROUP-INSTANCE`, or itself."""
    found = _HYPERPOD.fullmatch(target)
    return found["instance"] if found is not None else target


def node_of(target: str, nodes: Mapping[str, str]) -> str:
    """The login node of a target; empty for one that is none, as compute nodes are.

    Args:
        nodes: names of login nodes by instance id.
    """
    return nodes.get(instance_of(target), "")
