"""The nodes of a partition, as one folded list: pure."""

from __future__ import annotations

from collections.abc import Mapping

from hpctools.conf.plan import keys
from hpctools.conf.plan.meaning import Meaning, Raw
from hpctools.conf.plan.sides import folded


def nodes_of(meaning: Meaning, raw: Raw) -> str:
    """The partition's nodes: ALL and NodeSets are lists of their own."""
    text = raw.get("nodes", "")
    if text.upper() == "ALL":
        return folded(meaning.nodes) if meaning.nodes else ""
    if not meaning.node_sets:
        return keys.partition("nodes", text)
    parts = [_of_set(meaning, part) for part in text.split(",")]
    return keys.partition("nodes", ",".join(part for part in parts if part))


def _of_set(meaning: Meaning, name: str) -> str:
    found: Mapping[str, str] | None = meaning.node_sets.get(name)
    if found is None:
        return name
    if "nodes" in found:
        return found["nodes"]
    words = set(found.get("features", "").split(","))
    return folded(
        name for name, node in meaning.nodes.items() if words & set(node.shape.get("features", "").split(","))
    )
