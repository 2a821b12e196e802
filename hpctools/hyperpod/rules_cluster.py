"""Rules for the request as a whole, whatever the style.

Each rule is a function from the files to findings; it passes over what is of the wrong type, since the
service model tells that. Sources: the documentation in botocore's service model of CreateCluster, and the
HyperPod developer guide.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from hpctools.hyperpod.document import Place
from hpctools.hyperpod.files import Files
from hpctools.hyperpod.findings import Finding

Rule = Callable[[Files], Iterator[Finding]]

_REGION = re.compile(r"(?:arn:aws[a-z-]*:(?:sagemaker|secretsmanager|sns):|\.fsx\.)([a-z]{2}(?:-[a-z]+)+-\d)")
_KUBERNETES = ("AutoScaling", "ClusterRole", "RestrictedInstanceGroups", "RestrictedInstanceGroupsConfig")


def one_orchestrator(files: Files) -> Iterator[Finding]:
    """CreateCluster refuses two orchestrators, and an empty one."""
    place = files.request.at("Orchestrator")
    if isinstance(place.value, dict) and len({"Eks", "Slurm"} & set(place.keys)) != 1:
        found = "both Eks and Slurm" if place.keys else "no orchestrator"
        yield place.finding(
            "one-orchestrator", "write exactly one of Eks and Slurm, or leave the key out", found
        )


def some_groups(files: Files) -> Iterator[Finding]:
    """The model requires no instance groups, and a cluster without any runs nothing."""
    place = files.request.at("InstanceGroups")
    if files.style not in ("unknown", "eks") and files.cluster and not files.updates and not place.exists:
        yield files.request.finding("missing-key", "add InstanceGroups", "no InstanceGroups")


def distinct_groups(files: Files) -> Iterator[Finding]:
    """Each instance group has a name of its own."""
    yield from _repeated((group.at("InstanceGroupName") for group in files.groups), "instance group")


def distinct_tags(files: Files) -> Iterator[Finding]:
    """Each tag key stands once, and AWS keeps aws: for itself."""
    keys = [tag.at("Key") for tag in files.request.at("Tags").each()]
    yield from _repeated(iter(keys), "tag")
    for key in keys:
        if key.text and key.text.lower().startswith("aws:"):
            yield key.finding("reserved-tag", "choose another key: AWS keeps aws: for itself")


def _repeated(places: Iterator[Place], what: str) -> Iterator[Finding]:
    first: dict[str, Place] = {}
    for place in places:
        if place.text is None:
            continue
        if place.text in first:
            line = place.document.lines.get(first[place.text].location, 0)
            found = f"another {what} {place.text!a} (the first on line {line})"
            yield place.finding("repeated", f"give each {what} a name of its own", found)
        first.setdefault(place.text, place)


def distinct_network(files: Files) -> Iterator[Finding]:
    """Subnets and security groups stand once in their lists."""
    networks = [files.request.at("VpcConfig"), *(group.at("OverrideVpcConfig") for group in files.groups)]
    for network in networks:
        yield from _repeated(network.at("Subnets").each(), "subnet")
        yield from _repeated(network.at("SecurityGroupIds").each(), "security group")


def network_to_override(files: Files) -> Iterator[Finding]:
    """An override replaces something, and says something else than what it replaces."""
    network = files.request.at("VpcConfig")
    if files.updates:  # which has no VpcConfig: the network of a cluster never changes
        return
    for group in files.groups:
        override = group.at("OverrideVpcConfig")
        if override.exists and not network.exists:
            remedy = "add the cluster's VpcConfig, which the other groups use"
            yield override.finding("override-vpc", remedy, "OverrideVpcConfig without a VpcConfig")
        elif isinstance(override.value, dict) and override.value == network.value:
            yield override.warning("override-vpc", "leave it out", "what VpcConfig says anyway")


def kubernetes_only(files: Files) -> Iterator[Finding]:
    """What HyperPod has for Kubernetes only is refused, or ignored, with Slurm."""
    if files.style == "eks":
        return
    for key in _KUBERNETES:
        if files.request.at(key).exists:
            remedy = "take it away: HyperPod has it with EKS only"
            yield files.request.at(key).finding("kubernetes-only", remedy, f"{key} in a Slurm cluster")
    for group in files.groups:
        if group.at("KubernetesConfig").exists:
            place = group.at("KubernetesConfig")
            remedy = "take it away: Slurm has neither labels nor taints"
            yield place.finding("kubernetes-only", remedy, "KubernetesConfig in a Slurm cluster")


def slurm_only(files: Files) -> Iterator[Finding]:
    """And the other way round."""
    if files.style != "eks":
        return
    for group in files.groups:
        if group.at("SlurmConfig").exists:
            place = group.at("SlurmConfig")
            yield place.finding(
                "slurm-only", "take it away, or Orchestrator.Eks", "SlurmConfig with Orchestrator.Eks"
            )
    if files.provisioning is not None:
        remedy = "take the file away, or Orchestrator.Eks"
        yield files.legacy.finding("slurm-only", remedy, "provisioning_parameters.json with Orchestrator.Eks")


def one_region(files: Files) -> Iterator[Finding]:
    """A cluster, its file systems, plans and secrets are in one region."""
    first: tuple[str, Place] | None = None
    for place in (*_texts(files.request), *_texts(files.legacy)):
        match = _REGION.search(place.text or "")
        if match is None:
            continue
        if first is not None and match.group(1) != first[0]:
            found = f"{match.group(1)}, where {first[1].location[-1]} says {first[0]}"
            yield place.warning("one-region", "name what is in the cluster's region", found)
        first = first or (match.group(1), place)


def _texts(place: Place) -> Iterator[Place]:
    if place.text is not None:
        yield place
    for key in place.keys:
        yield from _texts(place.at(key))
    for item in place.each():
        yield from _texts(item)


CLUSTER_RULES: tuple[Rule, ...] = (
    one_orchestrator,
    some_groups,
    distinct_groups,
    distinct_tags,
    distinct_network,
    network_to_override,
    kubernetes_only,
    slurm_only,
    one_region,
)
