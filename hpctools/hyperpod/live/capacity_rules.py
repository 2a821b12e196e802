"""Whether there is room: quotas, what is offered where, training plans, the cluster's name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hpctools.hyperpod.document import Place
from hpctools.hyperpod.files import Files
from hpctools.hyperpod.findings import Finding
from hpctools.hyperpod.live import named
from hpctools.hyperpod.live.facts import AwsFacts, Plan

PER_TYPE = "{} for cluster usage"
PER_SPOT_TYPE = "{} for cluster spot instance usage"
PER_CLUSTER = "Maximum number instances allowed per SageMaker HyperPod cluster"
ALL_CLUSTERS = "Total number of instances allowed across SageMaker HyperPod clusters"
ALL_SPOT = "Total number of Spot instances allowed across SageMaker HyperPod clusters"
LARGEST_VOLUME = "Maximum size of EBS volume in GB for a SageMaker HyperPod cluster instance"
"""Names of quotas as Service Quotas has them, of SageMaker (L-2CE978FC, L-3308CCC7, L-E13DF72A and one for
each type). AWS words them oddly ("number instances"); what it renames is told as not checked."""


def name_is_free(files: Files, facts: AwsFacts) -> Iterator[Finding]:
    """A second cluster of one name is refused."""
    name = files.request.at("ClusterName")
    if not files.updates and name.text and name.text in (facts.clusters or ()):
        remedy = "choose another name, or check an update (--update)"
        yield name.warning(
            "cluster-exists", remedy, f"{name.text!a}, which is there already in {facts.region}"
        )


def updates_fit(files: Files, facts: AwsFacts) -> Iterator[Finding]:
    """An update is of a cluster that is there, and leaves each group's NodeType as it is."""
    name = files.request.at("ClusterName")
    if not files.updates or facts.clusters is None or name.text is None:
        return
    if name.text.rsplit("/", 1)[-1] == name.text and name.text not in facts.clusters:
        remedy = f"name a cluster of {facts.region}, or check a request of CreateCluster (without --update)"
        yield name.finding("no-cluster", remedy, f"{name.text!a}, which is not in {facts.region}")
    for group in files.groups:
        kind = group.at("SlurmConfig", "NodeType")
        there = (facts.node_types or {}).get(group.at("InstanceGroupName").text or "")
        if there and kind.text and kind.text != there:
            remedy = f"write {there}, or add a group of another name: a NodeType never changes"
            yield kind.finding("node-type", remedy, f"{kind.text}, where the group is {there}")


def types_are_offered(files: Files, facts: AwsFacts) -> Iterator[Finding]:
    """EC2 has the type in a zone of the group's subnets."""
    for group in files.groups:
        subnets = [
            (facts.subnets or {}).get(place.text or "")
            for place in named.subnets(named.network_of(files, group))
        ]
        zones = {subnet.zone for subnet in subnets if subnet is not None}
        for place in named.types(group):
            offered = (facts.offered or {}).get((place.text or "").removeprefix("ml."))
            if offered is None:
                continue
            where = ", ".join(sorted(offered)) or "nowhere"
            if not offered or (zones and not zones & offered):
                found = f"{place.text}, which EC2 has in {facts.region} {'in ' if offered else ''}{where}"
                yield place.finding(
                    "instance-offering", "name subnets in such a zone, or another type", found
                )


