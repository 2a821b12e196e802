"""Execution roles as they are: who may take them on, and what they may do."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpctools.hyperpod.document import Place
from hpctools.hyperpod.files import Files
from hpctools.hyperpod.findings import Finding
from hpctools.hyperpod.live import named
from hpctools.hyperpod.live.facts import AwsFacts, Role, Statement
from hpctools.hyperpod.rules_groups import LIFECYCLE_PREFIX

MANAGED_POLICY = "AmazonSageMakerClusterInstanceRolePolicy"
_SERVICE = re.compile(r"sagemaker\.amazonaws\.com(?:\.cn)?")
_IN_A_VPC = (
    "ec2:CreateNetworkInterface",
    "ec2:CreateNetworkInterfacePermission",
    "ec2:DeleteNetworkInterface",
    "ec2:DeleteNetworkInterfacePermission",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeVpcs",
    "ec2:DescribeDhcpOptions",
    "ec2:DescribeSubnets",
    "ec2:DescribeSecurityGroups",
    "ec2:DetachNetworkInterface",
)
"""The HyperPod developer guide, "Setting up SageMaker HyperPod with a custom Amazon VPC"."""
_ALWAYS = ("logs:CreateLogStream", "logs:PutLogEvents", "ssmmessages:CreateControlChannel")
"""Of what the managed policy allows: that without which nobody sees or reaches a node."""


def roles_are_there(files: Files, facts: AwsFacts) -> Iterator[Finding]:
    """Every role exists, in the account that asks."""
    for place in _each_once(files):
        if facts.roles is not None and place.text not in facts.roles:
            remedy = f"name a role of account {facts.account}"
            yield place.finding("role", remedy, f"{place.text!a}, which is not in account {facts.account}")


def roles_are_sagemakers(files: Files, facts: AwsFacts) -> Iterator[Finding]:
    """HyperPod takes the role on as the service sagemaker.amazonaws.com."""
    for place, role in _known(files, facts):
        if not any(_SERVICE.fullmatch(service) for service in role.services):
            trusted = ", ".join(sorted(role.services)) or "no service"
            remedy = "let sagemaker.amazonaws.com take it on (its trust policy)"
            yield place.finding("role-trust", remedy, f"a role that {trusted} may take on")


def roles_may_enough(files: Files, facts: AwsFacts) -> Iterator[Finding]:
    """A role may do what HyperPod's agent and a network of one's own need."""
    in_vpc = files.request.at("VpcConfig").exists
    for place, role in _known(files, facts):
        wanted = (() if MANAGED_POLICY in role.policies else _ALWAYS) + (_IN_A_VPC if in_vpc else ())
        missing = [action for action in wanted if not _may(role, action, None)]
        if missing:
            remedy = f"attach {MANAGED_POLICY}, and allow the actions of docs/hyperpod.md"
            some = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
            yield place.finding("role-policies", remedy, f"a role that may not {some}")


def roles_read_scripts(files: Files, facts: AwsFacts) -> Iterator[Finding]:
    """A role may read the lifecycle scripts."""
    told: set[tuple[str | None, str | None]] = set()
    for group in files.groups:
        place, source = group.at("ExecutionRole"), group.at("LifeCycleConfig", "SourceS3Uri")
        role = (facts.roles or {}).get(place.text or "")
        if role is None or source.text is None or (place.text, source.text) in told:
            continue
        told.add((place.text, source.text))
        if MANAGED_POLICY in role.policies and source.text.startswith(LIFECYCLE_PREFIX):
            continue
        bucket = source.text.removeprefix("s3://").split("/", 1)[0]
        key = source.text.removeprefix("s3://").rstrip("/") + "/on_create.sh"
        if not (
            _may(role, "s3:GetObject", f"arn:aws:s3:::{key}") and _may(role, "s3:ListBucket", f":::{bucket}")
        ):
            remedy = "allow s3:GetObject and s3:ListBucket there, or use a bucket sagemaker-..."
            yield place.finding("role-policies", remedy, f"a role that may not read {source.text}")


def _may(role: Role, action: str, resource: str | None) -> bool:
    """Whether some statement allows an action and none denies it on this resource, or on all when it is None.

    Conditions of what is allowed are not read.
    """
    fitting = [
        statement.allows
        for statement in role.statements
        if any(_matches(action.lower(), pattern.lower()) for pattern in statement.actions)
        and _concerns(statement, resource)
    ]
    return bool(fitting) and all(fitting)


def _concerns(statement: Statement, resource: str | None) -> bool:
    if resource is None:
        return statement.allows or "*" in statement.resources
    return any(_reaches(resource, pattern) for pattern in statement.resources)


def _reaches(resource: str, pattern: str) -> bool:
    return pattern == "*" or _matches(resource.rsplit(":::", 1)[-1], pattern.rsplit(":::", 1)[-1])


def _matches(text: str, pattern: str) -> bool:
    spelled = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(spelled, text) is not None


def _each_once(files: Files) -> list[Place]:
    return list({place.text: place for place in reversed(named.texts(files, "ExecutionRole"))}.values())


def _known(files: Files, facts: AwsFacts) -> list[tuple[Place, Role]]:
    roles = facts.roles or {}
    return [(place, roles[place.text]) for place in _each_once(files) if place.text and place.text in roles]


ROLE_RULES = (roles_are_there, roles_are_sagemakers, roles_may_enough, roles_read_scripts)
