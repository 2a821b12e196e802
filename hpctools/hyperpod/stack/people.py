"""Single sign-on and the directory: people arrive as themselves, never as ssm-user.

Session Manager starts a shell as the account in the principal's tag SSMSessionRunAs where the session's
document asks for it, and refuses where the tag is missing. Its own default document asks for nothing, and
lets everybody in as ssm-user, who is root by sudo. So:

- administrators may start our document only, which asks for the tag;
- others may start AWS-StartSSHSession only: an SSH connection to sshd, which asks PAM as always. A shell of
  Session Manager would go past PAM, and HyperPod's targets cannot be told apart by node group in a policy;
- a policy that denies sessions without the tag, or with one of ssm-user or root, whatever else allows them.

Source: Systems Manager user guide, "Turn on Run As support for Linux"; facts on login.
"""

from __future__ import annotations

from typing import Any

from hpctools.hyperpod.stack.context import Context
from hpctools.hyperpod.stack.intrinsic import Json, Part, arn, ref, resource, sub
from hpctools.hyperpod.stack.logs import log_group
from hpctools.hyperpod.stack.network import place
from hpctools.hyperpod.stack.roles import allow, document
from hpctools.hyperpod.stack.storage import from_secret, secret
from hpctools.identity import run_as
from hpctools.site.aws_access import IdentityCenter

_SSH_DOCUMENT = "AWS-StartSSHSession"


def session_document_name(context: Context) -> str:
    """The document that administrators' sessions are started with."""
    return run_as.session_document_name(context.site)


def sessions(context: Context) -> Part:
    """The session document and the policy that denies ssm-user, with or without single sign-on."""
    minutes = context.aws.identity_center.idle_minutes if context.aws.identity_center else 20
    made = {
        "SessionLogGroup": log_group(context, f"/hpctools/{context.cluster}/sessions", "Retain"),
        "SessionDocument": _session_document(context, minutes),
        "NobodyAsSsmUser": _managed_denial(context),
    }
    outputs = {"SessionDocument": ref("SessionDocument"), "NobodyAsSsmUserArn": ref("NobodyAsSsmUser")}
    return Part(made, outputs)


def _session_document(context: Context, minutes: int) -> Json:
    inputs: Json = {
        "cloudWatchEncryptionEnabled": context.aws.kms_key is not None,
        "cloudWatchLogGroupName": f"/hpctools/{context.cluster}/sessions",
        "cloudWatchStreamingEnabled": True,
        "idleSessionTimeout": str(minutes),
        "runAsDefaultUser": "",
        "runAsEnabled": True,
        "shellProfile": {"linux": "cd && exec bash -l"},
    }
    if context.aws.kms_key is not None:
        inputs["kmsKeyId"] = context.aws.kms_key
    content = {
        "schemaVersion": "1.0",
        "description": f"A shell on a node of {context.cluster}, as the account in {run_as.TAG}",
        "sessionType": "Standard_Stream",
        "inputs": inputs,
    }
    properties = {
        "Content": content,
        "DocumentFormat": "JSON",
        "DocumentType": "Session",
        "Name": session_document_name(context),
        "Tags": context.tag_list(),
        "UpdateMethod": "NewVersion",
    }
    return resource("AWS::SSM::Document", properties)


def _managed_denial(context: Context) -> Json:
    properties = {
        "Description": f"{context.cluster}: nobody starts a session as ssm-user; attach it to people's roles",
        "PolicyDocument": run_as.run_as_policy(session_document_name(context)),
    }
    return resource("AWS::IAM::ManagedPolicy", properties)


def identity_center(context: Context) -> Part:
    """Permission sets, who has them, and the attribute that becomes the Run-As tag."""
    stated = context.aws.identity_center
    if stated is None:
        return Part()
    made: Json = {}
    if stated.attributes_managed:
        made["RunAsAttribute"] = _run_as(stated)
    for name, groups, statements in (
        ("Administrators", stated.administrator_groups, _administrators(context)),
        ("Users", stated.user_groups, _users()),
    ):
        if groups:
            made[f"{name}PermissionSet"] = _permission_set(context, stated, name, statements)
        for number, group in enumerate(groups, start=1):
            made[f"{name}Assignment{number}"] = _assignment(stated, name, group)
    return Part(made)


