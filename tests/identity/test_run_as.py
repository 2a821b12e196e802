"""The policy means what it should, judged as IAM judges: every statement whose parts all match denies."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any

import pytest

from hpctools.identity.run_as import TAG, run_as_policy, run_as_tags, run_as_users, session_document_name
from tests.identity.sites import site

NODE = "arn:aws:sagemaker:eu-west-1:123456789012:cluster/abc"
SHELL = "arn:aws:ssm:eu-west-1:123456789012:document/test-session"
Context = Mapping[str, list[str]]


def denied(action: str, resource: str, context: Context) -> list[str]:
    """The statements that deny a request."""
    statements = run_as_policy("test-session")["Statement"]
    assert {statement["Effect"] for statement in statements} == {"Deny"}
    names = ("NoTag", "TheMachine", "OtherDocuments", "WayAround", "Tags")
    named = zip(names, statements, strict=True)
    return [name for name, each in named if applies(each, action, resource, context)]


def applies(statement: Mapping[str, Any], action: str, resource: str, context: Context) -> bool:
    if not any(fnmatch.fnmatchcase(action.lower(), pattern.lower()) for pattern in statement["Action"]):
        return False
    if "Resource" in statement and not fnmatch.fnmatchcase(resource, statement["Resource"]):
        return False
    if any(fnmatch.fnmatchcase(resource, pattern) for pattern in statement.get("NotResource", ())):
        return False
    return all(holds(*each, context) for each in statement.get("Condition", {}).items())


def holds(operator: str, keys: Mapping[str, Any], context: Context) -> bool:
    """IAM User Guide, "Policy elements: Condition operators"; without a value only Null holds."""
    for key, wanted in keys.items():
        values = context.get(key)
        if operator == "Null":
            found = (values is None) == (wanted == "true")
        else:
            assert operator in ("StringEqualsIgnoreCase", "ForAnyValue:StringEqualsIgnoreCase")
            found = any(value.lower() in [word.lower() for word in wanted] for value in values or ())
        if not found:
            return False
    return True


def principal(user: str | None) -> Context:
    return {} if user is None else {f"aws:PrincipalTag/{TAG}": [user]}


@pytest.mark.parametrize("resource", [NODE, SHELL, "arn:aws:ssm:eu-west-1::document/AWS-StartSSHSession"])
def test_a_person_gets_a_session_as_themselves(resource: str) -> None:
    assert denied("ssm:StartSession", resource, principal("ada")) == []


def test_without_the_tag_there_is_no_session() -> None:
    """Session Manager would take the account's default then, which is ssm-user."""
    assert denied("ssm:StartSession", NODE, principal(None)) == ["NoTag"]


@pytest.mark.parametrize("user", ["ssm-user", "SSM-USER", "root", "ubuntu", "", "ec2-user"])
def test_nobody_is_an_account_of_the_machine(user: str) -> None:
    assert denied("ssm:StartSession", NODE, principal(user)) == ["TheMachine"]


@pytest.mark.parametrize(
    "document",
    [
        "arn:aws:ssm:eu-west-1:123456789012:document/my-own",
        "arn:aws:ssm:eu-west-1::document/AWS-StartInteractiveCommand",
        "arn:aws:ssm:eu-west-1::document/AWS-StartPortForwardingSession",
        f"{SHELL}2",
    ],
)
def test_only_the_documents_of_the_site_count(document: str) -> None:
    assert denied("ssm:StartSession", document, principal("ada")) == ["OtherDocuments"]


@pytest.mark.parametrize("action", ["ssm:SendCommand", "ssm:StartAutomationExecution"])
def test_there_is_no_other_way_to_root(action: str) -> None:
    assert denied(action, NODE, principal("ada")) == ["WayAround"]


def test_nobody_becomes_somebody_else_by_changing_tags() -> None:
    mine = {**principal("ada"), "aws:TagKeys": ["cost-centre", TAG.lower()]}
    for action in ("iam:TagRole", "iam:UntagRole", "iam:TagUser", "iam:UntagUser", "sts:TagSession"):
        assert denied(action, "arn:aws:iam::123456789012:role/x", mine) == ["Tags"]
        other = {**mine, "aws:TagKeys": ["cost-centre"]}
        assert denied(action, "arn:aws:iam::123456789012:role/x", other) == []


def test_what_has_nothing_to_do_with_sessions_is_left_alone() -> None:
    for action in ("ssm:TerminateSession", "s3:GetObject", "sagemaker:DescribeCluster"):
        assert denied(action, NODE, principal(None)) == []


def test_other_partitions() -> None:
    node = NODE.replace("arn:aws:", "arn:aws-us-gov:")
    assert denied("ssm:StartSession", node, principal("ada")) == []


def test_principals_of_the_site_have_tags() -> None:
    stated = site(run_as={"principals": {"role/night-builds": "ada", "user/bob": "bob"}})
    assert session_document_name(stated) == "test-session"
    assert run_as_users(stated) == {"role/night-builds": "ada", "user/bob": "bob"}
    assert run_as_tags("ada") == [{"Key": "SSMSessionRunAs", "Value": "ada"}]
