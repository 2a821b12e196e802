"""A cluster's whole life on AWS: what `hpctools hyperpod create`, `update` and `delete` do, in order."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hpctools.errors import HpctoolsError
from hpctools.hyperpod.operations import after, buckets
from hpctools.hyperpod.operations.aws import Aws
from hpctools.hyperpod.operations.clusters import Clusters, Difference
from hpctools.hyperpod.operations.losses import SCRIPTS, Losses, losses
from hpctools.hyperpod.operations.stacks import Agree, Change, Stacks, Wanted
from hpctools.hyperpod.operations.watch import Watch
from hpctools.hyperpod.stack import Outputs, copies, infrastructure, read_outputs, stack_name
from hpctools.hyperpod.stack.kept import given_up, kept_only
from hpctools.hyperpod.tags import stack_tags
from hpctools.site.model import Site

_BUCKET = "AWS::S3::Bucket"
_MADE_FOR = re.compile(r"the cluster (\S+); made by hpctools")  # as the descriptions of our templates end


@dataclass(frozen=True)
class Cluster:
    """What a cluster is made of, once its stack is there.

    Attributes:
        request: CreateCluster's arguments.
        scripts: where the nodes' scripts are, an S3 URI.
    """

    request: Mapping[str, Any]
    scripts: str


Prepare = Callable[[Outputs | None], Cluster]
"""Uploads the nodes' scripts and renders the request, from what the stack gives out."""


