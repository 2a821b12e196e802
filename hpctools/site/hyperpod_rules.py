"""What must hold between the `hyperpod` section and the rest of a site whose parts are valid.

The rules are HyperPod's own (the developer guide's pages on the Slurm configuration, on continuous
provisioning and on several controllers): CreateCluster refuses, or builds a cluster that does not work.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from hpctools.site.findings import Finding, one_of
from hpctools.site.hyperpod import HyperPod
from hpctools.site.model import Site

Check = Callable[[Site, HyperPod], Iterator[Finding]]

DEV_PARTITION = "dev"
"""HyperPod puts every node into this partition of its own."""

_CLUSTER_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9])*", re.ASCII)


def check_hyperpod(site: Site) -> Iterator[Finding]:
    """Apply every check to a site with a `hyperpod` section; findings name the lines of its source."""
    if site.hyperpod is not None:
        for check in CHECKS:
            yield from check(site, site.hyperpod)


def name_is_taken(site: Site, hyperpod: HyperPod) -> Iterator[Finding]:
    """HyperPod takes fewer cluster names than Slurm does."""
    if not _CLUSTER_NAME.fullmatch(site.cluster.name):
        expected = "letters, digits and '-' between them, since HyperPod takes no other cluster name"
        yield site.source.finding(("cluster", "name"), repr(site.cluster.name), expected)


def groups_exist(site: Site, hyperpod: HyperPod) -> Iterator[Finding]:
    """Options are for node groups that the site has, and fit what they are for."""
    groups = {group.name: group for group in site.node_groups}
    for name, options in hyperpod.node_groups.items():
        place = ("hyperpod", "node_groups", name)
        if name not in groups:
            yield site.source.finding(place, repr(name), one_of(groups, name))
            continue
        if groups[name].role == "login":
            stated = (options.training_plan, options.partition, options.deep_health_checks or None)
            if any(each is not None for each in stated):
                found = "a training plan, a partition or health checks of login nodes"
                yield site.source.finding(place, found, "none of them: login nodes run no jobs")
        if options.min_count is not None and options.min_count > groups[name].count.max:
            most = f"at most {groups[name].count.max}, the group's count"
            yield site.source.finding((*place, "min_count"), str(options.min_count), most)


def groups_are_instances(site: Site, hyperpod: HyperPod) -> Iterator[Finding]:
    """Every node of HyperPod is an instance of a type that SageMaker has, and one group is for login."""
    logins = [index for index, group in enumerate(site.node_groups) if group.role == "login"]
    for index in logins[1:]:
        expected = "one group of login nodes at most, since HyperPod takes no more"
        yield site.source.finding(("node_groups", index), "another group of login nodes", expected)
    for index, group in enumerate(site.node_groups):
        if not (group.instance_type or "").startswith("ml."):
            found = repr(group.instance_type) if group.instance_type else "no instance_type"
            expected = "an instance type of SageMaker, for example ml.p5.48xlarge"
            yield site.source.finding(("node_groups", index, "instance_type"), found, expected)
        if group.name == hyperpod.controller.group:
            expected = "a name that no node group has"
            yield site.source.finding(("hyperpod", "controller", "group"), repr(group.name), expected)


def several_controllers(site: Site, hyperpod: HyperPod) -> Iterator[Finding]:
    """Several controllers exist in the legacy style only, and share a database and a folder."""
    count = len(site.cluster.controllers)
    if count < 2:
        if hyperpod.failover is not None:
            yield site.source.finding(
                ("hyperpod", "failover"), "failover with one controller", "nothing, or several controllers"
            )
        return
    place = ("cluster", "controllers")
    if hyperpod.style == "slurmconfig" or hyperpod.continuous:
        key = "style" if hyperpod.style == "slurmconfig" else "continuous"
        expected = f"one controller: several ({count}) exist in the legacy style only"
        yield site.source.finding(("hyperpod", key), "SlurmConfig for several controllers", expected)
    if hyperpod.accounting_database is None:
        expected = "hyperpod.accounting_database, which all controllers reach"
        yield site.source.finding(place, f"{count} controllers", expected)
    if hyperpod.failover is None:
        expected = "hyperpod.failover: their shared folder and topic"
        yield site.source.finding(place, f"{count} controllers", expected)


def style_fits(site: Site, hyperpod: HyperPod) -> Iterator[Finding]:
    """Continuous provisioning only merges and needs SlurmConfig; an outside database needs it in turn."""
    place = ("hyperpod", "strategy")
    if hyperpod.continuous and hyperpod.style == "legacy":
        expected = "slurmconfig, since continuous provisioning reads no provisioning_parameters.json"
        yield site.source.finding(("hyperpod", "style"), "legacy", expected)
    if hyperpod.continuous and hyperpod.strategy is not None:
        expected = "nothing: continuous provisioning always merges, and refuses any strategy"
        yield site.source.finding(place, hyperpod.strategy, expected)
    if hyperpod.strategy in ("managed", "overwrite") and site_partitions(site):
        expected = "merge: the site's partitions are drift to managed, and gone after overwrite"
        yield site.source.finding(place, hyperpod.strategy, expected)
    if hyperpod.style == "legacy" and hyperpod.strategy is not None:
        yield site.source.finding(place, hyperpod.strategy, "nothing: the legacy style has no strategy")
    if not hyperpod.continuous and hyperpod.accounting_database and len(site.cluster.controllers) == 1:
        expected = "continuous: true beside it, or several controllers: HyperPod takes it with no other"
        found = "a database outside the cluster"
        yield site.source.finding(("hyperpod", "accounting_database"), found, expected)
    for name, options in hyperpod.node_groups.items():
        if options.min_count is not None and not hyperpod.continuous:
            where = ("hyperpod", "node_groups", name, "min_count")
            expected = "continuous: true: without it all nodes come, or none"
            yield site.source.finding(where, str(options.min_count), expected)


def partitions_are_told_apart(site: Site, hyperpod: HyperPod) -> Iterator[Finding]:
    """Slurm refuses a partition that is declared twice: by HyperPod, and by the site."""
    taken = site_partitions(site) | {DEV_PARTITION}
    for name, options in hyperpod.node_groups.items():
        if options.partition is not None and (
            options.partition in taken or options.partition == DEV_PARTITION
        ):
            where = ("hyperpod", "node_groups", name, "partition")
            yield site.source.finding(where, repr(options.partition), "a name that no other partition has")
    for index, department in enumerate(site.departments):
        if department.partition is not None and department.partition_name == DEV_PARTITION:
            expected = f"another name: HyperPod has a partition {DEV_PARTITION!r} of its own"
            yield site.source.finding(("departments", index, "partition"), repr(DEV_PARTITION), expected)
    for index, shared in enumerate(site.partitions):
        if shared.name == DEV_PARTITION:
            expected = f"another name: HyperPod has a partition {DEV_PARTITION!r} of its own"
            yield site.source.finding(("partitions", index, "name"), repr(DEV_PARTITION), expected)


def nodes_stay(site: Site, hyperpod: HyperPod) -> Iterator[Finding]:
    """Slurm's power saving knows nodes by the site's names, and HyperPod's agent gives them others.

    slurmctld ignores names in SuspendExcNodes that it does not know ("Invalid SuspendExcNodes ... ignored" in
    22.05.8, not tried): no node would be kept from going.
    """
    if site.cluster.power_saving is not None:
        expected = "nothing: HyperPod makes nodes come and go itself (hpctools hyperpod update)"
        yield site.source.finding(("cluster", "power_saving"), "power saving", expected)


def site_partitions(site: Site) -> frozenset[str]:
    """The names of the partitions that a site declares."""
    own = (department.partition_name for department in site.departments if department.partition is not None)
    return frozenset((*own, *(shared.name for shared in site.partitions)))


CHECKS: tuple[Check, ...] = (
    name_is_taken,
    groups_exist,
    groups_are_instances,
    several_controllers,
    style_fits,
    partitions_are_told_apart,
    nodes_stay,
)
