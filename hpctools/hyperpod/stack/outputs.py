"""What a stack that is there gives out: what the cluster, its scripts and its people need to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hpctools.errors import HpctoolsError
from hpctools.hyperpod.stack.context import word
from hpctools.site.model import Site


@dataclass(frozen=True)
class SharedFileSystem:
    """A file system that nodes mount.

    Attributes:
        name: the site's name for it.
        kind: `lustre` or `openzfs`.
        dns_name: its host.
        mount_name: Lustre's mount name; None for OpenZFS.
        mount: the folder on the nodes.
    """

    name: str
    kind: str
    dns_name: str
    mount_name: str | None
    mount: str


@dataclass(frozen=True)
class AccountingServer:
    """The managed database of slurmdbd; `secret_arn` has its user and password."""

    endpoint: str
    port: int
    secret_arn: str


@dataclass(frozen=True)
class Outputs:
    """What a stack gives out.

    Attributes:
        vpc: the VPC.
        subnets: private subnets, that of the file systems first.
        security_group: the nodes' security group.
        roles: execution roles by node role: controller, login, compute.
        lifecycle_bucket: the bucket of the nodes' scripts.
        data_bucket: the bucket for data; None when there is none.
        checkpoint_bucket: the bucket for checkpoints; None when there is none.
        file_systems: in the site's order, those that were there before among them.
        database: the managed database; None when there is none.
        topic: the SNS topic of warnings.
        login_targets: the target group that login nodes put themselves on; None when there is no balancer, or
            when an auto-scaling group puts its instances there.
        entry_host: the balancer's name; None when there is no balancer.
        session_document: the Session Manager document that starts a shell as oneself.
    """

    vpc: str
    subnets: tuple[str, ...]
    security_group: str
    roles: Mapping[str, str]
    lifecycle_bucket: str
    data_bucket: str | None
    checkpoint_bucket: str | None
    file_systems: tuple[SharedFileSystem, ...]
    database: AccountingServer | None
    topic: str
    login_targets: str | None
    entry_host: str | None
    session_document: str


def read_outputs(site: Site, raw: Mapping[str, str]) -> Outputs:
    """Understand the outputs of a site's stack.

    Args:
        site: the site that the stack is of.
        raw: output key to value, as DescribeStacks tells them.

    Raises:
        HpctoolsError: one is missing: the stack is older than the site file.
    """
    try:
        return _outputs(site, raw)
    except KeyError as error:
        raise HpctoolsError(
            f"the stack has no output {error.args[0]}: it is older than the site file",
            "bring it up to date: hpctools hyperpod update",
        ) from None


def _outputs(site: Site, raw: Mapping[str, str]) -> Outputs:
    return Outputs(
        vpc=raw["VpcId"],
        subnets=tuple(raw["SubnetIds"].split(",")),
        security_group=raw["SecurityGroupId"],
        roles={role: raw[f"{role.title()}RoleArn"] for role in ("controller", "login", "compute")},
        lifecycle_bucket=raw["LifecycleBucket"],
        data_bucket=raw.get("DataBucket"),
        checkpoint_bucket=raw.get("CheckpointBucket"),
        file_systems=tuple(_file_systems(site, raw)),
        database=_database(raw),
        topic=raw["TopicArn"],
        login_targets=None if _scales(site) else raw.get("LoginTargetsArn"),
        entry_host=raw.get("EntryHost"),
        session_document=raw["SessionDocument"],
    )


def _scales(site: Site) -> bool:
    return site.aws is not None and site.aws.login.scaling is not None


def _file_systems(site: Site, raw: Mapping[str, str]) -> list[SharedFileSystem]:
    found = []
    for system in site.aws.file_systems if site.aws else ():
        name = f"FileSystem{word(system.name)}"
        if system.existing is not None:
            where = (system.existing.dns_name, system.existing.mount_name)
        else:
            where = (raw[f"{name}DnsName"], raw[f"{name}MountName"] if system.kind == "lustre" else None)
        found.append(SharedFileSystem(system.name, system.kind, *where, system.mount))
    return found


def _database(raw: Mapping[str, str]) -> AccountingServer | None:
    if "DatabaseEndpoint" not in raw:
        return None
    return AccountingServer(raw["DatabaseEndpoint"], int(raw["DatabasePort"]), raw["DatabaseSecretArn"])
