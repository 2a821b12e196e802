"""Session Manager: whose a session is, its lease, its end; the Lambda function by AWS's service models."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from moto import mock_aws

from hpctools.cli import session_manager_lambda
from hpctools.errors import BudgetError, HpctoolsError, UnreachableError, UsageError
from hpctools.hyperpod.operations.aws import RefusedError, Service, TooManyRequestsError
from hpctools.login.session_manager.documents import only_forwards
from hpctools.login.session_manager.enforcement import Enforcement
from hpctools.login.session_manager.owners import Principal, parse_owner, unix_account
from hpctools.login.session_manager.started import Started, active_sessions, started_by
from hpctools.login.session_manager.targets import node_of
from tests.login.agent.made_agent import FakeService

ROLE = "arn:aws:sts::123456789012:assumed-role/researcher/anna"
SSO = "arn:aws:sts::123456789012:assumed-role/AWSReservedSSO_people_0123456789abcdef/Anna@uni.example"
USER = "arn:aws:iam::123456789012:user/people/anna"
TARGET = "sagemaker-cluster:abcdef123456_login-i-0aaa111"
NODES = {"i-0aaa111": "login-1"}
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
    assert node_of(TARGET, NODES) == "login-1"
    assert node_of("sagemaker-cluster:abcdef123456_login-group-2-i-0aaa111", NODES) == "login-1"
    assert node_of("i-0aaa111", NODES) == "login-1"
    assert node_of("i-0bbb222", NODES) == ""
    assert node_of(TARGET, {}) == ""


@pytest.mark.parametrize(
    ("document", "forwards"),
    [
        ("", False),
        ("SSM-SessionManagerRunShell", False),
        ("AWS-StartInteractiveCommand", False),
        ("uni-gpu-session", False),
        ("AWS-StartSSHSession", True),
        ("AWS-StartPortForwardingSession", True),
        ("AWS-StartPortForwardingSessionToRemoteHost", True),
        ("arn:aws:ssm:eu-central-1::document/AWS-StartSSHSession", True),
        ("arn:aws:ssm:eu-central-1:123456789012:document/uni-tunnel", True),
    ],
)
def test_documents_that_only_forward_a_port(document: str, forwards: bool) -> None:
    assert only_forwards(document, {"uni-tunnel"}) is forwards


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
    asked = {"target": TARGET, "documentName": "AWS-StartSSHSession", "parameters": {"portNumber": ["22"]}}
    assert started_by(event(requestParameters=asked)) == replace(SESSION, document="AWS-StartSSHSession")
    assert started_by(event(responseElements=None, errorCode="AccessDenied")) is None
    assert started_by(event(eventTime="1970-01-02T00:00:05Z")) == replace(SESSION, since=86_405.0)
    assert started_by(event(eventTime="soon")) == SESSION
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
    words = {"wait": lambda seconds: None, "clock": lambda: NOW, **words}
    return Enforcement(ssm, service, lambda arn: people.get(arn, ""), lambda t: node_of(t, NODES), **words)


NOW = 1_790_001_000.0


def at(age: float) -> datetime:
    """When somebody's session began, as boto3 says it."""
    return datetime.fromtimestamp(NOW - age, UTC)


def page(*sessions: tuple[str, str, int], following: str = "", document: str = "") -> dict[str, Any]:
    """A page of DescribeSessions: sessions by id, owner and their age in seconds."""
    more = {"DocumentName": document} if document else {}
    told = [
        {"SessionId": each, "Target": TARGET, "Owner": owner, "StartDate": at(age), **more}
        for each, owner, age in sessions
    ]
    return {"Sessions": told, **({"NextToken": following} if following else {})}


def listed(stub: Stubber, *pages: dict[str, Any]) -> None:
    token: dict[str, str] = {}
    for each in pages:
        stub.add_response("describe_sessions", each, {"State": "Active", **token})
        token = {"NextToken": each.get("NextToken", "")}


def ending(stub: Stubber, session: str) -> None:
    stub.add_response("terminate_session", {"SessionId": session}, {"SessionId": session})


def test_a_session_with_a_lease_stays(ssm: tuple[Service, Stubber]) -> None:
    service = FakeService(GRANTED)
    assert enforcement(ssm[0], service).admit(SESSION) == "granted"
    body = {
        "node": "login-1",
        "claim": "uni-0a1b2c3d",
        "user": "nlp1",
        "kind": "ssm",
        "origin": "192.0.2.7",
    }
    assert service.asked == [("POST", "/v1/login/leases", body)]


