"""What is around the cluster: from the site where it says so, else from its stack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hpctools.errors import UsageError
from hpctools.hyperpod.stack import Outputs
from hpctools.site.model import Site

ROLES = ("controller", "login", "compute")


@dataclass(frozen=True)
class FileSystem:
    """A file system on FSx that nodes mount.

    Attributes:
        kind: `lustre` or `openzfs`.
        dns_name: its host.
        mount_name: Lustre's mount name; None for OpenZFS.
        mount: the folder on the nodes.
    """

    kind: str
    dns_name: str
    mount_name: str | None
    mount: str


@dataclass(frozen=True)
class Database:
    """A database outside the cluster; `secret` has its user and password."""

    endpoint: str
    port: int
    name: str
    user: str
    secret: str


@dataclass(frozen=True)
class Surroundings:
    """What is around a cluster.

    Attributes:
        roles: execution roles by node role: controller, login, compute.
        subnets: private subnets.
        security_groups: security groups of the nodes.
        lifecycle: the place of the lifecycle scripts in S3.
        file_systems: what nodes mount, at most one of each kind: HyperPod takes no more.
        database: the database outside the cluster; None when accounting is on the controller.
        topic: where a change of controller is announced; None when nobody is told.
    """

    roles: Mapping[str, str]
    subnets: tuple[str, ...]
    security_groups: tuple[str, ...]
    lifecycle: str
    file_systems: tuple[FileSystem, ...] = ()
    database: Database | None = None
    topic: str | None = None


def surroundings(site: Site, outputs: Outputs | None, lifecycle: str | None = None) -> Surroundings:
    """Return what is around a site's cluster.

    Args:
        site: the site; it has a `hyperpod` section.
        outputs: what its stack gives out; None when there is no stack, or nobody asked it.
        lifecycle: where the lifecycle scripts were uploaded; the site's `lifecycle_source` when left out.

    Raises:
        UsageError: something is said neither by the site nor by a stack; all of it is named.
    """
    section = site.hyperpod
    if section is None:
        raise UsageError(
            "the site has no hyperpod section",
            "add one (docs/hyperpod.md); `hyperpod: {}` takes every default",
        )
    role, network = section.execution_role, section.network
    roles = dict.fromkeys(ROLES, role) if role else dict(outputs.roles) if outputs else {}
    subnets = network.subnets if network else outputs.subnets if outputs else ()
    groups = network.security_groups if network else (outputs.security_group,) if outputs else ()
    place = lifecycle or section.lifecycle_source
    _refuse_gaps(
        {
            "execution_role": bool(roles),
            "network": bool(subnets and groups),
            "lifecycle_source": place is not None,
            **dict.fromkeys(_made_by_stack(site), outputs is not None),
        }
    )
    return Surroundings(
        roles=roles,
        subnets=subnets,
        security_groups=groups,
        lifecycle=(place or "").rstrip("/") + "/",
        file_systems=tuple(_one_of_each(_file_systems(site, outputs))),
        database=_database(site, outputs),
        topic=section.failover.topic if section.failover else None,
    )


def _made_by_stack(site: Site) -> list[str]:
    systems = site.aws.file_systems if site.aws is not None else ()
    return [f"aws.file_systems {system.name}" for system in systems if system.existing is None]


def _refuse_gaps(known: Mapping[str, bool]) -> None:
    missing = [name if "." in name else f"hyperpod.{name}" for name, there in known.items() if not there]
    if missing:
        raise UsageError(
            f"nothing says {', '.join(missing)}",
            "make the stack and give its outputs (--outputs), upload the lifecycle scripts and say where"
            " (--lifecycle), or state them in the site",
        )


def _file_systems(site: Site, outputs: Outputs | None) -> Iterable[FileSystem]:
    if outputs is not None:
        for made in outputs.file_systems:
            yield FileSystem(made.kind, made.dns_name, made.mount_name, made.mount)
        return
    for system in site.aws.file_systems if site.aws is not None else ():
        if system.existing is not None:
            there = system.existing
            yield FileSystem(system.kind, there.dns_name, there.mount_name, system.mount)


def _one_of_each(systems: Iterable[FileSystem]) -> Iterable[FileSystem]:
    seen: set[str] = set()
    for system in systems:
        if system.kind not in seen:
            seen.add(system.kind)
            yield system


def _database(site: Site, outputs: Outputs | None) -> Database | None:
    stated = site.hyperpod.accounting_database if site.hyperpod else None
    if stated is not None:
        return Database(stated.endpoint, stated.port, stated.name, stated.user, stated.secret)
    if outputs is None or outputs.database is None:
        return None
    usual = site.cluster.accounting.database
    made = outputs.database
    return Database(made.endpoint, made.port, usual.name, usual.user, made.secret_arn)
