"""Session Manager: whose a session is, its lease, its end; the Lambda function by AWS's service models."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from moto import mock_aws

from hpctools.cli import session_manager_lambda
from hpctools.errors import BudgetError, UnreachableError, UsageError
from hpctools.hyperpod.operations.aws import Service
from hpctools.login.session_manager.enforcement import Enforcement, Started, active_sessions, started_by
from hpctools.login.session_manager.owners import Principal, parse_owner, unix_account
from hpctools.login.session_manager.targets import node_of
from tests.login.agent.made_agent import FakeService

ROLE = "arn:aws:sts::123456789012:assumed-role/researcher/anna"
SSO = "arn:aws:sts::123456789012:assumed-role/AWSReservedSSO_people_0123456789abcdef/Anna@uni.example"
USER = "arn:aws:iam::123456789012:user/people/anna"
TARGET = "sagemaker-cluster:abcdef123456_login-i-0aaa111"
SESSION = Started("uni-0a1b2c3d", TARGET, ROLE, "192.0.2.7")
GRANTED = {"granted": True, "message": "", "sessions": []}
REFUSED = {"granted": False, "message": "nlp1: you have 4 sessions", "sessions": []}


def test_who_asked() -> None:
    assert parse_owner(ROLE) == Principal("role", "researcher", "anna")
    assert parse_owner(USER) == Principal("user", "anna")
    for text in ("", "anna", "arn:aws:iam::123456789012:root", ROLE + "\n"):
        assert parse_owner(text) is None


@pytest.mark.parametrize(
    ("arn", "tags", "account"),
    [
        (ROLE, {"role/researcher": "nlp1"}, "nlp1"),
        (USER, {"user/anna": "nlp2"}, "nlp2"),
        (ROLE, {}, ""),
        (ROLE, {"role/researcher": "root; rm"}, ""),
        (SSO, {"role/AWSReservedSSO_people_0123456789abcdef": "shared"}, "anna"),
        ("arn:aws:iam::123456789012:root", {}, ""),
    ],
)
def test_the_account_is_that_of_run_as(arn: str, tags: Mapping[str, str], account: str) -> None:
    """With single sign-on the role is everybody's: its tag would make them one person."""
    assert unix_account(arn, {}, lambda principal: tags.get(principal.key, "")) == account
    assert unix_account(arn, tags, lambda principal: "") == account


def test_which_node_a_target_is() -> None:
    nodes = {"i-0aaa111": "login-1"}
    assert node_of(TARGET, nodes) == "login-1"
    assert node_of("sagemaker-cluster:abcdef123456_login-group-2-i-0aaa111", nodes) == "login-1"
    assert node_of("i-0aaa111", nodes) == "login-1"
    assert node_of("i-0bbb222", nodes) == ""
    assert node_of(TARGET, {}) == "i-0aaa111"


def event(**detail: Any) -> dict[str, Any]:
    """A StartSession event as EventBridge delivers it."""
    stated = {
        "eventName": "StartSession",
        "sourceIPAddress": "192.0.2.7",
        "userIdentity": {"type": "AssumedRole", "arn": ROLE},
        "requestParameters": {"target": TARGET},
        "responseElements": {"sessionId": "uni-0a1b2c3d", "tokenValue": "hidden"},
    }
    return {"detail-type": "AWS API Call via CloudTrail", "source": "aws.ssm", "detail": {**stated, **detail}}


def test_events() -> None:
    assert started_by(event()) == SESSION
    assert started_by(event(responseElements=None, errorCode="AccessDenied")) is None
    assert started_by(event(eventName="ResumeSession")) is None
    assert started_by({}) is None


@pytest.fixture
def ssm() -> Iterator[tuple[Service, Stubber]]:
    """ssm by its own model: each call must be one that AWS knows, and its answer one that AWS gives."""
    client: Any = boto3.client(
        "ssm", region_name="eu-central-1", aws_access_key_id="test", aws_secret_access_key="test"
    )
    with Stubber(client) as stub:
        yield Service(client, "ssm", "eu-central-1"), stub
        stub.assert_no_pending_responses()


def enforcement(ssm: Service, service: FakeService, **words: Any) -> Enforcement:
    people = {ROLE: "nlp1", USER: "nlp2"}
    return Enforcement(ssm, service, lambda arn: people.get(arn, ""), lambda t: node_of(t, {}), **words)


def test_a_session_with_a_lease_stays(ssm: tuple[Service, Stubber]) -> None:
    service = FakeService(GRANTED)
    assert enforcement(ssm[0], service).admit(SESSION) == "granted"
    body = {
        "node": "i-0aaa111",
        "claim": "uni-0a1b2c3d",
        "user": "nlp1",
        "kind": "ssm",
        "origin": "192.0.2.7",
    }
    assert service.asked == [("POST", "/v1/login/leases", body)]