def test_one_too_many_is_ended_when_its_node_has_told_why(
    ssm: tuple[Service, Stubber], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "hpctools.login")
    ending(ssm[1], "uni-0a1b2c3d")
    waited: list[float] = []
    service = FakeService(REFUSED)
    assert enforcement(ssm[0], service, notice=7.0, wait=waited.append).admit(SESSION) == "ended"
    assert ([method for method, _, _ in service.asked], waited) == (["POST", "POST", "DELETE"], [7.0])
    assert caplog.messages[-1] == f"uni-0a1b2c3d of {ROLE} on login-1 is ended: nlp1: you have 4 sessions"


def test_whom_their_node_knows_as_an_administrator_meanwhile_stays(ssm: tuple[Service, Stubber]) -> None:
    assert enforcement(ssm[0], FakeService(REFUSED, GRANTED)).admit(SESSION) == "granted"


@pytest.mark.parametrize("answer", [REFUSED, UnreachableError("gone"), BudgetError("token")])
def test_named_administrators_are_never_ended(ssm: tuple[Service, Stubber], answer: Any) -> None:
    service = FakeService(answer)
    words: dict[str, Any] = {"when_unreachable": "refuse", "administrators": frozenset({"nlp1"})}
    outcome = "an administrator's" if answer is REFUSED else "open without the service"
    assert enforcement(ssm[0], service, **words).admit(SESSION) == outcome