@dataclass(frozen=True)
class Life:
    """One site's cluster on AWS."""

    site: Site
    aws: Aws
    watch: Watch

    @property
    def clusters(self) -> Clusters:
        """HyperPod."""
        return Clusters(self.aws.service("sagemaker"), self.watch)

    @property
    def stack_name(self) -> str:
        """The name of the cluster's stack."""
        return stack_name(self.site)

    def stacks(self) -> dict[str, Stacks]:
        """CloudFormation by stack name: the cluster's own, and that of the checkpoints' copies."""
        if self.site.aws is None:
            return {}
        found = {self.stack_name: Stacks(self.aws.service("cloudformation"), self.watch)}
        region = self.site.aws.buckets.replicas_in
        if region:
            service = self.aws.service("cloudformation", region)
            found[f"{self.stack_name}-copies"] = Stacks(service, self.watch)
        return found

    def wanted(self) -> tuple[Wanted, ...]:
        """The stacks as they should be; that of the copies first, since the other one names its bucket."""
        if self.site.aws is None:
            return ()
        other = copies(self.site)
        first = (Wanted(f"{self.stack_name}-copies", other, self._tags()),) if other else ()
        return (*first, Wanted(self.stack_name, infrastructure(self.site), self._tags()))

    def _tags(self) -> dict[str, str]:
        return dict(stack_tags(self.site))

    def bring_stacks(self, agree: Agree = lambda changes: None) -> Outputs | None:
        """Make the stacks what the site says; what the cluster's own gives out, None when it has none.

        Raises:
            HpctoolsError: CloudFormation could not, with its reasons; or a stack is not this cluster's.
        """
        there = self._own_stacks()
        for wanted in self.wanted():
            there[wanted.name].bring(wanted, agree)
        return self.outputs()

    def _own_stacks(self) -> dict[str, Stacks]:
        """The stacks, none of which is somebody else's: what is in one goes when it becomes another one.

        Raises:
            HpctoolsError: one is of another cluster that is there, or of something else.
        """
        found = self.stacks()
        for name, stacks in found.items():
            template = stacks.template(name)
            if template is not None and not self._is_ours(whose := _made_for(template)):
                of = (
                    f"the cluster {whose}, which is there"
                    if whose
                    else "something that hpctools did not make"
                )
                raise HpctoolsError(f"stack {name} is of {of}", "state another name in aws.stack")
        return found

    def _is_ours(self, whose: str) -> bool:
        """Also what is left of a cluster that is gone: its data may be kept under another name."""
        return whose == self.site.cluster.name or (bool(whose) and self.clusters.find(whose) is None)

    def outputs(self) -> Outputs | None:
        """What the stack gives out; None when the site has none.

        Raises:
            HpctoolsError: the stack is not there, or is older than the site.
        """
        if self.site.aws is None:
            return None
        stacks = self.stacks()[self.stack_name]
        if stacks.find(self.stack_name) is None:
            raise HpctoolsError(f"there is no stack {self.stack_name}", "make it: hpctools hyperpod create")
        return read_outputs(self.site, stacks.outputs(self.stack_name))

    def create(self, prepare: Prepare) -> None:
        """Make everything: stacks, scripts, cluster. What is there already stays as it is.

        Raises:
            HpctoolsError: AWS could not, with its reasons; the same call goes on where this one ended. Or the
                cluster is there, and something around it would go.
            UnreachableError: AWS does not answer, or takes too long.
        """
        there = self.clusters.find(self.site.cluster.name) is not None
        outputs = self.bring_stacks(_nothing_goes) if there else self.bring_stacks()
        cluster = prepare(outputs)
        after.remember_scripts(self.site, self.aws, cluster.scripts)
        self.clusters.create(cluster.request)
        after.settle(self.site, self.aws, self.watch)

    def update(
        self, prepare: Prepare, agree: Agree, agree_cluster: Callable[[Difference], None]
    ) -> Difference:
        """Make stacks, scripts and cluster what the site says now; what changed in the cluster.

        Nodes that are there keep their scripts: HyperPod runs them when it creates or replaces a node.

        Raises:
            HpctoolsError: there is no cluster, somebody did not agree, or AWS could not.
        """
        if self.clusters.find(self.site.cluster.name) is None:
            raise HpctoolsError(
                f"there is no cluster {self.site.cluster.name} in {self.aws.region}",
                "create it: hpctools hyperpod create",
            )
        outputs = self.bring_stacks(agree)
        cluster = prepare(outputs)
        after.remember_scripts(self.site, self.aws, cluster.scripts)
        found = self.clusters.change(cluster.request, self._ranges(), agree_cluster)
        after.settle(self.site, self.aws, self.watch)
        return found

    def _ranges(self) -> dict[str, tuple[int, int]]:
        groups = self.site.node_groups
        return {group.name: (group.count.min, group.count.max) for group in groups}

    def losses(self) -> Losses:
        """What a deletion would lose.

        Raises:
            HpctoolsError: a stack is not this cluster's.
        """
        return losses(self.aws, self.clusters, self._own_stacks(), self.site.cluster.name)

    def delete(self, *, data: bool = False) -> None:
        """Delete the cluster, and of its stacks all that has no data.

        Args:
            data: delete what has data, too; the accounting database leaves a last snapshot.

        Raises:
            HpctoolsError: AWS could not, with its reasons; the same call goes on where this one ended.
        """
        own = self._own_stacks()
        self.clusters.delete(self.site.cluster.name)
        after.forget_scripts(self.site, self.aws)
        for name, stacks in own.items():
            if stacks.was_made(name):
                self._shrink(name, stacks, data)
            else:
                stacks.delete(name)

    def _shrink(self, name: str, stacks: Stacks, data: bool) -> None:
        template = stacks.template(name) or {"Resources": {}}
        kept = kept_only(template)
        self._empty(name, stacks, template, all_of_them=data)
        if kept is not None and not data:
            stacks.bring(Wanted(name, kept, self._tags()))
            return
        # A stack whose deletion failed cannot be changed any more; its data was given up before.
        if kept is not None and given_up(template) != template:
            stacks.bring(Wanted(name, given_up(kept), self._tags()))
        stacks.delete(name)

    def _empty(self, name: str, stacks: Stacks, template: dict[str, Any], *, all_of_them: bool) -> None:
        """CloudFormation deletes no bucket that has something in it."""
        service = self.aws.service("s3", stacks.service.region)
        for page in stacks.service.pages("list_stack_resources", StackName=name):
            for each in page["StackResourceSummaries"]:
                logical = each["LogicalResourceId"]
                chosen = each["ResourceType"] == _BUCKET and (all_of_them or logical == SCRIPTS)
                if chosen and logical in template["Resources"] and each.get("PhysicalResourceId"):
                    buckets.empty(service, each["PhysicalResourceId"], self.watch)


def _nothing_goes(changes: tuple[Change, ...]) -> None:
    """Nobody is asked where a cluster is created; of one that runs nothing is taken away so."""
    gone = [change.name for change in changes if change.action in ("Replace", "Remove")]
    if gone:
        raise HpctoolsError(
            f"the cluster is there, and as the site is now {', '.join(gone)} would be replaced or removed",
            "see what changes, and agree to it: hpctools hyperpod update",
        )


def _made_for(template: Mapping[str, Any]) -> str:
    """The cluster that a template is of; empty when it is none of ours."""
    found = _MADE_FOR.search(str(template.get("Description", "")))
    return found[1] if found else ""
