"""Where single daemons listen: facts of an installation, and nothing that a site wants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from hpctools.conf.existing.cluster import controllers, spelled
from hpctools.conf.facts import Endpoint, Facts
from hpctools.conf.plan.meaning import Meaning, Node, whole


def facts_of(meaning: Meaning, files: Mapping[str, str], facts: Facts) -> Facts:
    """Return the facts with the places that the configuration names and the facts do not.

    Nodes with a port or host of their own get an endpoint. Addresses alone can stand in the site file, unless
    several nodes share one.
    """
    stated = meaning.settings["slurmctldport"].value if "slurmctldport" in meaning.settings else "6817"
    first = stated.partition("-")[0]  # slurmctld may listen on several: 6820-6823
    port = whole("SlurmctldPort", {"slurmctldport": first})
    return replace(
        facts,
        node_endpoints={**_endpoints(meaning.nodes, facts.slurmd_port), **facts.node_endpoints},
        node_hostnames={
            **{
                name: node.hostname for name, node in meaning.nodes.items() if node.hostname not in ("", name)
            },
            **facts.node_hostnames,
        },
        storage_password=facts.storage_password or _password(files),
        slurmdbd_endpoint=facts.slurmdbd_endpoint or _slurmdbd(meaning, files),
        controller_endpoints={
            **{host: Endpoint(address, port) for host, address in controllers(meaning) if address},
            **facts.controller_endpoints,
        },
    )


def _password(files: Mapping[str, str]) -> str | None:
    """The database password: a fact that is never shown, and that no facts file holds."""
    stated = spelled(files, "slurmdbd.conf").get("storagepass")
    return stated.value if stated else None


def _slurmdbd(meaning: Meaning, files: Mapping[str, str]) -> Endpoint | None:
    """Where slurmdbd is reached, when that is not the host name that it goes by."""
    host = spelled(files, "slurmdbd.conf").get("dbdhost")
    stated = meaning.settings.get("accountingstoragehost")
    if host is None or stated is None or stated.value == host.value:
        return None
    port = meaning.settings.get("accountingstorageport")
    return Endpoint(stated.value, whole(port.key, {port.key.lower(): port.value}) if port else 6819)


def _endpoints(nodes: Mapping[str, Node], usual_port: int) -> dict[str, Endpoint]:
    shared = _shared_addresses(nodes)
    return {
        name: Endpoint(node.address or name, whole("Port", {"port": node.port or str(usual_port)}))
        for name, node in nodes.items()
        if node.port or (node.address and node.address in shared)
    }


def _shared_addresses(nodes: Mapping[str, Node]) -> set[str]:
    counted = Counter(node.address for node in nodes.values())
    return {address for address, count in counted.items() if count > 1}