@pytest.mark.parametrize("error", [UnreachableError("gone"), BudgetError("it refuses the token")])
def test_without_the_service_the_site_decides(
    ssm: tuple[Service, Stubber], error: HpctoolsError, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether it does not answer or does not take the token."""
    caplog.set_level("INFO", "hpctools.login")
    assert enforcement(ssm[0], FakeService(error)).admit(SESSION) == "open without the service"
    ending(ssm[1], "uni-0a1b2c3d")
    assert enforcement(ssm[0], FakeService(error), when_unreachable="refuse").admit(SESSION) == "ended"
    assert caplog.messages[-1].endswith(f"is ended: the service cannot be asked: {error}")


def test_who_was_there_before_stays_when_the_service_falls_silent(ssm: tuple[Service, Stubber]) -> None:
    """It is asked once in a sweep: ten seconds for each session would be all of the function's minute."""
    listed(ssm[1], page(("old", ROLE, 301), ("new", ROLE, 299), ("newest", USER, 5)))
    ending(ssm[1], "new")
    ending(ssm[1], "newest")
    service = FakeService(UnreachableError("gone"))
    with pytest.raises(HpctoolsError, match="looked at or ended: gone; the next sweep"):
        enforcement(ssm[0], service, when_unreachable="refuse").sweep()
    assert len(service.asked) == 1


def test_an_event_that_comes_late_ends_nobody_who_was_there_before(ssm: tuple[Service, Stubber]) -> None:
    """Lambda tries again for six hours: the session had a lease when the service fell silent."""
    rules = enforcement(ssm[0], FakeService(UnreachableError("gone")), when_unreachable="refuse")
    for age, outcome in ((3600, "open without the service"), (20, "ended")):
        begun = started_by(event(eventTime=at(age).strftime("%Y-%m-%dT%H:%M:%SZ")))
        assert begun is not None
        if outcome == "ended":
            ending(ssm[1], begun.id)
        assert rules.admit(begun) == outcome


def test_what_only_forwards_is_neither_counted_nor_ended(ssm: tuple[Service, Stubber]) -> None:
    """ssh through it is sshd's session: counted here, it would be there twice, and ended by each sweep."""
    service = FakeService(REFUSED)
    made = enforcement(ssm[0], service, forwarding=frozenset({"uni-tunnel"}))
    for document in ("AWS-StartSSHSession", "uni-tunnel"):
        asked = {"target": TARGET, "documentName": document}
        started = started_by(event(requestParameters=asked))
        assert started is not None
        assert made.admit(started) == "only forwards"
        listed(ssm[1], page(("one", ROLE, 60), ("two", ROLE, 50), document=document))
        assert made.sweep() == {"one": "only forwards", "two": "only forwards"}
    assert service.asked == []


def test_compute_nodes_are_left_alone_and_so_are_all_where_no_login_node_is_named(
    ssm: tuple[Service, Stubber],
) -> None:
    service = FakeService(REFUSED)
    made = enforcement(ssm[0], service)
    assert made.admit(replace(SESSION, target="i-0bbb222")) == "no login node"
    assert replace(made, node_of=lambda target: node_of(target, {})).admit(SESSION) == "no login node"
    assert service.asked == []


def test_whose_nobody_knows_is_not_counted(ssm: tuple[Service, Stubber]) -> None:
    service = FakeService(GRANTED)
    stranger = Started("x-1", TARGET, "arn:aws:iam::123456789012:root")
    assert enforcement(ssm[0], service).admit(stranger) == "nobody knows whose"
    assert service.asked == []


def test_the_sweep_asks_for_all_of_all_pages_the_oldest_first(ssm: tuple[Service, Stubber]) -> None:
    """Two pages: of three sessions the newest gets no lease."""
    listed(ssm[1], page(("new", ROLE, 10), ("old", ROLE, 400), following="t"), page(("middle", USER, 200)))
    ending(ssm[1], "new")
    service = FakeService(GRANTED, GRANTED, REFUSED)
    found = enforcement(ssm[0], service).sweep()
    assert found == {"old": "granted", "middle": "granted", "new": "ended"}


def test_what_fails_keeps_no_other_session_from_its_turn(ssm: tuple[Service, Stubber]) -> None:
    """AWS does not end the first, and says nothing of the second's owner; the third is ended all the same."""

    def user_of(arn: str) -> str:
        if arn == USER:
            raise UnreachableError("iam does not answer")
        return "nlp1"

    listed(ssm[1], page(("one", ROLE, 40), ("two", USER, 30), ("three", ROLE, 20)))
    ssm[1].add_client_error("terminate_session", "AccessDeniedException", "not yours")
    ending(ssm[1], "three")
    made = replace(enforcement(ssm[0], FakeService(REFUSED)), user_of=user_of)
    with pytest.raises(HpctoolsError, match=r"two: iam does not answer; one: .*not yours") as raised:
        made.sweep()
    assert "three" not in str(raised.value)


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
    monkeypatch.setattr(session_manager_lambda, "_known_tags", {})
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
    monkeypatch.setenv("HPCTOOLS_LOGIN_NODES", json.dumps(NODES))
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
def test_the_function_knows_the_sites_words(monkeypatch: pytest.MonkeyPatch) -> None:
    words = {
        "LOGIN_NODES": json.dumps(NODES), "ADMINISTRATORS": '["ops"]',
        "FORWARDING_DOCUMENTS": '["uni-tunnel"]', "NOTICE_SECONDS": "3",
    }  # fmt: skip
    for name, value in words.items():
        monkeypatch.setenv(f"HPCTOOLS_{name}", value)
    made = session_manager_lambda.make_enforcement(os.environ)
    assert (made.administrators, made.forwarding, made.notice) == ({"root", "ops"}, {"uni-tunnel"}, 3.0)


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize("choice", ["open", "refuse"])
def test_a_token_that_cannot_be_read_is_as_a_service_that_is_away(
    monkeypatch: pytest.MonkeyPatch, ssm: tuple[Service, Stubber], choice: str
) -> None:
    monkeypatch.setenv("HPCTOOLS_LOGIN_NODES", json.dumps(NODES))
    monkeypatch.setenv("HPCTOOLS_WHEN_UNREACHABLE", choice)
    monkeypatch.setenv(
        "HPCTOOLS_API_TOKEN_SECRET", "arn:aws:secretsmanager:eu-central-1:123456789012:secret:no"
    )
    made = replace(session_manager_lambda.make_enforcement(os.environ), ssm=ssm[0])
    if choice == "refuse":
        ending(ssm[1], "uni-0a1b2c3d")
    assert made.admit(SESSION) == ("ended" if choice == "refuse" else "open without the service")
    listed(ssm[1], page(("old", ROLE, 4000)))
    with pytest.raises(HpctoolsError, match=r"secretsmanager get_secret_value in eu-central-1"):
        replace(made, clock=lambda: NOW).sweep()


@pytest.mark.usefixtures("account")
def test_iam_that_does_not_answer_is_not_waited_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is named in the environment, and who comes by single sign-on, is known without it."""
    asked: list[str] = []

    def ask(self: Service, operation: str, **arguments: Any) -> dict[str, Any]:
        if self.name != "iam":
            return {"SecretString": "hpct_secret"}
        asked.append(operation)
        raise UnreachableError("iam does not answer")

    monkeypatch.setenv("HPCTOOLS_LOGIN_NODES", json.dumps(NODES))
    monkeypatch.setenv("HPCTOOLS_RUN_AS", '{"role/stated": "cv1"}')
    monkeypatch.setattr(Service, "ask", ask)
    made = session_manager_lambda.make_enforcement(os.environ)
    for arn in (ROLE, USER, ROLE):
        with pytest.raises(UnreachableError):
            made.user_of(arn)
    assert (made.user_of(SSO), made.user_of(ROLE.replace("researcher", "stated"))) == ("anna", "cv1")
    assert asked == ["list_role_tags"]


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize(("code", "known"), [("NoSuchEntity", True), ("AccessDenied", False)])
def test_a_right_that_the_function_lacks_is_no_stranger(
    monkeypatch: pytest.MonkeyPatch, code: str, known: bool
) -> None:
    """Else nobody would be counted, and the log would say that nobody knows them."""

    def ask(self: Service, operation: str, **arguments: Any) -> dict[str, Any]:
        if self.name == "iam":
            raise RefusedError(f"iam {operation} is refused ({code})", code)
        return {"SecretString": "hpct_secret"}

    monkeypatch.setenv("HPCTOOLS_LOGIN_NODES", json.dumps(NODES))
    monkeypatch.setattr(Service, "ask", ask)
    made = session_manager_lambda.make_enforcement(os.environ)
    if known:
        assert made.user_of(ROLE) == ""
        return
    with pytest.raises(HpctoolsError, match=r"iam list_role_tags is refused"):
        made.admit(SESSION)


@pytest.mark.usefixtures("account")
def test_where_iam_limits_rates_others_are_asked_for_and_the_next_sweep_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tags stay known in a warm function, for some minutes."""
    asked: list[str] = []

    def ask(self: Service, operation: str, **arguments: Any) -> dict[str, Any]:
        if self.name != "iam":
            return {"SecretString": "hpct_secret"}
        asked.append(arguments.get("RoleName", "anna"))
        if asked == ["researcher"]:
            raise TooManyRequestsError("iam limits the rate of requests")
        return {"Tags": [{"Key": "SSMSessionRunAs", "Value": "nlp1"}]}

    monkeypatch.setenv("HPCTOOLS_LOGIN_NODES", json.dumps(NODES))
    monkeypatch.setattr(Service, "ask", ask)
    made = session_manager_lambda.make_enforcement(os.environ)
    with pytest.raises(TooManyRequestsError):
        made.user_of(ROLE)
    assert made.user_of(USER) == "nlp1"
    later = session_manager_lambda.make_enforcement(os.environ)
    assert [later.user_of(arn) for arn in (ROLE, USER, ROLE)] == ["nlp1"] * 3
    assert asked == ["researcher", "anna", "researcher"]
    now = time.monotonic()
    monkeypatch.setattr(session_manager_lambda.time, "monotonic", lambda: now + 700)
    assert later.user_of(USER) == "nlp1"
    assert asked[3:] == ["anna"]


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HPCTOOLS_LOGIN_NODES", "[]"),
        ("HPCTOOLS_LOGIN_NODES", "{}"),
        ("HPCTOOLS_LOGIN_NODES", ""),
        ("HPCTOOLS_RUN_AS", "{"),
        ("HPCTOOLS_WHEN_UNREACHABLE", "maybe"),
        ("HPCTOOLS_ADMINISTRATORS", "ops"),
        ("HPCTOOLS_FORWARDING_DOCUMENTS", "{}"),
        ("HPCTOOLS_NOTICE_SECONDS", "60"),
        ("HPCTOOLS_NOTICE_SECONDS", "soon"),
    ],
)
def test_a_variable_that_cannot_be_used_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv("HPCTOOLS_LOGIN_NODES", json.dumps(NODES))
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=name):
        session_manager_lambda.make_enforcement(os.environ)
