"""Node lines of slurm.conf."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from hpctools.conf.facts import Facts
from hpctools.conf.gres import group_gres
from hpctools.conf.text import changed, comment, fold, line
from hpctools.conf.topology import ComputeGroup
from hpctools.site.hostlist import expand
from hpctools.site.source import Source


def node_lines(groups: Iterable[ComputeGroup], facts: Facts, source: Source) -> str:
    """Render the node lines: one or two for each group, or one for each node with an address of its own."""
    lines = [comment(source, group.location) + "".join(_group_lines(group, facts)) for group in groups]
    return "\n# Nodes\n" + "".join(lines)


def _group_lines(group: ComputeGroup, facts: Facts) -> Iterator[str]:
    placed = {*facts.node_endpoints, *facts.node_hostnames}
    for names, state in ((group.static, "UNKNOWN"), (group.cloud, "CLOUD")):
        settings = _shared_settings(group, state)
        together = [name for name in names if name not in placed]
        addresses = [group.addresses[name] for name in together if name in group.addresses]
        apart = placed if not addresses or _are_pairs(together, addresses) else {*names}
        if together and apart is placed:
            here = {"NodeName": fold(together), "NodeAddr": fold(addresses) or None, **settings}
            yield line(changed(here, group.parameters))
        for name in (name for name in names if name in apart):
            here = {"NodeName": name, **_address(name, group, facts), **settings}
            yield line(changed(here, group.parameters))


def _are_pairs(names: Sequence[str], addresses: Sequence[str]) -> bool:
    """Whether folding leaves both in their order: Slurm gives the first name the first address, and so on."""
    kept = all(expand(fold(each)) == tuple(each) for each in (names, addresses))
    return kept and len(names) == len(addresses)


def _address(name: str, group: ComputeGroup, facts: Facts) -> dict[str, object]:
    endpoint = facts.node_endpoints.get(name)
    return {
        "NodeHostname": facts.node_hostnames.get(name),
        "NodeAddr": endpoint.address if endpoint else group.addresses.get(name),
        "Port": endpoint.port if endpoint else None,
    }


def _shared_settings(group: ComputeGroup, state: str) -> dict[str, object]:
    hardware = group.hardware
    return {
        "CPUs": hardware.cpus,
        "Sockets": hardware.sockets,
        "CoresPerSocket": hardware.cores_per_socket,
        "ThreadsPerCore": hardware.threads_per_core,
        "RealMemory": hardware.memory_mib,
        "Gres": ",".join(str(gres) for gres in group_gres(group)) or None,
        "Feature": ",".join(group.features),
        "Weight": group.weight,
        "State": state,
    }
