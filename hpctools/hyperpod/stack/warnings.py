"""Who is told of what: a topic, failed nodes, full file systems, and AWS's own budget."""

from __future__ import annotations

import hashlib
from decimal import Decimal
from typing import Any

from hpctools.errors import UsageError
from hpctools.hyperpod.stack.context import Context, word
from hpctools.hyperpod.stack.intrinsic import Json, Part, ref, resource
from hpctools.hyperpod.stack.roles import document

_GIB = 1024**3
_MOST_EMAILS = 10
_DIGEST = 8
EVENTS = ("SageMaker HyperPod Cluster State Change", "SageMaker HyperPod Cluster Node Health Event")
_PUBLISHERS = ("budgets.amazonaws.com", "cloudwatch.amazonaws.com", "events.amazonaws.com")


def notifications(context: Context) -> Part:
    """The topic, and what is sent there."""
    made = {
        "Topic": _topic(context),
        "TopicPolicy": _topic_policy(),
        "NodeEvents": _node_events(context),
    }
    for address in context.aws.notifications.emails:
        made[_mail_name(address, made)] = _mail(address)
    return Part(made | _full_file_systems(context), {"TopicArn": ref("Topic")})


def _topic(context: Context) -> Json:
    properties = {"KmsMasterKeyId": context.aws.kms_key, "Tags": context.named("notifications")}
    return resource("AWS::SNS::Topic", properties)


def _topic_policy() -> Json:
    publish = {
        "Sid": "ServicesOfThisAccount",
        "Effect": "Allow",
        "Principal": {"Service": list(_PUBLISHERS)},
        "Action": "sns:Publish",
        "Resource": ref("Topic"),
        "Condition": {"StringEquals": {"aws:SourceAccount": ref("AWS::AccountId")}},
    }
    encrypted = {
        "Sid": "EncryptedConnectionsOnly",
        "Effect": "Deny",
        "Principal": "*",
        "Action": "sns:Publish",
        "Resource": ref("Topic"),
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    properties = {"PolicyDocument": document([publish, encrypted]), "Topics": [ref("Topic")]}
    return resource("AWS::SNS::TopicPolicy", properties)


def _mail_name(address: str, taken: Json) -> str:
    """Of letters and digits, as CloudFormation wants it: a.lee@ and a-lee@ must not become one."""
    name = "MailTo" + "".join(character for character in address.title() if character.isalnum())
    digest = hashlib.sha256(address.encode()).hexdigest()[:_DIGEST]
    return f"{name}{digest}" if name in taken else name


def _mail(address: str) -> Json:
    properties = {"Endpoint": address, "Protocol": "email", "TopicArn": ref("Topic")}
    return resource("AWS::SNS::Subscription", properties)


def _node_events(context: Context) -> Json:
    """HyperPod tells EventBridge of clusters and nodes that change their state."""
    pattern = {
        "source": ["aws.sagemaker"],
        "detail-type": list(EVENTS),
        "detail": {"ClusterName": [context.cluster]},
    }
    properties = {
        "Description": f"{context.cluster}: states of the cluster and health of its nodes",
        "EventPattern": pattern,
        "State": "ENABLED",
        "Tags": context.tag_list(),
        "Targets": [{"Arn": ref("Topic"), "Id": "topic"}],
    }
    return resource("AWS::Events::Rule", properties)


def _full_file_systems(context: Context) -> Json:
    percent = context.aws.notifications.file_system_free_percent
    made = {}
    for system in context.aws.file_systems:
        if system.kind == "lustre" and system.existing is None:
            name = f"FileSystem{word(system.name)}"
            least = system.size_gib * _GIB * percent // 100
            made[f"{name}Full"] = _full(context, name, system.mount, percent, least)
    return made


def _full(context: Context, name: str, mount: str, percent: int, least: int) -> Json:
    """FSx reports the free bytes of each disk once a minute; their sum is the file system's."""
    properties = {
        "AlarmActions": [ref("Topic")],
        "AlarmDescription": f"{context.cluster}: less than {percent} % of {mount} is free",
        "ComparisonOperator": "LessThanThreshold",
        "Dimensions": [{"Name": "FileSystemId", "Value": ref(name)}],
        "EvaluationPeriods": 5,
        "MetricName": "FreeDataStorageCapacity",
        "Namespace": "AWS/FSx",
        "OKActions": [ref("Topic")],
        "Period": 60,
        "Statistic": "Sum",
        "Tags": context.tag_list(),
        "Threshold": least,
        "TreatMissingData": "missing",
    }
    return resource("AWS::CloudWatch::Alarm", properties)


def budget(context: Context) -> Part:
    """AWS's own budget over everything that carries the cluster's tag; it warns, and stops nothing.

    Raises:
        UsageError: the departments' budgets are not all in USD, and the site states no amount.
    """
    amount = _amount(context)
    stated = context.aws.budget
    if amount is None or stated is None:
        return Part()
    tag = f"user:{context.site.billing.cluster_tag}${context.cluster}"
    money: Json = {
        "BudgetLimit": {"Amount": str(amount), "Unit": "USD"},
        "BudgetName": f"hpctools-{context.cluster}",
        "BudgetType": "COST",
        "CostFilters": {"TagKeyValue": [tag]},
        "TimeUnit": "MONTHLY",
    }
    told = [_told("ACTUAL", percent) for percent in stated.alert_at] + [_told("FORECASTED", 100)]
    properties = {
        "Budget": money,
        "NotificationsWithSubscribers": told,
        "ResourceTags": context.tag_list(),
    }
    return Part({"Budget": resource("AWS::Budgets::Budget", properties, after=["TopicPolicy"])})


def _told(kind: str, percent: int) -> Json:
    notification = {
        "ComparisonOperator": "GREATER_THAN",
        "NotificationType": kind,
        "Threshold": percent,
        "ThresholdType": "PERCENTAGE",
    }
    subscribers: list[Any] = [{"Address": ref("Topic"), "SubscriptionType": "SNS"}]
    return {"Notification": notification, "Subscribers": subscribers}


def _amount(context: Context) -> Decimal | None:
    """USD a month."""
    stated = context.aws.budget
    if stated is None or stated.amount is not None:
        return stated.amount if stated else None
    stated_ones = (each.budget for each in context.site.departments if each.budget is not None)
    budgets = [each for each in stated_ones if each.period == "monthly"]
    foreign = sorted({each.currency for each in budgets} - {"USD"})
    if foreign:
        raise UsageError(
            f"departments have budgets in {', '.join(foreign)}, and AWS Budgets counts in USD",
            "state aws.budget.amount, or `budget: null` for no budget of AWS",
        )
    return sum((each.amount for each in budgets), Decimal(0)) or None