def quotas_suffice(files: Files, facts: AwsFacts) -> Iterator[Finding]:
    """Quotas count for the instances of a type, for one cluster, and for all; AWS raises them when asked.

    A quota that the account does not tell of is a warning: it may have another name by now.
    """
    if facts.quotas is None:
        return
    root = files.request.at("InstanceGroups")
    wanted = _instances(files)
    for (name, quota), count in sorted(wanted.items()):
        yield from _quota(root, facts, quota.format(name), count, f"{count} of {name}")
    total = sum(wanted.values())
    spot = sum(count for (_, quota), count in wanted.items() if quota == PER_SPOT_TYPE)
    for quota in (PER_CLUSTER, ALL_CLUSTERS):
        yield from _quota(root, facts, quota, total, f"{total} instances")
    if spot:
        yield from _quota(root, facts, ALL_SPOT, spot, f"{spot} spot instances")
    for group in files.groups:
        for config in group.at("InstanceStorageConfigs").each():
            size = config.at("EbsVolumeConfig", "VolumeSizeInGB")
            if size.number is not None:
                yield from _quota(size, facts, LARGEST_VOLUME, size.number, f"{size.number} GB")


def _instances(files: Files) -> Counter[tuple[str, str]]:
    """How many instances of each type count for which kind of quota."""
    wanted: Counter[tuple[str, str]] = Counter()
    for group in files.groups:
        spot = group.at("CapacityRequirements", "Spot").exists
        for place in named.types(group)[:1]:
            kind = PER_SPOT_TYPE if spot else PER_TYPE
            wanted[place.text or "", kind] += group.at("InstanceCount").number or 0
    return wanted


def _quota(place: Place, facts: AwsFacts, name: str, wanted: int, found: str) -> Iterator[Finding]:
    allowed = (facts.quotas or {}).get(name)
    if allowed is None:
        if wanted:
            remedy = "see Service Quotas, SageMaker, whether there is enough"
            yield place.warning("not-checked", remedy, f"{found}, of which no quota {name!r} tells")
    elif wanted > allowed:
        remedy = f"ask AWS for more (Service Quotas, {name!r}), or take less"
        yield place.finding("quota", remedy, f"{found}, where the quota {name!r} is {allowed:g}")


def plans_fit(files: Files, facts: AwsFacts) -> Iterator[Finding]:
    """A training plan is for HyperPod, has the type, room, and is in the group's zone."""
    if facts.plans is None:
        return
    for group in files.groups:
        place = group.at("TrainingPlanArn")
        if place.text is None:
            continue
        plan = facts.plans.get(place.text)
        if plan is None:
            remedy = f"name a plan of {facts.region}"
            yield place.finding("training-plan", remedy, f"{place.text!a}, which is not in {facts.region}")
        else:
            yield from _plan(files, facts, group, place, plan)


def _plan(files: Files, facts: AwsFacts, group: Place, place: Place, plan: Plan) -> Iterator[Finding]:
    if plan.status not in ("Active", "Scheduled"):
        yield place.finding(
            "training-plan", "name one that is active or scheduled", f"a plan that is {plan.status}"
        )
    if plan.targets and "hyperpod-cluster" not in plan.targets:
        targets = ", ".join(sorted(plan.targets))
        yield place.finding("training-plan", "name one for hyperpod-cluster", f"a plan for {targets}")
    for wanted in named.types(group)[:1]:
        if plan.types and wanted.text not in plan.types:
            found = f"{wanted.text}, where the plan has {', '.join(sorted(plan.types))}"
            yield wanted.finding("training-plan", "write the plan's type", found)
    count = group.at("InstanceCount")
    if plan.status == "Active" and count.number is not None and count.number > plan.available:
        found = f"{count.number} instances, where the plan has {plan.available} left"
        yield count.finding("training-plan", "take less, or another plan", found)
    places = named.subnets(named.network_of(files, group))
    known = [(facts.subnets or {}).get(each.text or "") for each in places]
    zones = {zone for subnet in known if subnet is not None for zone in (subnet.zone, subnet.zone_id)}
    if zones and plan.zones and not zones & plan.zones:
        found = f"a plan in {', '.join(sorted(plan.zones))}, and subnets elsewhere"
        remedy = "give the group OverrideVpcConfig with a subnet in the plan's zone"
        yield place.finding("training-plan", remedy, found)


CAPACITY_RULES = (name_is_free, updates_fit, types_are_offered, quotas_suffice, plans_fit)
