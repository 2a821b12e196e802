"""The network: private subnets for the nodes, and what little of the internet they get."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Any

from hpctools.hyperpod.stack.context import Context
from hpctools.hyperpod.stack.intrinsic import Json, Part, arn, attribute, joined, ref, resource
from hpctools.hyperpod.stack.logs import log_group
from hpctools.hyperpod.stack.roles import allow, role

_ANYWHERE = "0.0.0.0/0"
_PUBLIC_PREFIX = 28  # addresses for a NAT gateway and a balancer


@dataclass(frozen=True)
class Place:
    """Where things are: ids of a network that is there, or references to the one that is made."""

    vpc: Any
    cidr: str
    subnets: tuple[Any, ...]
    route_tables: tuple[Any, ...]
    public_subnets: tuple[Any, ...]


def place(context: Context) -> Place:
    """Where everything of this site goes."""
    vpc = context.aws.network.vpc
    if vpc is not None:
        return Place(vpc.id, vpc.cidr, vpc.subnets, vpc.route_tables, vpc.public_subnets)
    numbers = range(1, context.aws.network.subnet_count + 1)
    public = numbers if context.aws.network.internet == "nat" else ()
    return Place(
        ref("Vpc"),
        context.aws.network.cidr,
        tuple(ref(f"PrivateSubnet{number}") for number in numbers),
        (ref("PrivateRouteTable"),),
        tuple(ref(f"PublicSubnet{number}") for number in public),
    )


def network(context: Context) -> Part:
    """The VPC with its subnets and routes; nothing but the outputs where the site has a VPC."""
    here = place(context)
    outputs = {"VpcId": here.vpc, "SubnetIds": joined(here.subnets)}
    if context.aws.network.vpc is not None:
        return Part({}, outputs)
    return Part(_vpc(context) | _private(context) | _public(context) | _flow_log(context), outputs)


def _vpc(context: Context) -> Json:
    properties = {
        "CidrBlock": context.aws.network.cidr,
        "EnableDnsHostnames": True,
        "EnableDnsSupport": True,
        "Tags": context.named("vpc"),
    }
    return {"Vpc": resource("AWS::EC2::VPC", properties)}


def _private(context: Context) -> Json:
    made = _route_table(context, "Private")
    for number, cidr in enumerate(_private_ranges(context), start=1):
        made |= _subnet(context, "Private", number, cidr)
    return made


def _public(context: Context) -> Json:
    if context.aws.network.internet == "none":
        return {}
    made = _route_table(context, "Public") | _gateways(context)
    for number, cidr in enumerate(_public_ranges(context), start=1):
        made |= _subnet(context, "Public", number, cidr)
    return made


def _gateways(context: Context) -> Json:
    eip = {"Domain": "vpc", "Tags": context.named("nat")}
    nat = {
        "AllocationId": attribute("NatAddress", "AllocationId"),
        "SubnetId": ref("PublicSubnet1"),
        "Tags": context.named("nat"),
    }
    attached = {"VpcId": ref("Vpc"), "InternetGatewayId": ref("InternetGateway")}
    return {
        "InternetGateway": resource("AWS::EC2::InternetGateway", {"Tags": context.named("internet")}),
        "InternetGatewayAttachment": resource("AWS::EC2::VPCGatewayAttachment", attached),
        "NatAddress": resource("AWS::EC2::EIP", eip, after=["InternetGatewayAttachment"]),
        "NatGateway": resource("AWS::EC2::NatGateway", nat),
        "PublicRoute": _way_out("Public", {"GatewayId": ref("InternetGateway")}, "InternetGatewayAttachment"),
        "PrivateRoute": _way_out("Private", {"NatGatewayId": ref("NatGateway")}),
    }


def _way_out(kind: str, through: Json, *after: str) -> Json:
    route = {"RouteTableId": ref(f"{kind}RouteTable"), "DestinationCidrBlock": _ANYWHERE, **through}
    return resource("AWS::EC2::Route", route, after=after)


def _route_table(context: Context, kind: str) -> Json:
    properties = {"VpcId": ref("Vpc"), "Tags": context.named(kind.lower())}
    return {f"{kind}RouteTable": resource("AWS::EC2::RouteTable", properties)}


def _subnet(context: Context, kind: str, number: int, cidr: str) -> Json:
    zones = context.aws.network.zones
    properties: Json = {
        "VpcId": ref("Vpc"),
        "CidrBlock": cidr,
        "MapPublicIpOnLaunch": False,
        "Tags": context.named(f"{kind.lower()}-{number}"),
    }
    if zones:
        properties["AvailabilityZoneId"] = zones[number - 1]
    else:
        properties["AvailabilityZone"] = {"Fn::Select": [number - 1, {"Fn::GetAZs": ""}]}
    name = f"{kind}Subnet{number}"
    association = {"RouteTableId": ref(f"{kind}RouteTable"), "SubnetId": ref(name)}
    return {
        name: resource("AWS::EC2::Subnet", properties),
        f"{name}Routes": resource("AWS::EC2::SubnetRouteTableAssociation", association),
    }


def _parts(context: Context) -> list[ipaddress.IPv4Network]:
    """As many equal parts as zones and one more, up to the next power of two."""
    more = context.aws.network.subnet_count.bit_length()
    return list(ipaddress.IPv4Network(context.aws.network.cidr).subnets(prefixlen_diff=more))


def _private_ranges(context: Context) -> list[str]:
    return [str(each) for each in _parts(context)[: context.aws.network.subnet_count]]


def _public_ranges(context: Context) -> list[str]:
    small = _parts(context)[-1].subnets(new_prefix=_PUBLIC_PREFIX)
    return [str(next(small)) for _ in range(context.aws.network.subnet_count)]


def _flow_log(context: Context) -> Json:
    """Who spoke with whom: kept as long as the other logs."""
    written = allow(
        ["logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"],
        [attribute("FlowLogGroup", "Arn")],
    )
    properties = {
        "ResourceId": ref("Vpc"),
        "ResourceType": "VPC",
        "TrafficType": "ALL",
        "LogGroupName": ref("FlowLogGroup"),
        "DeliverLogsPermissionArn": attribute("FlowLogRole", "Arn"),
        "Tags": context.named("flows"),
    }
    source = {"ArnLike": {"aws:SourceArn": arn("ec2", "vpc-flow-log/*")}}
    return {
        "FlowLogGroup": log_group(context, f"/hpctools/{context.cluster}/flows", "Delete"),
        "FlowLogRole": role(context, ["vpc-flow-logs.amazonaws.com"], [written], condition=source),
        "FlowLog": resource("AWS::EC2::FlowLog", properties),
    }
