"""Least privilege: who may do what, to which things, and nothing beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pytest

from hpctools.hyperpod.stack import copies, infrastructure
from hpctools.identity.run_as import run_as_policy, run_as_statements
from hpctools.site.lifecycle import LoginBalance
from tests.hyperpod.stack.sites import example, largest, smallest

# Actions for which AWS has no resource to name (Service Authorization Reference, "Resource types": empty).
WITHOUT_RESOURCES = {
    "cloudwatch:PutMetricData",  # held to a namespace by a condition
    "ec2:DescribeDhcpOptions",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcs",
    "ecr:GetAuthorizationToken",
    "elasticloadbalancing:DescribeTargetHealth",
    "sagemaker:ListClusters",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
}
SITES = {
    "university": lambda: example("university"),
    "closed-network": lambda: example("closed-network"),
    "smallest": smallest,
    "largest": largest,
}


@lru_cache
def made(name: str) -> dict[str, Any]:
    return infrastructure(SITES[name]())


def statements(value: Any, place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every statement of every policy, wherever it stands."""
    if isinstance(value, dict):
        if "Effect" in value:
            yield place, value
        for key, each in value.items():
            yield from statements(each, f"{place}/{key}")
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from statements(each, f"{place}/{index}")


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def text_of(resource: Any) -> str:
    return resource if isinstance(resource, str) else str(resource.get("Fn::Sub", resource))


@pytest.mark.parametrize("name", SITES)
def test_nothing_is_allowed_on_everything_that_could_be_named(name: str) -> None:
    wide = [
        (place, action)
        for place, each in statements(made(name)["Resources"])
        if each["Effect"] == "Allow" and "*" in as_list(each.get("Resource", []))
        for action in as_list(each["Action"])
        if action not in WITHOUT_RESOURCES
    ]
    assert wide == []


@pytest.mark.parametrize("name", SITES)
def test_no_statement_allows_a_pattern_of_actions(name: str) -> None:
    allowed = [each for _, each in statements(made(name)["Resources"]) if each["Effect"] == "Allow"]
    assert len(allowed) > 20
    actions = {action for each in allowed for action in as_list(each["Action"])}
    assert [action for action in actions if "*" in action] == []
    assert all("NotAction" not in each and "NotResource" not in each for each in allowed)


@pytest.mark.parametrize("name", SITES)
def test_objects_are_allowed_in_our_own_buckets_only(name: str) -> None:
    for place, each in statements(made(name)["Resources"]):
        if each["Effect"] == "Allow" and any(action.startswith("s3:") for action in as_list(each["Action"])):
            for resource in map(text_of, as_list(each["Resource"])):
                bucket = resource.rpartition(":::")[2].partition("/")[0]
                assert bucket, place
                assert "*" not in bucket, f"{place} {resource}"


@pytest.mark.parametrize("name", SITES)
def test_roles_are_for_services_that_are_named(name: str) -> None:
    for logical, each in made(name)["Resources"].items():
        if each["Type"] == "AWS::IAM::Role":
            trust = each["Properties"]["AssumeRolePolicyDocument"]["Statement"]
            assert [sorted(one["Principal"]) for one in trust] == [["Service"]], logical
            services = [service for one in trust for service in one["Principal"]["Service"]]
            assert all(service.endswith(".amazonaws.com") for service in services)
            attached = each["Properties"].get("ManagedPolicyArns", [])
            assert attached in ([], [{"Ref": "NodePolicy"}]), "AWS's own policies are wider than this cluster"


def granted(name: str, role: str) -> list[dict[str, Any]]:
    """Every statement of a role, its attached policy's among them."""
    properties = made(name)["Resources"][role]["Properties"]
    policies = [properties.get("Policies", [])]
    policies += [made(name)["Resources"][each["Ref"]] for each in properties.get("ManagedPolicyArns", [])]
    return [each for _, each in statements(policies)]


def actions_of(name: str, role: str) -> set[str]:
    return {action for each in granted(name, role) for action in as_list(each["Action"])}


def test_a_compute_node_can_read_no_password_and_move_no_login_node() -> None:
    """Anybody with a job can act as the node's role."""
    compute = actions_of("university", "ComputeRole")
    assert not {
        action
        for action in compute
        if action.startswith(("secretsmanager:", "elasticloadbalancing:", "sns:"))
    }
    assert "s3:PutObject" in compute
    login = actions_of("university", "LoginRole")
    assert login - compute == {
        "elasticloadbalancing:RegisterTargets",
        "elasticloadbalancing:DeregisterTargets",
        "elasticloadbalancing:DescribeTargetHealth",
    }
    assert "secretsmanager:GetSecretValue" in actions_of("university", "ControllerRole")
    assert "s3:PutObject" not in actions_of("university", "ControllerRole")


@pytest.mark.parametrize("role", ["LoginRole", "LoginInstanceRole"])
def test_a_login_node_may_register_where_the_site_says(role: str) -> None:
    """A step of theirs does it; AWS refused it with each target group but the stack's."""
    target = "arn:aws:elasticloadbalancing:eu-central-1:123456789012:targetgroup/uni/0123456789abcdef"
    site = largest()
    lifecycle = site.lifecycle.model_copy(update={"login_balance": LoginBalance(target_group=target)})
    template = infrastructure(site.model_copy(update={"lifecycle": lifecycle}))
    (policy,) = template["Resources"][role]["Properties"]["Policies"]
    granted = [
        each["Resource"]
        for _, each in statements([policy])
        if "elasticloadbalancing:RegisterTargets" in as_list(each["Action"])
    ]
    assert granted == [[target]]


