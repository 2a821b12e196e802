"""Subnets and security groups as they are."""

from __future__ import annotations

from collections.abc import Iterator

from hpctools.hyperpod.document import Place
from hpctools.hyperpod.files import Files
from hpctools.hyperpod.findings import Finding
from hpctools.hyperpod.live import named
from hpctools.hyperpod.live.facts import AwsFacts, Permission

EFA_FAMILIES = ("p4", "p5", "p6", "trn", "g5.", "g6", "g7", "c5n.")
"""Beginnings of instance types (without `ml.`) whose nodes speak over EFA."""


def subnets_are_there(files: Files, facts: AwsFacts) -> Iterator[Finding]:
    """Every subnet exists in the region."""
    for place in _subnets(files):
        if facts.subnets is not None and place.text not in facts.subnets:
            remedy = f"name a subnet of {facts.region}, or ask in another region (--region)"
            yield place.finding("subnet", remedy, f"{place.text!a}, which is not in {facts.region}")


def subnets_are_private(files: Files, facts: AwsFacts) -> Iterator[Finding]:
    """In a public subnet the cluster fails: nodes get no public address, and so no way out by the gateway."""
    for place in _subnets(files):
        subnet = (facts.subnets or {}).get(place.text or "")
        if subnet is not None and (subnet.gives_public_addresses or subnet.gateway):
            how = (
                "gives public addresses" if subnet.gives_public_addresses else "leads to an internet gateway"
            )
            remedy = "name a private subnet, with a NAT gateway or endpoints as its way to AWS"
            yield place.finding("public-subnet", remedy, f"{place.text!a}, which {how}")


def one_vpc(files: Files, facts: AwsFacts) -> Iterator[Finding]:
    """Subnets and security groups of a cluster are in one VPC."""
    first: str | None = None
    for network in named.networks(files):
        for place in (*named.subnets(network), *named.security_groups(network)):
            text = place.text or ""
            there = (facts.subnets or {}).get(text) or (facts.groups or {}).get(text)
            if there is None:
                continue
            first = first or there.vpc
            if there.vpc != first:
                found = f"{text!a} of {there.vpc}, where the first subnet is in {first}"
                yield place.finding("one-vpc", "name subnets and security groups of one VPC", found)


def enough_addresses(files: Files, facts: AwsFacts) -> Iterator[Finding]:
    """Every node takes an address at least; large types take many."""
    for network in named.networks(files):
        subnets = [(facts.subnets or {}).get(place.text or "") for place in named.subnets(network)]
        known = [subnet for subnet in subnets if subnet is not None]
        nodes = sum(
            group.at("InstanceCount").number or 0
            for group in files.groups
            if named.network_of(files, group).location == network.location
        )
        free = sum(subnet.free for subnet in known)
        if known and nodes > free:
            found = f"{nodes} nodes, and {free} free addresses"
            yield network.at("Subnets").finding("addresses", "name larger subnets, or more of them", found)


def security_groups_are_there(files: Files, facts: AwsFacts) -> Iterator[Finding]:
    """Every security group exists in the region."""
    for network in named.networks(files):
        for place in named.security_groups(network):
            if facts.groups is not None and place.text not in facts.groups:
                remedy = f"name a security group of {facts.region}"
                found = f"{place.text!a}, which is not in {facts.region}"
                yield place.finding("security-group", remedy, found)


def nodes_reach_each_other(files: Files, facts: AwsFacts) -> Iterator[Finding]:
    """Slurm and MPI need all traffic among nodes; EFA takes a rule for the group itself only, not a range."""
    for network in named.networks(files):
        names = {place.text or "" for place in named.security_groups(network)}
        groups = {name: (facts.groups or {})[name] for name in names if name in (facts.groups or {})}
        if not groups:
            continue
        place = network.at("SecurityGroupIds")
        if not any(_to_itself(name, group.inbound) for name, group in groups.items()):
            remedy = "add a rule: all traffic in, from the group itself"
            yield place.finding(
                "self-reference", remedy, "no rule that lets in all traffic from the group itself"
            )
        if any(_to_itself(name, group.outbound) for name, group in groups.items()):
            continue
        found = "no rule that lets out all traffic to the group itself"
        remedy = "add a rule: all traffic out, to the group itself (EFA does not count a range)"
        everywhere = any(_everywhere(rule) for group in groups.values() for rule in group.outbound)
        if _uses_efa(files, network) or not everywhere:
            yield place.finding("self-reference", remedy, found)
        else:
            yield place.warning("self-reference", remedy, found)


def _to_itself(name: str, rules: tuple[Permission, ...]) -> bool:
    return any(rule.everything and name in rule.groups for rule in rules)


def _everywhere(rule: Permission) -> bool:
    return rule.everything and "0.0.0.0/0" in rule.ranges


def _uses_efa(files: Files, network: Place) -> bool:
    groups = [each for each in files.groups if named.network_of(files, each).location == network.location]
    types = [(place.text or "").removeprefix("ml.") for group in groups for place in named.types(group)]
    return any(name.startswith(EFA_FAMILIES) for name in types)


def _subnets(files: Files) -> list[Place]:
    return [place for network in named.networks(files) for place in named.subnets(network)]


NETWORK_RULES = (
    subnets_are_there,
    subnets_are_private,
    one_vpc,
    enough_addresses,
    security_groups_are_there,
    nodes_reach_each_other,
)
