"""Which nodes and partitions a configuration says there are: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from ClusterShell.NodeSet import NodeSet, NodeSetParseError

from hpctools.conf import text
from hpctools.conf.preflight.statements import Statement

# Nodes that slurmctld does not show until they register.
_HIDDEN_STATES = ("future",)


@dataclass(frozen=True)
class Expected:
    """What slurmctld should show.

    Attributes:
        nodes: the `Gres=` of each node, by name.
        partitions: each partition's nodes as a host list; None where the files alone do not tell.
    """

    nodes: Mapping[str, str] = field(default_factory=dict)
    partitions: Mapping[str, str | None] = field(default_factory=dict)


def expected(found: list[Statement]) -> Expected:
    """Read what slurmctld should show off the statements of slurm.conf.

    What cannot be read is left out: slurmctld has its own words for that.
    """
    nodes = _nodes(found)
    every = text.fold(nodes)
    sets = {each.words["nodeset"] for each in found if "nodeset" in each.words}
    partitions: dict[str, str | None] = {}
    default = ""
    for each in found:
        name = each.words.get("partitionname", "")
        stated = each.words.get("nodes", default)
        if name.lower() == "default":
            default = stated
        elif name:
            partitions[name] = _members(stated, every, sets)
    return Expected(nodes, partitions)


def _nodes(found: list[Statement]) -> dict[str, str]:
    nodes: dict[str, str] = {}
    gres, state = "", "unknown"
    for each in found:
        name = each.words.get("nodename", "")
        mine, kept = each.words.get("gres", gres), each.words.get("state", state).lower()
        if name.lower() == "default":
            gres, state = mine, kept
        elif name and kept not in _HIDDEN_STATES:
            nodes.update(dict.fromkeys(unfold(name), mine))
    return nodes


def _members(stated: str, every: str, sets: set[str]) -> str | None:
    if stated.lower() == "all":
        return every
    if set(stated.split(",")) & sets:
        return None
    return "" if stated == "(null)" else stated


@lru_cache(maxsize=4096)  # partitions often share their nodes
def fold(names: str) -> str | None:
    """Spell a host list in the one way that can be compared; None when it is none."""
    try:
        return "" if names.lower() in ("", "(null)") else str(NodeSet(names))
    except NodeSetParseError:
        return None


def unfold(folded: str) -> tuple[str, ...]:
    """The names of a host list; none when it cannot be read."""
    try:
        return tuple(NodeSet(folded))
    except NodeSetParseError:
        return ()
