"""What there is of a site's cluster on AWS, in one look."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hpctools.hyperpod.operations.clusters import NodeCount
from hpctools.hyperpod.operations.life import Life
from hpctools.hyperpod.operations.stacks import Wanted
from hpctools.hyperpod.stack.kept import kept_only

_RUNNING = "Running"
_ROLLED_BACK = "UPDATE_ROLLBACK_COMPLETE"  # whole, and as before; it stays so until something else is changed


@dataclass(frozen=True)
class StackStatus:
    """One stack.

    Attributes:
        name: its name.
        region: where it is.
        status: CloudFormation's word; `absent` when there is none.
        as_the_site_says: whether its template is the one that the site makes now.
        data_only: whether its cluster was deleted, and only what has data is left.
        reason: CloudFormation's reason; may be empty.
    """

    name: str
    region: str
    status: str
    as_the_site_says: bool
    data_only: bool
    reason: str = ""


@dataclass(frozen=True)
class Status:
    """All of it.

    Attributes:
        region: the cluster's region.
        stacks: the stacks that the site has.
        cluster: HyperPod's word; `absent` when there is none.
        failure: why the cluster failed; may be empty.
        groups: nodes by group.
        entry: what people connect to; empty when there is no balancer.
    """

    region: str
    stacks: tuple[StackStatus, ...]
    cluster: str
    failure: str
    groups: tuple[NodeCount, ...]
    entry: str

    @property
    def good(self) -> bool:
        """Whether everything is there, in service, and as the site says."""
        stacks = all(each.as_the_site_says and not each.reason for each in self.stacks)
        return self.cluster == "InService" and not self.missing and stacks

    @property
    def missing(self) -> int:
        """Nodes that are wanted and do not run; with continuous provisioning they come later."""
        return sum(max(0, group.wanted - group.states.get(_RUNNING, 0)) for group in self.groups)

    def as_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        return asdict(self) | {"good": self.good}


def look(life: Life) -> Status:
    """Ask AWS what there is.

    Raises:
        UnreachableError: AWS does not answer, or the credentials are no longer good.
    """
    there = life.stacks()
    stacks = tuple(_stack(life, wanted) for wanted in life.wanted())
    found: Mapping[str, Any] = life.clusters.find(life.site.cluster.name) or {}
    outputs = there[life.stack_name].outputs(life.stack_name) if there else {}
    return Status(
        region=life.aws.region,
        stacks=stacks,
        cluster=str(found.get("ClusterStatus", "absent")),
        failure=str(found.get("FailureMessage") or ""),
        groups=life.clusters.nodes(life.site.cluster.name),
        entry=outputs.get("EntryHost", ""),
    )


def _stack(life: Life, wanted: Wanted) -> StackStatus:
    stacks = life.stacks()[wanted.name]
    found = stacks.find(wanted.name)
    region = stacks.service.region
    if found is None:
        return StackStatus(wanted.name, region, "absent", as_the_site_says=False, data_only=False)
    template = stacks.template(wanted.name)
    status = str(found["StackStatus"])
    same = template == json.loads(wanted.body)
    failed = status.endswith("FAILED") or "ROLLBACK" in status
    failed = failed and not (same and status == _ROLLED_BACK)
    left = kept_only(template) if template else None
    data_only = not same and left is not None and left["Resources"] == (template or {})["Resources"]
    reason = str(found.get("StackStatusReason", status)) if failed else ""
    return StackStatus(wanted.name, region, status, same, data_only, reason)
