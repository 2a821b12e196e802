"""Roles and their statements, in one place, so that a test can hold each to the least it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hpctools.hyperpod.stack.context import Context
from hpctools.hyperpod.stack.intrinsic import Json, resource

POLICY_VERSION = "2012-10-17"


def allow(
    actions: Sequence[str], resources: Sequence[Any], condition: Mapping[str, Any] | None = None
) -> Json:
    """A statement that allows some actions on some resources."""
    return _statement("Allow", actions, resources, condition)


def deny(actions: Sequence[str], resources: Sequence[Any], condition: Mapping[str, Any]) -> Json:
    """A statement that forbids actions under a condition, whatever else allows them."""
    return _statement("Deny", actions, resources, condition)


def _statement(
    effect: str, actions: Sequence[str], resources: Sequence[Any], condition: Mapping[str, Any] | None
) -> Json:
    made: Json = {"Effect": effect, "Action": sorted(actions), "Resource": list(resources)}
    return made | ({"Condition": dict(condition)} if condition else {})


def token_of_login_nodes(context: Context) -> list[Json]:
    """What lets a login node read its agent's token; nothing where that is no secret of AWS's."""
    agent = context.site.login.agent
    secret = agent.token.aws_secret if agent is not None else None
    return [allow(["secretsmanager:GetSecretValue"], [secret])] if secret else []


def balance_of_login_nodes(context: Context) -> list[Json]:
    """What lets a login node register with the target group that the site names, if it names one."""
    stated = context.site.lifecycle.login_balance
    return balance_on(stated.target_group) if stated is not None else []


def balance_on(group: Any) -> list[Json]:
    """Rights to put oneself on a target group's list, and to take oneself off."""
    changed = ["elasticloadbalancing:DeregisterTargets", "elasticloadbalancing:RegisterTargets"]
    return [allow(changed, [group]), allow(["elasticloadbalancing:DescribeTargetHealth"], ["*"])]


def document(statements: Sequence[Json]) -> Json:
    """A policy of these statements."""
    return {"Version": POLICY_VERSION, "Statement": list(statements)}


def role(
    context: Context,
    services: Sequence[str],
    statements: Sequence[Json],
    condition: Mapping[str, Any] | None = None,
) -> Json:
    """A role that services may take, with one policy of its own.

    Args:
        context: the site.
        services: who may take it, for example sagemaker.amazonaws.com.
        statements: what it may do.
        condition: under which circumstances it may be taken.
    """
    trust: Json = {
        "Effect": "Allow",
        "Principal": {"Service": sorted(services)},
        "Action": "sts:AssumeRole",
    }
    if condition:
        trust["Condition"] = dict(condition)
    properties: Json = {"AssumeRolePolicyDocument": document([trust]), "Tags": context.tag_list()}
    if statements:
        properties["Policies"] = [{"PolicyName": "least", "PolicyDocument": document(statements)}]
    return resource("AWS::IAM::Role", properties)
