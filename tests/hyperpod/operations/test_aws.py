"""What AWS refuses, and how it is told: one line with what to do next, and the right exit code."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from botocore import exceptions
from botocore.parsers import ResponseParserError

from hpctools.errors import HpctoolsError, UnreachableError
from hpctools.hyperpod.operations.aws import Aws, Patience, RefusedError, connect, translate
from tests.hyperpod.aws_rig import Server


def refusal(code: str, message: str = "no") -> exceptions.ClientError:
    return exceptions.ClientError({"Error": {"Code": code, "Message": message}}, "Anything")


@pytest.mark.parametrize(
    ("error", "said", "remedy"),
    [
        (refusal("ExpiredToken"), "have expired", "aws sso login"),
        (refusal("RequestExpired"), "have expired", "aws sso login"),
        (refusal("ExpiredTokenException"), "have expired", "aws sso login"),
        (refusal("InvalidClientTokenId"), "does not know these credentials", "AWS_PROFILE"),
        (refusal("UnrecognizedClientException"), "does not know these credentials", "AWS_PROFILE"),
        (refusal("Throttling"), "limits the rate", "goes on where it was"),
        (refusal("RequestLimitExceeded"), "limits the rate", "goes on where it was"),
        (refusal("SlowDown"), "limits the rate", "goes on where it was"),
        (refusal("ServiceUnavailable"), "trouble of its own", "health.aws.amazon.com"),
        (refusal("503"), "trouble of its own", "health.aws.amazon.com"),
        (exceptions.NoCredentialsError(), "no AWS credentials", "AWS_PROFILE"),
        (exceptions.NoRegionError(), "no AWS region", "aws.region in the site file"),
        (exceptions.ProfileNotFound(profile="x"), "profile", "list-profiles"),
        (exceptions.EndpointConnectionError(endpoint_url="https://x"), "does not answer", "region is right"),
        (exceptions.ReadTimeoutError(endpoint_url="https://x"), "does not answer", "HTTPS_PROXY"),
        (exceptions.TokenRetrievalError(provider="sso", error_msg="x"), "sign-on has ended", "aws sso login"),
        (ResponseParserError("<html>"), "is not AWS", "proxy"),
    ],
)
def test_what_cannot_be_reached_exits_3_and_says_what_to_do(error: Any, said: str, remedy: str) -> None:
    told = translate(error, "cloudformation describe_stacks in eu-central-1")
    assert isinstance(told, UnreachableError)
    assert told.exit_code == 3
    assert said in told.message
    assert remedy in told.remedy
    assert "\n" not in str(told)


def test_a_denial_names_the_right_that_is_missing() -> None:
    message = (
        "User: arn:aws:sts::123456789012:assumed-role/x is not authorized to perform: "
        "sagemaker:CreateCluster on resource: *"
    )
    told = translate(refusal("AccessDeniedException", message), "sagemaker create_cluster in eu-central-1")
    assert isinstance(told, RefusedError)
    assert (told.exit_code, told.remedy) == (1, "allow sagemaker:CreateCluster to this principal")


def test_other_refusals_are_told_as_aws_tells_them() -> None:
    told = translate(
        refusal("ResourceLimitExceeded", "The account-level\n limit is 0"), "sagemaker create_cluster"
    )
    assert str(told) == "sagemaker create_cluster: The account-level limit is 0 (ResourceLimitExceeded)"


def test_what_is_no_error_of_aws_stays_what_it_is() -> None:
    error = ZeroDivisionError()
    assert translate(error, "x") is error


def test_a_request_that_aws_would_not_understand_is_never_sent(aws: Aws, server: Server) -> None:
    server.rules()
    with pytest.raises(HpctoolsError, match="Unknown parameter") as told:
        aws.service("sagemaker").ask("describe_cluster", ClusterName="x", Nonsense=1)
    assert (told.value.exit_code, server.log) == (1, [])


def test_throttled_requests_are_repeated(aws: Aws, server: Server) -> None:
    server.rules(refuse=[{"action": "DescribeVpcs", "code": "RequestLimitExceeded", "times": 1}])
    assert aws.service("ec2").ask("describe_vpcs")["Vpcs"]
    assert server.log == ["DescribeVpcs"] * 2


def test_the_account_is_asked_once_and_wrong_credentials_are_told(aws: Aws, server: Server) -> None:
    assert aws.account() == "123456789012"
    server.rules(refuse=[{"action": "GetCallerIdentity", "code": "ExpiredToken", "times": 9}])
    with pytest.raises(UnreachableError, match="have expired"):
        aws.account()


def test_without_a_region_nothing_is_asked(server: Server) -> None:
    with pytest.raises(UnreachableError, match=r"no AWS region is named; state aws\.region in the site file"):
        connect(None)


@pytest.mark.parametrize("variable", ["AWS_DEFAULT_REGION", "AWS_REGION"])
def test_the_environments_region_does_where_the_site_names_none(
    server: Server, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "us-east-2")
    assert connect(None).region == "us-east-2"
    assert connect("eu-west-3").region == "eu-west-3"


def test_a_profile_that_does_not_exist_is_told(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(UnreachableError, match="nobody"):
        connect("eu-central-1")


def test_nobody_at_the_endpoint_is_told(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(UnreachableError, match="AWS does not answer"):
        connect("eu-central-2", Patience(retries=1)).account()


def test_without_boto3_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3.session", None)
    with pytest.raises(HpctoolsError, match=r"boto3.*is missing; install it: pip install boto3$"):
        connect("eu-central-1")
