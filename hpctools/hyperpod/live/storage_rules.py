"""File systems, and what is in S3, as they are."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from hpctools.hyperpod.document import Place
from hpctools.hyperpod.files import PROVISIONING, Files
from hpctools.hyperpod.findings import Finding, Location
from hpctools.hyperpod.live import named
from hpctools.hyperpod.live.facts import AwsFacts, FileSystem, Permission

_PORTS = {"LUSTRE": (988, 1021, 1023), "OPENZFS": (2049,)}
"""TCP ports that nodes speak to (the FSx user guides, "File system access control")."""


def file_systems_are_there(files: Files, facts: AwsFacts) -> Iterator[Finding]:
    """Every file system exists, is ready, and is what the files call it."""
    for dns, mount, kind in named.file_systems(files):
        if facts.file_systems is None or not dns.text:
            continue
        system = facts.file_systems.get(named.identifier(dns.text))
        if system is None:
            remedy = f"name a file system of {facts.region}"
            yield dns.finding("fsx", remedy, f"{dns.text!a}, which is not in {facts.region}")
            continue
        yield from _names(dns, mount, kind, system)
        if system.status not in ("AVAILABLE", "UPDATING"):
            yield dns.finding("fsx", "wait until it is available", f"a file system that is {system.status}")


def _names(dns: Place, mount: Place, kind: str, system: FileSystem) -> Iterator[Finding]:
    if system.kind != kind:
        yield dns.finding("fsx", f"name one of kind {kind}", f"a file system of kind {system.kind}")
        return
    if system.dns_name and dns.text != system.dns_name:
        yield dns.finding("fsx-names", f"write {system.dns_name}")
    if mount.text and system.mount_name and mount.text != system.mount_name:
        yield mount.finding("fsx-names", f"write {system.mount_name}")


def file_systems_are_reached(files: Files, facts: AwsFacts) -> Iterator[Finding]:
    """A file system is in the nodes' VPC and lets them in."""
    told: set[tuple[str | None, Location]] = set()
    for dns, _, kind in named.file_systems(files):
        system = (facts.file_systems or {}).get(named.identifier(dns.text or ""))
        if system is None or system.kind != kind:
            continue
        for network in named.networks_of(files, dns):
            if (dns.text, network.location) not in told:
                told.add((dns.text, network.location))
                yield from _reached(dns, kind, system, network, facts)


def _reached(dns: Place, kind: str, system: FileSystem, network: Place, facts: AwsFacts) -> Iterator[Finding]:
    subnets = [(facts.subnets or {}).get(place.text or "") for place in named.subnets(network)]
    ranges = [subnet.cidr for subnet in subnets if subnet is not None]
    vpcs = {subnet.vpc for subnet in subnets if subnet is not None}
    if system.vpc and vpcs and system.vpc not in vpcs:
        found = f"a file system in {system.vpc}, and nodes in {', '.join(sorted(vpcs))}"
        yield dns.finding("fsx-reach", "name one in the nodes' VPC", found)
        return
    yield from _closed(dns, kind, system, ranges, network, facts)


def _closed(
    dns: Place, kind: str, system: FileSystem, ranges: list[str], network: Place, facts: AwsFacts
) -> Iterator[Finding]:
    known = facts.groups or {}
    doors = [known[name] for name in system.groups or () if name in known]
    if not doors or len(doors) < len(system.groups or ()):
        return  # of groups that nobody named nothing was asked
    nodes = {place.text or "" for place in named.security_groups(network)}
    rules = [rule for door in doors for rule in door.inbound]
    shut = [port for port in _PORTS[kind] if not any(_lets_in(rule, port, nodes, ranges) for rule in rules)]
    if shut:
        ports = ", ".join(map(str, shut))
        remedy = "let the nodes' security group in on them"
        yield dns.finding("fsx-reach", remedy, f"a file system that lets nobody in on TCP {ports}")


def _lets_in(rule: Permission, port: int, nodes: set[str], ranges: list[str]) -> bool:
    if not rule.covers(port):
        return False
    if nodes & rule.groups:
        return True
    allowed = [ipaddress.ip_network(each) for each in rule.ranges]
    wanted = [ipaddress.ip_network(each) for each in ranges]
    return bool(wanted) and all(
        any(one.subnet_of(other) for other in allowed if one.version == other.version)  # type: ignore[arg-type]
        for one in wanted
    )


def scripts_are_there(files: Files, facts: AwsFacts) -> Iterator[Finding]:
    """The lifecycle scripts are where the groups say."""
    for group in files.groups:
        source = group.at("LifeCycleConfig", "SourceS3Uri")
        if facts.objects is None or source.text is None or source.text not in facts.objects:
            continue
        names = facts.objects[source.text]
        if names is None:
            yield source.finding(
                "lifecycle-scripts", "name a bucket that is there", f"no bucket of {source.text!a}"
            )
            continue
        for key in ("OnCreate", "OnInitComplete"):
            script = group.at("LifeCycleConfig", key)
            if script.text is not None and script.text not in names:
                remedy = "upload it (hpctools hyperpod upload), or correct the place"
                yield script.finding(
                    "lifecycle-scripts", remedy, f"{script.text!a}, which is not in {source.text}"
                )


def styles_agree_in_s3(files: Files, facts: AwsFacts) -> Iterator[Finding]:
    """provisioning_parameters.json is there in the legacy style, and nowhere beside SlurmConfig."""
    for place in named.texts(files, "LifeCycleConfig", "SourceS3Uri"):
        names = (facts.objects or {}).get(place.text or "")
        if names is None:
            continue
        if files.style == "slurmconfig" and PROVISIONING in names:
            remedy = f"take it away: aws s3 rm {(place.text or '').rstrip('/')}/{PROVISIONING}"
            yield place.finding(
                "both-styles", remedy, f"{PROVISIONING} in S3, with SlurmConfig in the request"
            )
        if files.style == "legacy" and names and PROVISIONING not in names:
            yield place.finding(
                "lifecycle-scripts", f"upload {PROVISIONING} there", f"no {PROVISIONING} there"
            )


STORAGE_RULES = (file_systems_are_there, file_systems_are_reached, scripts_are_there, styles_agree_in_s3)
