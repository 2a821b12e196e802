"""AWS: one place that asks it anything, and that turns its refusals into errors with a remedy."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from hpctools.errors import HpctoolsError, UnreachableError


@dataclass(frozen=True)
class Patience:
    """How long AWS is waited for.

    Attributes:
        retries: so often a question is repeated, when AWS does not answer or limits their rate.
        connect, read: seconds of each.
    """

    retries: int = 8
    connect: int = 10
    read: int = 60


class RefusedError(HpctoolsError):
    """AWS understood, and refuses.

    Args:
        code: AWS's word for it, for example AccessDenied.
    """

    def __init__(self, message: str, code: str, remedy: str = "") -> None:
        super().__init__(message, remedy)
        self.code = code

    @property
    def denied(self) -> bool:
        """Whether it is for want of a right."""
        return self.code in _DENIED


class TooManyRequestsError(UnreachableError):
    """AWS is there, and limits the rate of requests."""


_EXPIRED = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired", "ExpiredSession"}
)
_UNKNOWN = frozenset(
    {"InvalidClientTokenId", "UnrecognizedClientException", "InvalidAccessKeyId", "SignatureDoesNotMatch",
     "AuthFailure", "MissingAuthenticationToken", "InvalidToken"}
)  # fmt: skip
_SLOW = frozenset(
    {"Throttling", "ThrottlingException", "ThrottledException", "TooManyRequestsException", "SlowDown",
     "RequestLimitExceeded", "RequestThrottled", "PriorRequestNotComplete", "BandwidthLimitExceeded"}
)  # fmt: skip
_ILL = frozenset(
    {"InternalError", "InternalFailure", "InternalServerError", "InternalServerException", "ServiceFailure",
     "ServiceUnavailable", "ServiceUnavailableException", "RequestTimeout", "RequestTimeoutException"}
)  # fmt: skip
NO_NAME_AT_AWS = "ParamValidation"
"""The code of a request that is not even sent: nothing at AWS can have such a name."""
_DENIED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AuthorizationError"})


@dataclass(frozen=True)
class Service:
    """One AWS service in one region."""

    client: Any
    name: str
    region: str

    def ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Ask for one thing; throttled requests are repeated first.

        Args:
            operation: the client's method, for example describe_stacks.
            arguments: its arguments.

        Raises:
            RefusedError: AWS refuses; `code` says how. Or the request is not what botocore's model allows.
            UnreachableError: no answer, no credentials, or too many requests.
        """
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        try:
            answer: dict[str, Any] = getattr(self.client, operation)(**arguments)
        except (BotoCoreError, ClientError, ResponseParserError) as error:
            raise self._error(error, operation) from None
        return answer

    def pages(self, operation: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        """The pages of an answer; raises like `ask`."""
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        try:
            yield from self.client.get_paginator(operation).paginate(**arguments)
        except (BotoCoreError, ClientError, ResponseParserError) as error:
            raise self._error(error, operation) from None

    def _error(self, error: Exception, operation: str) -> Exception:
        return translate(error, f"{self.name} {operation} in {self.region}")


def translate(error: Exception, about: str) -> Exception:
    """An error of botocore's as one of ours; anything else as it is.

    Args:
        error: what was raised.
        about: what was asked, for the message.
    """
    from botocore import exceptions as aws

    if isinstance(error, aws.ClientError):
        return _refusal(error, about)
    for kinds, said, remedy in _broken():
        if isinstance(error, kinds):
            return UnreachableError(said.format(about=about, error=_one_line(error)), remedy)
    if isinstance(error, aws.ParamValidationError):
        return RefusedError(f"{about}: {_one_line(error)}", NO_NAME_AT_AWS, "check the site file")
    if isinstance(error, aws.BotoCoreError):
        return UnreachableError(
            f"{about}: {_one_line(error)}", "check the network, the region and AWS's status"
        )
    return error


_SIGN_IN = "sign in again (aws sso login), or renew the credentials of AWS_PROFILE"


def _broken() -> list[tuple[tuple[type[Exception], ...], str, str]]:
    from botocore import exceptions as aws
    from botocore.parsers import ResponseParserError

    signed_out = (aws.SSOTokenLoadError, aws.UnauthorizedSSOTokenError, aws.TokenRetrievalError)
    missing = (aws.NoCredentialsError, aws.PartialCredentialsError, aws.CredentialRetrievalError)
    return [
        (signed_out, "{about}: the sign-on has ended", _SIGN_IN),
        (missing, "{about}: there are no AWS credentials", "set AWS_PROFILE, or sign in (aws sso login)"),
        (
            (ResponseParserError,),
            "{about}: what answered is not AWS, or not well",
            "see whether a proxy answers in its place (HTTPS_PROXY, AWS_ENDPOINT_URL), and try again",
        ),
        ((aws.ProfileNotFound,), "{error}", "set AWS_PROFILE to one of `aws configure list-profiles`"),
        (
            (aws.NoRegionError,),
            "no AWS region is named",
            "state aws.region in the site file, or set AWS_REGION",
        ),
        (
            (aws.EndpointConnectionError, aws.ConnectTimeoutError, aws.ReadTimeoutError, aws.HTTPClientError),
            "{about}: AWS does not answer ({error})",
            "check the network, proxies (HTTPS_PROXY), and that the region is right",
        ),
    ]


def _refusal(error: Any, about: str) -> HpctoolsError:
    told = error.response.get("Error", {})
    code, message = str(told.get("Code", "")), _one_line(told.get("Message") or error)
    if code in _EXPIRED:
        return UnreachableError(f"{about}: the AWS credentials have expired", _SIGN_IN)
    if code in _UNKNOWN:
        return UnreachableError(
            f"{about}: AWS does not know these credentials ({code})", "check AWS_PROFILE and the credentials"
        )
    if code in _SLOW:
        return TooManyRequestsError(
            f"{about}: AWS limits the rate of requests ({code})",
            "run the same command again in some minutes; it goes on where it was",
        )
    if code in _ILL or (code.isdigit() and code >= "500"):
        return UnreachableError(
            f"{about}: AWS has trouble of its own ({code})",
            "see health.aws.amazon.com, and run the same command again: it goes on where it was",
        )
    if code in _DENIED:
        action = re.search(r"not authorized to perform: ([\w-]+:\w+)", message)
        remedy = (
            f"allow {action.group(1)} to this principal" if action else "see docs/infrastructure.md, Rights"
        )
        return RefusedError(f"{about}: denied: {message}", code, remedy)
    return RefusedError(f"{about}: {message} ({code})", code)


def _one_line(text: object) -> str:
    return " ".join(str(text).split())


@dataclass(frozen=True)
class Aws:
    """An AWS account as the environment's credentials see it, and the cluster's region."""

    session: Any
    region: str
    patience: Patience = Patience()

    def service(self, name: str, region: str | None = None) -> Service:
        """A service; in the cluster's region unless another one is named.

        Raises:
            UnreachableError: there is no such region or profile.
        """
        return _service(self, name, region or self.region)

    def account(self) -> str:
        """The account's number.

        Raises:
            UnreachableError: there are no credentials, or they are no longer good.
        """
        return str(self.service("sts").ask("get_caller_identity")["Account"])


@lru_cache(maxsize=64)
def _service(account: Aws, name: str, region: str) -> Service:
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    retries = Config(
        retries={"mode": "adaptive", "max_attempts": account.patience.retries},
        connect_timeout=account.patience.connect,
        read_timeout=account.patience.read,
    )
    try:
        client = account.session.client(name, region_name=region, config=retries)
    except BotoCoreError as error:
        raise translate(error, f"{name} in {region}") from None
    except ValueError as error:  # an endpoint or a region that is no name of a host
        raise UnreachableError(
            f"{name} in {region}: {error}", "check the region and AWS_ENDPOINT_URL"
        ) from None
    return Service(client, name, region)


def connect(region: str | None, patience: Patience = Patience()) -> Aws:
    """AWS with the environment's credentials (AWS_PROFILE, AWS_ENDPOINT_URL and so on); nothing is asked yet.

    Args:
        region: what the site says; the environment's or the profile's when None.
        patience: how long it is waited for.

    Raises:
        HpctoolsError: boto3 is not installed.
        UnreachableError: no region is named anywhere, or the profile does not exist.
    """
    try:
        from boto3.session import Session
    except ImportError:
        raise HpctoolsError(
            "boto3, which speaks with AWS, is missing",
            "install it: pip install boto3",
        ) from None
    from botocore.exceptions import BotoCoreError, NoRegionError

    try:
        # boto3 reads AWS_DEFAULT_REGION only; AWS's other tools, and what runs on AWS, say AWS_REGION.
        session = Session(region_name=region or os.environ.get("AWS_REGION") or None)
        if not session.region_name:
            raise NoRegionError
    except BotoCoreError as error:
        raise translate(error, "AWS") from None
    return Aws(session, session.region_name, patience)
