"""Security groups: who may speak with whom."""

from __future__ import annotations

from typing import Any

from hpctools.hyperpod.stack.context import Context
from hpctools.hyperpod.stack.intrinsic import Json, Part, attribute, resource
from hpctools.hyperpod.stack.network import place

_ANYWHERE = "0.0.0.0/0"
LUSTRE_PORTS = (("tcp", 988, 988), ("tcp", 1018, 1023))
OPENZFS_PORTS = (
    ("tcp", 111, 111), ("udp", 111, 111), ("tcp", 2049, 2049), ("udp", 2049, 2049),
    ("tcp", 20001, 20003), ("udp", 20001, 20003),
)  # fmt: skip
HTTPS, SSH, MARIADB = 443, 22, 3306


def group_id(name: str) -> Json:
    """The id of a security group that the stack makes."""
    return attribute(name, "GroupId")


def group(context: Context, about: str, ingress: list[Json] | None = None) -> Json:
    """A security group with no way out but those that rules beside it add."""
    nothing = {"CidrIp": "127.0.0.1/32", "IpProtocol": "icmp", "FromPort": 252, "ToPort": 86}
    properties = {
        "GroupDescription": f"{context.cluster}: {about}",
        "VpcId": place(context).vpc,
        "SecurityGroupIngress": ingress,
        # Without a rule AWS adds one that lets everything out; this one matches nothing.
        "SecurityGroupEgress": [{**nothing, "Description": "nothing by itself"}],
        "Tags": context.named(about.replace(" ", "-")),
    }
    return resource("AWS::EC2::SecurityGroup", properties)


def rule(
    protocol: str, ports: tuple[int, int] | None, about: str, *, cidr: str = "", source: Any = None
) -> Json:
    """A rule inside a group's own list."""
    made: Json = {"IpProtocol": protocol, "Description": about}
    if ports is not None:
        made |= {"FromPort": ports[0], "ToPort": ports[1]}
    return made | ({"CidrIp": cidr} if cidr else {"SourceSecurityGroupId": source})


def security(context: Context) -> Part:
    """The nodes' own group, and that of the endpoints where there are some."""
    made = {"NodeSecurityGroup": group(context, "nodes")} | _among_nodes() | _ways_out(context)
    return Part(made, {"SecurityGroupId": group_id("NodeSecurityGroup")})


def _among_nodes() -> Json:
    """All among themselves, both ways.

    The way out to itself is needed beside one to 0.0.0.0/0: EFA's traffic has no IP address that a range
    matches (github.com/awslabs/awsome-distributed-ai issue 546).
    """
    nodes = group_id("NodeSecurityGroup")
    about = "all among the nodes, EFA too"
    ingress = {"GroupId": nodes, "IpProtocol": "-1", "SourceSecurityGroupId": nodes, "Description": about}
    egress = {"GroupId": nodes, "IpProtocol": "-1", "DestinationSecurityGroupId": nodes, "Description": about}
    return {
        "NodesFromNodes": resource("AWS::EC2::SecurityGroupIngress", ingress),
        "NodesToNodes": resource("AWS::EC2::SecurityGroupEgress", egress),
    }


def _ways_out(context: Context) -> Json:
    network = context.aws.network
    if network.internet == "nat":
        return {"NodesToAnywhere": _egress("-1", None, _ANYWHERE, "packages, data sets, AWS")}
    vpc = place(context).cidr
    made = {
        # S3's gateway endpoint has public addresses; nothing else answers there without a route.
        "NodesToServices": _egress("tcp", (HTTPS, HTTPS), _ANYWHERE, "AWS by its endpoints"),
        "NodesToNetwork": _egress("-1", None, vpc, "file systems, database, directory"),
    }
    directory = context.aws.directory.reach if context.aws.directory else ()
    for number, cidr in enumerate((*directory, *network.reachable), start=1):
        made[f"NodesToRange{number}"] = _egress("-1", None, cidr, "named by the site")
    return made


def _egress(protocol: str, ports: tuple[int, int] | None, cidr: str, about: str) -> Json:
    properties: Json = {
        "GroupId": group_id("NodeSecurityGroup"),
        "IpProtocol": protocol,
        "CidrIp": cidr,
        "Description": about,
    }
    if ports is not None:
        properties |= {"FromPort": ports[0], "ToPort": ports[1]}
    return resource("AWS::EC2::SecurityGroupEgress", properties)


def from_nodes(ports: tuple[tuple[str, int, int], ...], about: str) -> list[Json]:
    """Rules that let the nodes in on some ports."""
    nodes = group_id("NodeSecurityGroup")
    return [rule(protocol, (first, last), about, source=nodes) for protocol, first, last in ports]


def endpoints(context: Context) -> Part:
    """AWS's services inside the network."""
    here = place(context)
    services = wanted_endpoints(context)
    made: Json = {}
    if "s3" in services and here.route_tables:
        made["EndpointS3"] = _endpoint(
            context, "s3", {"VpcEndpointType": "Gateway", "RouteTableIds": list(here.route_tables)}
        )
    interfaces = [service for service in services if service != "s3"]
    if interfaces:
        https = rule("tcp", (HTTPS, HTTPS), "from within the network", cidr=here.cidr)
        made["EndpointSecurityGroup"] = group(context, "endpoints", [https])
    for service in interfaces:
        name = "Endpoint" + "".join(part.capitalize() for part in service.split("."))
        made[name] = _endpoint(context, service, _interface(here.subnets))
    return Part(made)


def _interface(subnets: tuple[Any, ...]) -> Json:
    return {
        "VpcEndpointType": "Interface",
        "PrivateDnsEnabled": True,
        "SubnetIds": list(subnets),
        "SecurityGroupIds": [group_id("EndpointSecurityGroup")],
    }


def _endpoint(context: Context, service: str, more: Json) -> Json:
    properties = {
        "VpcId": place(context).vpc,
        "ServiceName": {"Fn::Sub": f"com.amazonaws.${{AWS::Region}}.{service}"},
        "Tags": context.named(service),
        **more,
    }
    return resource("AWS::EC2::VPCEndpoint", properties)


# What a node of HyperPod speaks with: scripts and data, Session Manager, its role, logs and metrics, images,
# HyperPod itself, the database's password, the balancer's list of login nodes.
_WITHOUT_INTERNET = (
    "s3", "ssm", "ssmmessages", "ec2messages", "sts", "logs", "monitoring", "ecr.api", "ecr.dkr",
    "sagemaker.api", "secretsmanager", "elasticloadbalancing",
)  # fmt: skip


def wanted_endpoints(context: Context) -> tuple[str, ...]:
    """The services that are reached inside the network, in the site's order."""
    network = context.aws.network
    if network.endpoints is not None:
        return network.endpoints
    return ("s3",) if network.internet == "nat" else _WITHOUT_INTERNET