def test_nodes_cannot_change_their_own_scripts() -> None:
    """Who could would be root on the next node."""
    for role in ("ControllerRole", "LoginRole", "ComputeRole"):
        assert any(
            "sagemaker-" in text_of(one) for each in granted("university", role) for one in each["Resource"]
        )
        for each in granted("university", role):
            touched = [text_of(one) for one in as_list(each["Resource"]) if "sagemaker-" in text_of(one)]
            if touched:
                assert set(as_list(each["Action"])) <= {"s3:GetObject", "s3:ListBucket"}


def test_the_directorys_password_is_read_by_nodes_that_ask_the_directory() -> None:
    site = example("university")
    raw = site.model_dump(mode="python", exclude_unset=True)
    arn = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:reader-AbCdEf"
    raw["identity"]["bind"]["secret"] = {"aws_secret": arn}
    found = infrastructure(type(site).model_validate(raw))["Resources"]["NodePolicy"]
    allowed = [each for _, each in statements(found) if arn in as_list(each.get("Resource", []))]
    assert [each["Action"] for each in allowed] == [["secretsmanager:GetSecretValue"]]


def test_the_token_of_login_nodes_is_read_by_login_nodes_alone() -> None:
    """Those of HyperPod and those of the auto-scaling group; a job could otherwise speak as a login node."""
    site = example("closed-network")
    assert site.login.agent is not None
    arn = site.login.agent.token.aws_secret
    found = {
        place.split("/")[1]: each["Action"]
        for place, each in statements(made("closed-network")["Resources"])
        if arn in as_list(each.get("Resource", []))
    }
    read = ["secretsmanager:GetSecretValue"]
    assert found == {"LoginRole": read, "LoginInstanceRole": read}


def test_nobody_is_ssm_user() -> None:
    policy = made("university")["Resources"]["NobodyAsSsmUser"]["Properties"]["PolicyDocument"]["Statement"]
    assert (
        policy == run_as_policy("uni-gpu-session")["Statement"]
    )  # its meaning: tests/identity/test_run_as.py
    for name in ("AdministratorsPermissionSet", "UsersPermissionSet"):
        inline = made("university")["Resources"][name]["Properties"]["InlinePolicy"]["Statement"]
        assert [each for each in inline if each["Effect"] == "Deny"] == run_as_statements()


def test_people_start_the_documents_that_keep_them_themselves_and_no_other() -> None:
    """The account's default document would let them in as ssm-user; a shell would go past PAM on a node."""

    def documents(name: str) -> set[str]:
        inline = made("university")["Resources"][name]["Properties"]["InlinePolicy"]["Statement"]
        started = [one for one in inline if one["Effect"] == "Allow" and "ssm:StartSession" in one["Action"]]
        assert [one["Condition"] for one in started] == [
            {"BoolIfExists": {"ssm:SessionDocumentAccessCheck": "true"}}
        ]
        return {
            text_of(each).rpartition("document/")[2]
            for each in started[0]["Resource"]
            if "document/" in text_of(each)
        }

    assert documents("UsersPermissionSet") == {"AWS-StartSSHSession"}
    assert documents("AdministratorsPermissionSet") == {"AWS-StartSSHSession", "uni-gpu-session"}
    content = made("university")["Resources"]["SessionDocument"]["Properties"]["Content"]["inputs"]
    assert (content["runAsEnabled"], content["runAsDefaultUser"]) == (True, "")


def test_the_attribute_of_the_person_becomes_the_run_as_tag() -> None:
    found = made("university")["Resources"]["RunAsAttribute"]["Properties"]["AccessControlAttributes"]
    assert found == [{"Key": "SSMSessionRunAs", "Value": {"Source": ["${path:userName}"]}}]
    assert "RunAsAttribute" not in made("closed-network")["Resources"]  # the organisation does it


def test_copies_are_written_by_the_replication_role_only() -> None:
    found = copies(example("university"))
    assert found is not None
    assert {each["Effect"] for _, each in statements(found)} == {"Deny"}
    role = actions_of("university", "ReplicationRole")
    assert {"s3:ReplicateObject", "s3:GetObjectVersionForReplication"} <= role
    assert not role & {"s3:PutObject", "s3:DeleteObject"}
    with_key = actions_of("closed-network", "ReplicationRole")
    assert with_key - role == {"kms:Decrypt", "kms:Encrypt"}


@pytest.mark.parametrize("name", SITES)
def test_policies_are_as_short_as_iam_wants_them(name: str) -> None:
    """Source: IAM quotas: 6,144 characters for a managed policy, 10,240 for those inside a role."""
    for logical, each in made(name)["Resources"].items():
        if each["Type"] == "AWS::IAM::ManagedPolicy":
            assert len(json.dumps(each["Properties"]["PolicyDocument"])) < 6_144, logical
        if each["Type"] == "AWS::IAM::Role":
            assert len(json.dumps(each["Properties"].get("Policies", []))) < 10_240, logical