def _run_as(stated: IdentityCenter) -> Json:
    mapped = {"Key": run_as.TAG, "Value": {"Source": [stated.run_as]}}
    properties = {"InstanceArn": stated.instance, "AccessControlAttributes": [mapped]}
    return resource("AWS::SSO::InstanceAccessControlAttributeConfiguration", properties)


def _permission_set(context: Context, stated: IdentityCenter, name: str, statements: list[Json]) -> Json:
    own = [_own_sessions(), *run_as.run_as_statements()]
    properties = {
        "Description": f"{context.cluster}: {name.lower()}",
        "InlinePolicy": document([*statements, *own]),
        "InstanceArn": stated.instance,
        # At most 32 characters, unique in the instance.
        "Name": f"{context.short}-{name.lower()[:11]}",
        "SessionDuration": f"PT{stated.session_hours}H",
        "Tags": context.tag_list(),
    }
    return resource("AWS::SSO::PermissionSet", properties)


def _clusters() -> Any:
    return arn("sagemaker", "cluster/*")


def _checked() -> Json:
    """Without it a session that names no document is started with the account's default one."""
    return {"BoolIfExists": {"ssm:SessionDocumentAccessCheck": "true"}}


def _administrators(context: Context) -> list[Json]:
    shell = arn("ssm", f"document/{session_document_name(context)}")
    seen = ["sagemaker:DescribeCluster", "sagemaker:DescribeClusterNode", "sagemaker:ListClusterNodes"]
    return [
        allow(["ssm:StartSession"], [_clusters(), shell, _ssh()], _checked()),
        allow(seen, [_clusters()]),
        allow(["sagemaker:ListClusters"], ["*"]),
    ]


def _users() -> list[Json]:
    return [allow(["ssm:StartSession"], [_clusters(), _ssh()], _checked())]


def _ssh() -> Any:
    return arn("ssm", f"document/{_SSH_DOCUMENT}", account=False)


def _own_sessions() -> Json:
    own = sub("arn:${AWS::Partition}:ssm:*:*:session/${!aws:userid}-*")
    return allow(["ssm:ResumeSession", "ssm:TerminateSession"], [own])


def _assignment(stated: IdentityCenter, name: str, group: str) -> Json:
    properties = {
        "InstanceArn": stated.instance,
        "PermissionSetArn": {"Fn::GetAtt": [f"{name}PermissionSet", "PermissionSetArn"]},
        "PrincipalId": group,
        "PrincipalType": "GROUP",
        "TargetId": ref("AWS::AccountId"),
        "TargetType": "AWS_ACCOUNT",
    }
    return resource("AWS::SSO::Assignment", properties)


def directory(context: Context) -> Part:
    """An AWS Managed Microsoft AD; nothing where the site has a directory, or none."""
    wanted = context.aws.directory.create if context.aws.directory else None
    if wanted is None:
        return Part()
    properties = {
        "CreateAlias": False,
        "Edition": wanted.edition,
        "EnableSso": False,
        "Name": wanted.domain,
        "Password": from_secret("DirectorySecret", "password"),
        "VpcSettings": {"SubnetIds": list(place(context).subnets[:2]), "VpcId": place(context).vpc},
    }
    made = {
        "DirectorySecret": secret(context, "administrator of the directory", "Admin"),
        "Directory": resource("AWS::DirectoryService::MicrosoftAD", properties, kept="RetainExceptOnCreate"),
    }
    addresses = {"Fn::Join": [",", {"Fn::GetAtt": ["Directory", "DnsIpAddresses"]}]}
    outputs = {
        "DirectoryAddresses": addresses,
        "DirectoryId": ref("Directory"),
        "DirectorySecretArn": ref("DirectorySecret"),
    }
    return Part(made, outputs)
