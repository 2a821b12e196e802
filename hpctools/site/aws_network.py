"""Where the nodes are on AWS: a network of their own, or subnets of one that is there."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal

from pydantic import Field, model_validator

from hpctools.site.aws_words import ClientRange, NetworkRange, RouteTableId, SubnetId, VpcId, ZoneId
from hpctools.site.base import Model
from hpctools.site.scalars import refuse

Service = Literal[
    "s3",
    "ssm",
    "ssmmessages",
    "ec2messages",
    "sts",
    "logs",
    "monitoring",
    "ecr.api",
    "ecr.dkr",
    "sagemaker.api",
    "secretsmanager",
    "elasticloadbalancing",
    "ec2",
    "sns",
]
_DEFAULT_ZONES = 2


class ExistingVpc(Model):
    """A network that is there already; nothing in it is changed but what is added."""

    id: VpcId
    """The VPC."""
    cidr: NetworkRange
    """Its range of addresses."""
    subnets: Annotated[tuple[SubnetId, ...], Field(min_length=1, max_length=16)]
    """Private subnets for the nodes, in different zones; file systems are in the first."""
    route_tables: tuple[RouteTableId, ...] = ()
    """Those of the subnets; they get a way to S3. None when the VPC has one already."""
    public_subnets: tuple[SubnetId, ...] = ()
    """Subnets with a way to the internet, for an entry that faces it."""


class CloudNetwork(Model):
    """Where the nodes are."""

    cidr: NetworkRange = "10.64.0.0/16"
    """The range of the network that is made; large instances take many addresses each."""
    zones: Annotated[tuple[ZoneId, ...], Field(max_length=3)] = ()
    """Ids of the availability zones, that of the capacity first; the region's first two when left out."""
    internet: Literal["nat", "none"] = "nat"
    """`nat`: nodes reach the internet; `none`: they reach AWS's services only, by endpoints."""
    vpc: ExistingVpc | None = None
    """A network of yours instead; then `cidr` and `zones` have no meaning."""
    endpoints: tuple[Service, ...] | None = None
    """Services that are reached inside the network; when left out s3, and without internet all that the nodes
    of HyperPod need."""
    reachable: Annotated[tuple[ClientRange, ...], Field(max_length=20)] = ()
    """More ranges that nodes may reach where `internet` is `none`: your directory, your licence server."""

    @property
    def has_public_subnets(self) -> bool:
        """Whether something can face the internet."""
        return bool(self.vpc.public_subnets) if self.vpc else self.internet == "nat"

    @property
    def subnet_count(self) -> int:
        """How many private subnets there are."""
        return len(self.vpc.subnets) if self.vpc else len(self.zones) or _DEFAULT_ZONES

    @model_validator(mode="after")
    def _coherent(self) -> CloudNetwork:
        if not 16 <= ipaddress.IPv4Network(self.cidr).prefixlen <= 22:
            refuse("cidr: a range between /16 and /22")
        if len(set(self.zones)) < len(self.zones):
            refuse("zones: each zone once")
        if self.endpoints is not None and self.internet == "none" and "s3" not in self.endpoints:
            refuse("endpoints: s3 among them, since nodes without internet fetch their scripts there")
        return self
