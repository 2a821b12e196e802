"""Asking EC2: subnets with their routes, security groups, and what is offered where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hpctools.hyperpod.live.facts import Permission, SecurityGroup, Subnet
from hpctools.hyperpod.operations.aws import Aws, RefusedError


def _pages(
    aws: Aws, operation: str, key: str, filters: Mapping[str, Sequence[str]]
) -> Iterable[dict[str, Any]]:
    """Everything that filters find; ids that are not there are no error this way."""
    spelled = [{"Name": name, "Values": list(values)} for name, values in filters.items()]
    for page in aws.service("ec2").pages(operation, Filters=spelled):
        yield from page.get(key, [])


def subnets(aws: Aws, names: Sequence[str]) -> Mapping[str, Subnet]:
    """Ask for subnets by id, and whether their default routes lead to an internet gateway."""
    if not names:
        return {}
    found = list(_pages(aws, "describe_subnets", "Subnets", {"subnet-id": names}))
    vpcs = sorted({each["VpcId"] for each in found})
    tables = list(_pages(aws, "describe_route_tables", "RouteTables", {"vpc-id": vpcs})) if vpcs else []
    return {each["SubnetId"]: _subnet(each, tables) for each in found}


def _subnet(answer: Mapping[str, Any], tables: Sequence[Mapping[str, Any]]) -> Subnet:
    return Subnet(
        vpc=answer["VpcId"],
        zone=answer["AvailabilityZone"],
        zone_id=answer.get("AvailabilityZoneId", ""),
        cidr=answer["CidrBlock"],
        free=answer["AvailableIpAddressCount"],
        gives_public_addresses=answer.get("MapPublicIpOnLaunch", False),
        gateway=_leads_out(answer["SubnetId"], answer["VpcId"], tables),
    )


def _leads_out(subnet: str, vpc: str, tables: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a subnet's route table, or its VPC's main one, has a default route to an internet gateway."""
    own = [t for t in tables if any(a.get("SubnetId") == subnet for a in t.get("Associations", []))]
    main = [
        t for t in tables if t.get("VpcId") == vpc and any(a.get("Main") for a in t.get("Associations", []))
    ]
    routes = [route for table in (own or main) for route in table.get("Routes", [])]
    return any(
        route.get("DestinationCidrBlock") == "0.0.0.0/0" and route.get("GatewayId", "").startswith("igw-")
        for route in routes
    )


def security_groups(aws: Aws, names: Sequence[str]) -> Mapping[str, SecurityGroup]:
    """Ask for security groups by id."""
    if not names:
        return {}
    found = _pages(aws, "describe_security_groups", "SecurityGroups", {"group-id": names})
    return {
        each["GroupId"]: SecurityGroup(
            vpc=each.get("VpcId", ""),
            inbound=tuple(map(_permission, each.get("IpPermissions", []))),
            outbound=tuple(map(_permission, each.get("IpPermissionsEgress", []))),
        )
        for each in found
    }


def _permission(answer: Mapping[str, Any]) -> Permission:
    return Permission(
        protocol=answer["IpProtocol"],
        first=answer.get("FromPort"),
        last=answer.get("ToPort"),
        groups=frozenset(pair["GroupId"] for pair in answer.get("UserIdGroupPairs", []) if "GroupId" in pair),
        ranges=frozenset(each["CidrIp"] for each in answer.get("IpRanges", [])),
    )


def groups_of_interfaces(aws: Aws, names: Sequence[str]) -> frozenset[str] | None:
    """Ask for the security groups of network interfaces; None when they may not be seen."""
    try:
        found = _pages(
            aws, "describe_network_interfaces", "NetworkInterfaces", {"network-interface-id": names}
        )
        groups = frozenset(group["GroupId"] for each in found for group in each.get("Groups", []))
    except RefusedError:
        return None
    return groups or None


def offered(aws: Aws, types: Sequence[str]) -> Mapping[str, frozenset[str]]:
    """Ask in which availability zones EC2 has these types (`ml.` or not)."""
    plain = [name.removeprefix("ml.") for name in types]
    found: dict[str, set[str]] = {name: set() for name in plain}
    if plain:
        pages = aws.service("ec2").pages(
            "describe_instance_type_offerings",
            LocationType="availability-zone",
            Filters=[{"Name": "instance-type", "Values": plain}],
        )
        for each in (one for page in pages for one in page.get("InstanceTypeOfferings", [])):
            found[each["InstanceType"]].add(each["Location"])
    return {name: frozenset(zones) for name, zones in found.items()}
