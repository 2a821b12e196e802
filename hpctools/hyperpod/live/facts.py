"""What AWS says of the things that a cluster's files name. What a mapping lacks does not exist.

A mapping that is None was not told: the credentials may not see it (`unseen` says why), or nothing was asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Subnet:
    """A subnet.

    Attributes:
        vpc: its VPC.
        zone: its availability zone's name, which differs by account.
        zone_id: its availability zone's id.
        cidr: its range.
        free: addresses that nobody has.
        gives_public_addresses: instances get a public address when they start.
        gateway: its default route leads to an internet gateway.
    """

    vpc: str
    zone: str
    zone_id: str
    cidr: str
    free: int
    gives_public_addresses: bool
    gateway: bool


@dataclass(frozen=True)
class Permission:
    """What one rule of a security group lets through.

    Attributes:
        protocol: `-1` for all, or tcp, udp, ...
        first: the first port; None for all.
        last: the last port; None for all.
        groups: security groups at the other end.
        ranges: ranges of addresses at the other end.
    """

    protocol: str
    first: int | None
    last: int | None
    groups: frozenset[str]
    ranges: frozenset[str]

    @property
    def everything(self) -> bool:
        """Whether all protocols and ports go through."""
        return self.protocol == "-1"

    def covers(self, port: int) -> bool:
        """Whether a TCP port goes through."""
        if self.everything:
            return True
        low, high = self.first, self.last
        return self.protocol in ("tcp", "6") and low is not None and high is not None and low <= port <= high


@dataclass(frozen=True)
class SecurityGroup:
    """A security group."""

    vpc: str
    inbound: tuple[Permission, ...]
    outbound: tuple[Permission, ...]


@dataclass(frozen=True)
class FileSystem:
    """A file system on FSx.

    Attributes:
        kind: LUSTRE, OPENZFS, ...
        dns_name: its host.
        mount_name: Lustre's mount name; None for others.
        vpc: its VPC.
        status: AVAILABLE, CREATING, ...
        groups: security groups of its network interfaces; None when they could not be seen.
    """

    kind: str
    dns_name: str
    mount_name: str | None
    vpc: str
    status: str
    groups: frozenset[str] | None


@dataclass(frozen=True)
class Plan:
    """A training plan.

    Attributes:
        status: Active, Scheduled, ...
        targets: what it may be used for: hyperpod-cluster, training-job.
        types: instances by type.
        zones: availability zones of the capacity.
        available: instances that nobody uses.
    """

    status: str
    targets: frozenset[str]
    types: Mapping[str, int]
    zones: frozenset[str]
    available: int


@dataclass(frozen=True)
class Statement:
    """A statement of a policy: actions (with wildcards) that are allowed, or denied, on some resources."""

    allows: bool
    actions: tuple[str, ...]
    resources: tuple[str, ...]


@dataclass(frozen=True)
class Role:
    """An IAM role.

    Attributes:
        services: services that may take it on.
        policies: the names of its managed policies.
        statements: the statements of all its policies.
    """

    services: frozenset[str]
    policies: frozenset[str]
    statements: tuple[Statement, ...]


@dataclass(frozen=True)
class Unseen:
    """Something that nobody told.

    Attributes:
        what: of what it would have been.
        why: AWS's reason, or that it did not answer.
        remedy: what to do about it.
        silent: there was no answer; else the credentials may not see it.
    """

    what: str
    why: str
    remedy: str
    silent: bool = False


@dataclass(frozen=True)
class AwsFacts:
    """Everything that was asked.

    Attributes:
        region: where it was asked.
        account: whose credentials asked.
        subnets: by id.
        groups: security groups by id.
        file_systems: by id.
        offered: availability zones by instance type (without `ml.`).
        quotas: SageMaker's quotas by name.
        plans: training plans by ARN.
        roles: by ARN.
        objects: for each lifecycle place (S3 URI): the names below it; None where there is no such bucket.
        clusters: the names of clusters that are there.
        node_types: for an update: the NodeType of each group that is there; empty where it has none.
        unseen: what could not be seen.
    """

    region: str
    account: str
    subnets: Mapping[str, Subnet] | None = None
    groups: Mapping[str, SecurityGroup] | None = None
    file_systems: Mapping[str, FileSystem] | None = None
    offered: Mapping[str, frozenset[str]] | None = None
    quotas: Mapping[str, float] | None = None
    plans: Mapping[str, Plan] | None = None
    roles: Mapping[str, Role] | None = None
    objects: Mapping[str, frozenset[str] | None] | None = None
    clusters: frozenset[str] | None = None
    node_types: Mapping[str, str] | None = None
    unseen: tuple[Unseen, ...] = field(default=())
