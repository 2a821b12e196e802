"""What must hold between single nodes: names that are told apart, and a place for each in the topology.

Asked of a site whose parts are valid, since host lists have to be expanded. Like `rules.py` otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from hpctools.site.findings import Finding, Location
from hpctools.site.hostlist import expand
from hpctools.site.model import Site
from hpctools.site.topology import Block, Switch, Topology

Check = Callable[[Site], Iterator[Finding]]

_MOST_TOLD = 3


def check_places(site: Site) -> Iterator[Finding]:
    """Apply every check to a site; findings name the lines of its source."""
    for check in CHECKS:
        yield from check(site)


def hosts_are_told_apart(site: Site) -> Iterator[Finding]:
    """No two nodes, and no node and controller, have one name."""
    group_of: dict[str, str] = {}
    for index, group in enumerate(site.node_groups):
        clash = [name for name in group.names if group_of.setdefault(name, group.name) != group.name]
        if clash:
            key = "nodes" if group.nodes is not None else "name"
            expected = f"names that are not those of group {group_of[clash[0]]!r}"
            yield site.source.finding(("node_groups", index, key), f"the nodes {_some(clash)}", expected)
    for index, host in enumerate(site.cluster.controllers):
        if host in group_of:
            expected = f"a name that is not a node's of group {group_of[host]!r}"
            yield site.source.finding(("cluster", "controllers", index), repr(host), expected)


def every_node_has_a_place(site: Site) -> Iterator[Finding]:
    """In a topology each compute node is on one switch or in one block: no job would run elsewhere."""
    topology = site.cluster.topology
    if topology is None:
        return
    location = ("cluster", "topology", "blocks" if topology.blocks else "switches")
    names = {group.name: group.names for group in site.node_groups if group.role == "compute"}
    compute = {name for group in names.values() for name in group}
    seen: dict[str, str] = {}
    for leaf, place, found in _leaf_nodes(topology, names, location):
        unknown = [name for name in found if name not in compute]
        if unknown:
            yield site.source.finding(place, f"{_some(unknown)}", "nodes of compute groups")
        twice = [name for name in found if seen.setdefault(name, leaf) != leaf]
        if twice:
            yield site.source.finding(place, _some(twice), f"nodes that {seen[twice[0]]!r} does not have")
    homeless = [name for group in names.values() for name in group if name not in seen]
    if homeless:
        what = "block" if topology.blocks else "switch"
        found_text = f"nothing for {_some(homeless)}"
        yield site.source.finding(location, found_text, f"each compute node on a {what}")


def _leaf_nodes(
    topology: Topology, groups: Mapping[str, tuple[str, ...]], location: Location
) -> Iterator[tuple[str, Location, list[str]]]:
    """Each leaf with its nodes, and where the file says them."""
    leaves: tuple[Switch | Block, ...] = topology.blocks or topology.switches
    for index, leaf in enumerate(leaves):
        here = (*location, index)
        if leaf.node_groups:
            found = [name for group in leaf.node_groups for name in groups[group]]
            yield leaf.name, (*here, "node_groups"), found
        if leaf.nodes is not None:
            yield leaf.name, (*here, "nodes"), list(expand(leaf.nodes))


def blocks_are_large_enough(site: Site) -> Iterator[Finding]:
    """No block has fewer nodes than the first of block_sizes: slurmctld would end there (24.05, 24.11)."""
    topology = site.cluster.topology
    if topology is None or not topology.block_sizes:
        return
    groups = {group.name: group.names for group in site.node_groups}
    sizes: dict[str, int] = {}
    for block, _, found in _leaf_nodes(topology, groups, ("cluster", "topology", "blocks")):
        sizes[block] = sizes.get(block, 0) + len(found)
    for index, block_name in enumerate(block.name for block in topology.blocks):
        if sizes[block_name] < topology.block_sizes[0]:
            expected = f"at least {topology.block_sizes[0]} nodes in each block, the first of block_sizes"
            place = ("cluster", "topology", "blocks", index)
            yield site.source.finding(place, f"{sizes[block_name]} nodes in {block_name!r}", expected)


def _some(names: list[str]) -> str:
    told = ", ".join(names[:_MOST_TOLD])
    return f"{told} and {len(names) - _MOST_TOLD} more" if len(names) > _MOST_TOLD else told


CHECKS: tuple[Check, ...] = (hosts_are_told_apart, every_node_has_a_place, blocks_are_large_enough)
