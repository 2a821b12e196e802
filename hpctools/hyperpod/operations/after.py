"""What no template can say: logs that HyperPod makes itself, tags for the bill, where the scripts are."""

from __future__ import annotations

from hpctools.errors import HpctoolsError
from hpctools.hyperpod.operations.aws import Aws, RefusedError
from hpctools.hyperpod.operations.watch import Watch
from hpctools.hyperpod.stack.context import context_of
from hpctools.hyperpod.stack.entry import source_parameter
from hpctools.hyperpod.stack.logs import retention
from hpctools.hyperpod.tags import CAPACITY_TAG, DEPARTMENT_TAG
from hpctools.site.model import Site

# Cost Explorer answers in one region only, for the whole account.
_BILLING_REGION = "us-east-1"
_USUAL_DAYS = 90


def remember_scripts(site: Site, aws: Aws, source: str) -> None:
    """Tell login nodes that are EC2 instances where their scripts are; the others are told by HyperPod.

    Args:
        site: the site.
        aws: the account.
        source: the S3 URI of the scripts.
    """
    if site.aws is None or site.aws.login.scaling is None:
        return
    name = source_parameter(context_of(site))
    aws.service("ssm").ask("put_parameter", Name=name, Value=source, Type="String", Overwrite=True)


def forget_scripts(site: Site, aws: Aws) -> None:
    """Take that back, before the scripts go.

    The stack comes before its scripts: login nodes of a later creation would go to where there are none.
    """
    if site.aws is None or site.aws.login.scaling is None:
        return
    try:
        aws.service("ssm").ask("delete_parameter", Name=source_parameter(context_of(site)))
    except RefusedError as error:
        if error.code != "ParameterNotFound":
            raise


def settle(site: Site, aws: Aws, watch: Watch) -> None:
    """Let HyperPod's logs forget, and let the bill know the cluster's tags.

    The cluster is there by then: what AWS refuses here is told, and is no failure.
    """
    _forget_logs(site, aws, watch)
    _activate_tags(site, aws, watch)


def _forget_logs(site: Site, aws: Aws, watch: Watch) -> None:
    """HyperPod makes `/aws/sagemaker/Clusters/<name>/<id>` itself, and it would be kept for ever."""
    days = retention(site.aws.keep_logs_days if site.aws else _USUAL_DAYS)
    service = aws.service("logs")
    prefix = f"/aws/sagemaker/Clusters/{site.cluster.name}/"
    try:
        for page in service.pages("describe_log_groups", logGroupNamePrefix=prefix):
            for group in page["logGroups"]:
                if group.get("retentionInDays") != days:
                    name = group["logGroupName"]
                    service.ask("put_retention_policy", logGroupName=name, retentionInDays=days)
                    watch.tell(f"logs {name}", "kept", f"{days} days")
    except HpctoolsError as error:
        watch.tell(f"logs {prefix}*", "kept for ever", error.message)


def _activate_tags(site: Site, aws: Aws, watch: Watch) -> None:
    """AWS counts cost by a tag only once the payer has activated it, a day after it was first seen."""
    ours = (site.billing.cluster_tag, site.billing.node_group_tag, DEPARTMENT_TAG, CAPACITY_TAG)
    for key in dict.fromkeys(ours):
        status = [{"TagKey": key, "Status": "Active"}]
        try:
            answer = aws.service("ce", _BILLING_REGION).ask(
                "update_cost_allocation_tags_status", CostAllocationTagsStatus=status
            )
        except HpctoolsError as error:
            watch.tell(f"cost tag {key}", "not activated", error.message)
            continue
        for refused in answer.get("Errors", ()):
            hint = "the payer's account activates it, a day after it was first used"
            watch.tell(f"cost tag {key}", "not activated", f"{refused.get('Message', '')}; {hint}")
