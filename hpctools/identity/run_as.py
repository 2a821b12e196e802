"""Who somebody is in a Session Manager session: tags, the policy that keeps to them, the preferences.

Session Manager asks the tag SSMSessionRunAs of the IAM role or user first, or of the session that single
sign-on made. Where there is none it takes the account's default, and without Run As `ssm-user`, who becomes
root with sudo. So: no tag, no session.
Source: AWS Systems Manager User Guide, "Turn on Run As support for Linux and macOS managed nodes".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from hpctools.site.identity import MACHINE_ACCOUNTS
from hpctools.site.model import Site

TAG: Final = "SSMSessionRunAs"
DOCUMENT: Final = "SSM-SessionManagerRunShell"
"""The document with the preferences of all sessions in an account and region: `session_document`."""

_SSH = "AWS-StartSSHSession"
"""A tunnel to sshd, which asks for itself who somebody is."""

_OF_PRINCIPAL = f"aws:PrincipalTag/{TAG}"


def run_as_users(site: Site) -> Mapping[str, str]:
    """Return the Unix account of each IAM principal that has one of its own: `role/NAME` or `user/NAME`."""
    return dict(site.identity.run_as.principals) if site.identity is not None else {}


def run_as_tags(user: str) -> list[dict[str, str]]:
    """Return the tag of a principal, as IAM takes it."""
    return [{"Key": TAG, "Value": user}]


def run_as_policy(partition: str = "aws") -> dict[str, Any]:
    """Return the IAM policy that keeps people from sessions as anybody but themselves.

    It only denies, so that it can stand beside whatever allows sessions: for people's roles and permission
    sets. Administrators who repair nodes as root do not get it.

    Args:
        partition: `aws`, `aws-cn` or `aws-us-gov`; or what CloudFormation puts in its place.
    """
    preferences = f"arn:{partition}:ssm:*:*:document/{DOCUMENT}"
    return {
        "Version": "2012-10-17",
        "Statement": [
            _deny("NoSessionWithoutTag", _SESSION, _ANYTHING, {"Null": {_OF_PRINCIPAL: "true"}}),
            _deny("NoSessionAsTheMachine", _SESSION, _ANYTHING, _is_of_the_machine()),
            # A document of somebody's own could leave Run As out.
            _deny("OnlyTheSitesDocuments", _SESSION, {"NotResource": _places(partition, preferences)}),
            _deny("NoWayAroundSessions", _AROUND, _ANYTHING),
            _deny("PreferencesStay", _OF_DOCUMENTS, {"Resource": preferences}),
            _deny("TagsStay", _OF_TAGS, _ANYTHING, _names_the_tag()),
        ],
    }


def session_document(idle_minutes: int = 20) -> dict[str, Any]:
    """Return the content of the document `SSM-SessionManagerRunShell`: Run As, and no default account.

    Args:
        idle_minutes: a session without input ends after this, 1 to 60.
    """
    inputs = {
        "s3BucketName": "",
        "s3KeyPrefix": "",
        "s3EncryptionEnabled": True,
        "cloudWatchLogGroupName": "",
        "cloudWatchEncryptionEnabled": True,
        "cloudWatchStreamingEnabled": False,
        "kmsKeyId": "",
        "runAsEnabled": True,
        "runAsDefaultUser": "",
        "idleSessionTimeout": str(idle_minutes),
        "maxSessionDuration": "",
        "shellProfile": {"windows": "", "linux": ""},
    }
    text = "Sessions run as the person whom the tag SSMSessionRunAs names"
    return {"schemaVersion": "1.0", "description": text, "sessionType": "Standard_Stream", "inputs": inputs}


_SESSION = ("ssm:StartSession",)
_AROUND = ("ssm:SendCommand", "ssm:StartAutomationExecution", "ssm:CreateAssociation")
"""What runs as root on a node."""
_OF_DOCUMENTS = (
    "ssm:CreateDocument",
    "ssm:DeleteDocument",
    "ssm:UpdateDocument",
    "ssm:UpdateDocumentDefaultVersion",
)
_OF_TAGS = ("iam:TagRole", "iam:TagUser", "iam:UntagRole", "iam:UntagUser", "sts:TagSession")
_ANYTHING: Mapping[str, Any] = {"Resource": "*"}


def _places(partition: str, preferences: str) -> list[str]:
    """Nodes, and the documents that a session may use."""
    return [
        f"arn:{partition}:sagemaker:*:*:cluster/*",
        f"arn:{partition}:ec2:*:*:instance/*",
        f"arn:{partition}:ssm:*:*:managed-instance/*",
        preferences,
        f"arn:{partition}:ssm:*::document/{_SSH}",
        f"arn:{partition}:ssm:*:*:document/{_SSH}",
    ]


def _is_of_the_machine() -> Mapping[str, Any]:
    return {"StringEqualsIgnoreCase": {_OF_PRINCIPAL: ["", *sorted(MACHINE_ACCOUNTS)]}}


def _names_the_tag() -> Mapping[str, Any]:
    return {"ForAnyValue:StringEqualsIgnoreCase": {"aws:TagKeys": [TAG]}}


def _deny(
    name: str, actions: Sequence[str], where: Mapping[str, Any], condition: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    statement = {"Sid": name, "Effect": "Deny", "Action": list(actions), **where}
    return {**statement, "Condition": dict(condition)} if condition else statement
