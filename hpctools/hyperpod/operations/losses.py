"""What deleting a cluster would lose, and what it would keep; looked up before anybody is asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hpctools.hyperpod.operations import buckets
from hpctools.hyperpod.operations.aws import Aws, RefusedError
from hpctools.hyperpod.operations.clusters import Clusters, NodeCount
from hpctools.hyperpod.operations.stacks import Stacks
from hpctools.hyperpod.stack.kept import holds_data, kept_only

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
SCRIPTS = "LifecycleBucket"


@dataclass(frozen=True)
class Holding:
    """A resource that has data.

    Attributes:
        name: its name in the stack.
        kind: its type in CloudFormation.
        identifier: AWS's id for it.
        region: where it is.
        amount: how much is in it, or how large it is.
    """

    name: str
    kind: str
    identifier: str
    region: str
    amount: str


@dataclass(frozen=True)
class Losses:
    """What there is, before a deletion.

    Attributes:
        cluster: the cluster's status; empty when there is none.
        nodes: its nodes by group.
        stack: the stack's name; empty when there is none.
        going: names of resources without data, which go with the cluster.
        holding: resources with data, which stay unless told otherwise.
        scripts: the bucket of the nodes' scripts, which is emptied; empty when there is none.
        never_made: stacks whose creation failed, or was not begun: what is left of them goes.
    """

    cluster: str
    nodes: tuple[NodeCount, ...]
    stack: str
    going: tuple[str, ...]
    holding: tuple[Holding, ...]
    scripts: str
    never_made: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        """Whether there is nothing that could be deleted."""
        return not (self.cluster or self.stack or self.never_made)


def losses(aws: Aws, clusters: Clusters, stacks: Mapping[str, Stacks], cluster: str) -> Losses:
    """Look up what a deletion would lose.

    Args:
        aws: the account.
        clusters: HyperPod.
        stacks: CloudFormation by stack name, the cluster's own stack first.
        cluster: the cluster's name.
    """
    status = str((clusters.find(cluster) or {}).get("ClusterStatus", ""))
    there = {name: template for name, each in stacks.items() if (template := each.template(name)) is not None}
    going: list[str] = []
    holding: list[Holding] = []
    scripts = ""
    for name, template in there.items():
        kept = (kept_only(template) or {}).get("Resources", {})
        going += [resource for resource in template["Resources"] if resource not in kept]
        ids = _identifiers(stacks[name], name)
        scripts = scripts or ids.get(SCRIPTS, "")
        holding += _holding(aws, template["Resources"], ids, stacks[name].service.region)
    return Losses(
        cluster=status,
        nodes=clusters.nodes(cluster),
        stack=next(iter(there), ""),
        going=tuple(sorted(going)),
        holding=tuple(holding),
        scripts=scripts,
        never_made=tuple(name for name, each in stacks.items() if name not in there and each.find(name)),
    )


def _identifiers(stacks: Stacks, name: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for page in stacks.service.pages("list_stack_resources", StackName=name):
        for each in page["StackResourceSummaries"]:
            found[each["LogicalResourceId"]] = each.get("PhysicalResourceId", "")
    return found


def _holding(
    aws: Aws, resources: Mapping[str, Mapping[str, Any]], ids: Mapping[str, str], region: str
) -> Iterator[Holding]:
    for name, resource in resources.items():
        if holds_data(resource) and ids.get(name):
            amount = _amount(aws, resource, ids[name], region)
            yield Holding(name, resource["Type"], ids[name], region, amount)


def _amount(aws: Aws, resource: Mapping[str, Any], identifier: str, region: str) -> str:
    properties = resource.get("Properties", {})
    if resource["Type"] == "AWS::S3::Bucket":
        return _bucket_amount(aws, identifier, region)
    if resource["Type"] == "AWS::FSx::FileSystem":
        return f"{properties['StorageCapacity']} GiB"
    if resource["Type"] == "AWS::RDS::DBInstance":
        return f"{properties['AllocatedStorage']} GiB"
    return ""


def _bucket_amount(aws: Aws, bucket: str, region: str) -> str:
    try:
        found = buckets.fill(aws.service("s3", region), bucket)
    except RefusedError as error:
        return f"unknown ({error.code})"
    if found is None:
        return "gone"
    at_least = "at least " if found.more else ""
    return f"{at_least}{found.versions} objects, {spell_bytes(found.size_bytes)}"


def spell_bytes(size: float) -> str:
    """A size as people read it."""
    for unit in _UNITS[:-1]:
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} {_UNITS[-1]}"
