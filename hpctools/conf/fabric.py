"""topology.conf: which nodes are close to each other.

Slurm reads topology.conf in all supported releases; topology.yaml (25.05 and later) would only be needed for
several topologies in one cluster, and an empty one ends slurmctld 25.11, so none is ever written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hpctools.conf.text import HEADER, comment, fold, line
from hpctools.conf.topology import ComputeGroup
from hpctools.errors import SiteError
from hpctools.site.hostlist import expand
from hpctools.site.model import Site
from hpctools.site.topology import Block, Switch, Topology
from hpctools.slurm.versions import Release, knows_block_sizes, spell_release

_LOCATION = ("cluster", "topology")


def topology_settings(site: Site, release: Release) -> dict[str, object]:
    """Return the settings of slurm.conf that go with topology.conf.

    Raises:
        SiteError: the release does not know the site's kind of topology.
    """
    topology = site.cluster.topology
    if topology is None:
        return {}
    if topology.kind == "block" and not knows_block_sizes(release):
        raise SiteError(
            f"Slurm {spell_release(release)} does not know a topology of blocks",
            "use kind: tree, or Slurm 24.05 or later",
        )
    return {"TopologyPlugin": f"topology/{topology.kind}"}


def topology_conf(site: Site, topology: Topology, groups: Sequence[ComputeGroup]) -> str:
    """Render topology.conf: every node of the groups has its place, and no switch or block is empty."""
    members = _members(topology, groups)
    render = _blocks if topology.kind == "block" else _switches
    return HEADER + "".join(render(site, topology, members))


def _members(topology: Topology, groups: Sequence[ComputeGroup]) -> dict[str, list[str]]:
    """The nodes of each leaf. A node that only the facts know goes where its group begins."""
    by_node = {name: leaf.name for leaf in topology.leaves for name in _nodes(leaf, groups)}
    members: dict[str, list[str]] = {}
    for group in groups:
        begin = next((by_node[name] for name in group.nodes if name in by_node), topology.leaves[0].name)
        for name in group.nodes:
            members.setdefault(by_node.get(name, begin), []).append(name)
    return members


def _nodes(leaf: Switch | Block, groups: Sequence[ComputeGroup]) -> Iterator[str]:
    for group in groups:
        if group.name in leaf.node_groups:
            yield from group.nodes
    yield from expand(leaf.nodes) if leaf.nodes is not None else ()


def _switches(site: Site, topology: Topology, members: Mapping[str, Sequence[str]]) -> Iterator[str]:
    below = {switch.name: switch.switches for switch in topology.switches}

    def has_nodes(name: str) -> bool:
        return name in members or any(has_nodes(each) for each in below[name])

    for index, switch in enumerate(topology.switches):
        if not has_nodes(switch.name):
            continue
        switches = ",".join(name for name in switch.switches if has_nodes(name))
        nodes = fold(members.get(switch.name, ()))
        yield comment(site.source, (*_LOCATION, "switches", index))
        yield line({"SwitchName": switch.name, "Switches": switches or None, "Nodes": nodes or None})


def _blocks(site: Site, topology: Topology, members: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for index, block in enumerate(topology.blocks):
        if block.name in members:
            yield comment(site.source, (*_LOCATION, "blocks", index))
            yield line({"BlockName": block.name, "Nodes": fold(members[block.name])})
    smallest = min(len(nodes) for nodes in members.values())
    # slurmctld ends at a block that is smaller than this; fewer nodes than the site has are a sandbox's.
    if topology.block_sizes and smallest >= topology.block_sizes[0]:
        yield comment(site.source, (*_LOCATION, "block_sizes"))
        yield line({"BlockSizes": ",".join(map(str, topology.block_sizes))})