def test_one_too_many_is_ended(ssm: tuple[Service, Stubber]) -> None:
    ssm[1].add_response("terminate_session", {"SessionId": "uni-0a1b2c3d"}, {"SessionId": "uni-0a1b2c3d"})
    assert enforcement(ssm[0], FakeService(REFUSED)).admit(SESSION) == "ended"


def test_without_the_service_the_site_decides(ssm: tuple[Service, Stubber]) -> None:
    away = FakeService(UnreachableError("gone"))
    assert enforcement(ssm[0], away).admit(SESSION) == "open without the service"
    assert enforcement(ssm[0], FakeService(BudgetError("token"))).admit(SESSION) == "open without the service"
    ssm[1].add_response("terminate_session", {"SessionId": "uni-0a1b2c3d"}, {"SessionId": "uni-0a1b2c3d"})
    assert enforcement(ssm[0], away, when_unreachable="refuse").admit(SESSION) == "ended"


def test_whose_nobody_knows_is_not_counted(ssm: tuple[Service, Stubber]) -> None:
    service = FakeService(GRANTED)
    stranger = Started("x-1", TARGET, "arn:aws:iam::123456789012:root")
    assert enforcement(ssm[0], service).admit(stranger) == "nobody knows whose"
    assert service.asked == []


def test_the_sweep_asks_for_all_of_all_pages_the_oldest_first(ssm: tuple[Service, Stubber]) -> None:
    """Two pages: of three sessions the newest gets no lease."""

    def page(*sessions: tuple[str, str, int], following: str = "") -> dict[str, Any]:
        told = [
            {"SessionId": each, "Target": TARGET, "Owner": owner, "StartDate": 1_790_000_000 + start}
            for each, owner, start in sessions
        ]
        return {"Sessions": told, **({"NextToken": following} if following else {})}

    first, second = page(("new", ROLE, 300), ("old", ROLE, 100), following="t"), page(("middle", USER, 200))
    ssm[1].add_response("describe_sessions", first, {"State": "Active"})
    ssm[1].add_response("describe_sessions", second, {"State": "Active", "NextToken": "t"})
    ssm[1].add_response("terminate_session", {"SessionId": "new"}, {"SessionId": "new"})
    service = FakeService(GRANTED, GRANTED, REFUSED)
    found = enforcement(ssm[0], service).sweep()
    assert found == {"old": "granted", "middle": "granted", "new": "ended"}


def test_no_sessions_are_no_trouble(ssm: tuple[Service, Stubber]) -> None:
    ssm[1].add_response("describe_sessions", {"Sessions": []}, {"State": "Active"})
    assert active_sessions(ssm[0]) == ()


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An AWS account of moto's: a role with its tag, the token in Secrets Manager."""
    for name, value in {
        "AWS_REGION": "eu-central-1", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
        "HPCTOOLS_API": "https://api.invalid",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    with mock_aws():
        iam: Any = boto3.client("iam")
        tags = [{"Key": "SSMSessionRunAs", "Value": "nlp1"}]
        iam.create_role(RoleName="researcher", AssumeRolePolicyDocument="{}", Tags=tags)
        secrets: Any = boto3.client("secretsmanager", region_name="eu-central-1")
        made = secrets.create_secret(Name="token", SecretString="hpct_secret\n")
        monkeypatch.setenv("HPCTOOLS_API_TOKEN_SECRET", made["ARN"])
        yield


@pytest.mark.usefixtures("account")
def test_the_function_knows_people_by_their_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setenv("HPCTOOLS_LOGIN_NODES", json.dumps({"i-0aaa111": "login-1"}))
    made = session_manager_lambda.make_enforcement(os.environ)
    assert (made.user_of(ROLE), made.user_of(USER), made.node_of(TARGET)) == ("nlp1", "", "login-1")
    assert getattr(made.service, "token") == "hpct_secret"  # noqa: B009
    assert getattr(made.service, "seconds") == 10.0  # noqa: B009
    service = FakeService(GRANTED)
    monkeypatch.setattr(session_manager_lambda, "find_service", lambda environment: made.service)
    monkeypatch.setattr(session_manager_lambda, "replace", lambda *_, **__: service)
    assert session_manager_lambda.handler(event()) == {"sessions": {"uni-0a1b2c3d": "granted"}}
    assert session_manager_lambda.handler({"detail": {"eventName": "ResumeSession"}}) == {"sessions": {}}


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize(
    ("name", "value"),
    [("HPCTOOLS_LOGIN_NODES", "[]"), ("HPCTOOLS_RUN_AS", "{"), ("HPCTOOLS_WHEN_UNREACHABLE", "maybe")],
)
def test_a_variable_that_cannot_be_used_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    import os

    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=name):
        session_manager_lambda.make_enforcement(os.environ)
