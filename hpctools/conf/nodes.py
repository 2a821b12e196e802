"""Node lines of slurm.conf."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hpctools.conf.facts import Facts
from hpctools.conf.gres import node_gres
from hpctools.conf.text import fold, line
from hpctools.conf.topology import ComputeGroup


def node_lines(groups: Iterable[ComputeGroup], facts: Facts) -> str:
    """Render the node lines: one for each group, or one for each node that has an address of its own."""
    return "\n# Nodes\n" + "".join(text for group in groups for text in _group_lines(group, facts))


def _group_lines(group: ComputeGroup, facts: Facts) -> Iterator[str]:
    placed = facts.node_endpoints.keys() | facts.node_hostnames.keys()
    together = [name for name in group.nodes if name not in placed]
    if together:
        yield line({"NodeName": fold(together), **_shared_settings(group)})
    for name in (name for name in group.nodes if name in placed):
        yield line({"NodeName": name, **_address(name, facts), **_shared_settings(group)})


def _address(name: str, facts: Facts) -> dict[str, object]:
    endpoint = facts.node_endpoints.get(name)
    return {
        "NodeHostname": facts.node_hostnames.get(name),
        "NodeAddr": endpoint.address if endpoint else None,
        "Port": endpoint.port if endpoint else None,
    }


def _shared_settings(group: ComputeGroup) -> dict[str, object]:
    hardware = group.hardware
    return {
        "CPUs": hardware.cpus,
        "Sockets": hardware.sockets,
        "CoresPerSocket": hardware.cores_per_socket,
        "ThreadsPerCore": hardware.threads_per_core,
        "RealMemory": hardware.memory_mib,
        "Gres": ",".join(str(gres) for gres in node_gres(group.gpus)) or None,
        "Feature": ",".join(group.features),
        "State": "UNKNOWN",
    }
