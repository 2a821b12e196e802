"""Who somebody is in a Session Manager session: tags, and the policy that keeps to them.

Session Manager asks the tag SSMSessionRunAs of the IAM role or user first, or of the session that single
sign-on made. Where there is none it takes the account's default, and without Run As `ssm-user`, who becomes
root with sudo. So: no tag, no session.
Source: AWS Systems Manager User Guide, "Turn on Run As support for Linux and macOS managed nodes".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:  # the Lambda function of Session Manager takes TAG from here, and has no pydantic
    from hpctools.site.model import Site

TAG: Final = "SSMSessionRunAs"
_OF_PRINCIPAL = f"aws:PrincipalTag/{TAG}"


def run_as_users(site: Site) -> Mapping[str, str]:
    """Return the Unix account of each IAM principal that has one of its own: `role/NAME` or `user/NAME`."""
    return dict(site.identity.run_as.principals) if site.identity is not None else {}


def run_as_tags(user: str) -> list[dict[str, str]]:
    """Return the tag of a principal, as IAM takes it."""
    return [{"Key": TAG, "Value": user}]


def session_document_name(site: Site) -> str:
    """The document that sessions with a shell are started with; the site's stack makes it."""
    return f"{site.cluster.name}-session"


def run_as_statements() -> list[dict[str, Any]]:
    """Return what a policy needs that allows no more than sessions with the site's documents.

    Statements have no Sid: a stack of a large site is near the size that CloudFormation takes.
    """
    return [
        _deny(_SESSION, _ANYTHING, {"Null": {_OF_PRINCIPAL: "true"}}),
        _deny(_SESSION, _ANYTHING, {"StringEqualsIgnoreCase": {_OF_PRINCIPAL: _NOBODY}}),
    ]


def run_as_policy(document: str) -> dict[str, Any]:
    """Return the IAM policy that keeps people from sessions as anybody but themselves.

    It only denies, so that it can stand beside whatever allows sessions: for people's roles and permission
    sets. Administrators who repair nodes as root by other ways do not get it. In this order it denies:
    sessions without the tag; as an account of the machine; with a document that may leave Run As out; what
    runs as root on a node without a session; changes of the tag.

    Args:
        document: the name of the document whose sessions run as the person (`session_document_name`).
    """
    shell = f"arn:*:ssm:*:*:document/{document}"
    return {
        "Version": "2012-10-17",
        "Statement": [
            *run_as_statements(),
            _deny(_SESSION, {"NotResource": [*_NODES, shell, _SSH]}),
            _deny(_AROUND, _ANYTHING),
            _deny(_OF_TAGS, _ANYTHING, {"ForAnyValue:StringEqualsIgnoreCase": {"aws:TagKeys": [TAG]}}),
        ],
    }


_NOBODY = ["", "ec2-user", "root", "ssm-user", "ubuntu"]
"""A tag without a value, and the accounts of HyperPod's images that become root with sudo, or are."""
_SESSION = ("ssm:StartSession",)
_AROUND = ("ssm:SendCommand", "ssm:StartAutomationExecution")
_OF_TAGS = ("iam:*Tag*", "sts:TagSession")
_ANYTHING: Mapping[str, Any] = {"Resource": "*"}
_NODES = ("arn:*:sagemaker:*:*:cluster/*", "arn:*:ec2:*:*:instance/*")
_SSH = "arn:*:ssm:*:*:document/AWS-StartSSHSession"
"""A tunnel to sshd, which asks for itself who somebody is."""


def _deny(
    actions: Sequence[str], where: Mapping[str, Any], condition: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    statement = {"Effect": "Deny", "Action": list(actions), **where}
    return {**statement, "Condition": dict(condition)} if condition else statement
