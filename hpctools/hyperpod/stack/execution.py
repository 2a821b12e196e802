"""What nodes may do on AWS: one role for controllers, one for login nodes, one for compute nodes.

Anybody with a shell on a node can act as its role, so each has only what every user of such a node may do.
Source: the policy AmazonSageMakerClusterInstanceRolePolicy and the developer guide's page on IAM for HyperPod
(the network interfaces of a cluster in a VPC); each statement is narrowed to this
cluster where AWS allows it.
"""

from __future__ import annotations

from typing import Any

from hpctools.hyperpod.stack.buckets import (
    bucket_arn,
    checkpoint_bucket_name,
    data_bucket_name,
    lifecycle_bucket_name,
)
from hpctools.hyperpod.stack.context import Context
from hpctools.hyperpod.stack.intrinsic import Json, Part, arn, attribute, ref, resource
from hpctools.hyperpod.stack.network import place
from hpctools.hyperpod.stack.roles import (
    allow,
    balance_of_login_nodes,
    balance_on,
    document,
    role,
    token_of_login_nodes,
)

_SAGEMAKER = "sagemaker.amazonaws.com"
_LOGS = "/aws/sagemaker/Clusters"
_IMAGES_OF_HYPERPOD = "hyperpod/*"  # observability's exporters, in accounts of AWS


def execution_roles(context: Context) -> Part:
    """The three roles of the nodes, and the policy that they share."""
    every = [*_platform(context), *_secrets_of_all(context)]
    shared = {"Description": f"{context.cluster}: every node", "PolicyDocument": document(every)}
    data = _data(context)
    roles = {
        "ControllerRole": _node_role(context, _controller(context)),
        "LoginRole": _node_role(context, [*data, *_login(context)]),
        "ComputeRole": _node_role(context, data),
    }
    policy = {"NodePolicy": resource("AWS::IAM::ManagedPolicy", shared)}
    return Part(roles | policy, {f"{name}Arn": attribute(name, "Arn") for name in roles})


def _node_role(context: Context, statements: list[Json]) -> Json:
    made = role(context, [_SAGEMAKER], statements)
    made["Properties"]["ManagedPolicyArns"] = [ref("NodePolicy")]
    return made


def _platform(context: Context) -> list[Json]:
    """What HyperPod itself needs on every node."""
    group = f"log-group:{_LOGS}/{context.cluster}/*"
    namespace = {"StringEquals": {"cloudwatch:namespace": _LOGS}}
    return [
        allow(["logs:CreateLogGroup", "logs:DescribeLogStreams"], [arn("logs", group)]),
        allow(["logs:CreateLogStream", "logs:PutLogEvents"], [arn("logs", f"{group}:log-stream:*")]),
        allow(["cloudwatch:PutMetricData"], ["*"], namespace),
        allow(_CHANNELS, ["*"]),
        allow(["s3:ListBucket"], [bucket_arn(lifecycle_bucket_name(context))]),
        allow(["s3:GetObject"], [bucket_arn(lifecycle_bucket_name(context), "/*")]),
        *_interfaces(context),
        *_images(),
        *_key(context),
    ]


_CHANNELS = [
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
]


def _interfaces(context: Context) -> list[Json]:
    """HyperPod puts the nodes' network interfaces into our subnets with the nodes' own role."""
    interface = arn("ec2", "network-interface/*")
    subnets = [_part_arn("subnet", each) for each in place(context).subnets]
    group = arn("ec2", "security-group/${NodeSecurityGroup.GroupId}")
    seen = ["DhcpOptions", "NetworkInterfaces", "SecurityGroups", "Subnets", "Vpcs"]
    kept = ["CreateNetworkInterfacePermission", "DeleteNetworkInterface", "DeleteNetworkInterfacePermission"]
    return [
        allow(["ec2:CreateNetworkInterface"], [interface, *subnets, group]),
        allow([f"ec2:{action}" for action in kept], [interface]),
        allow(["ec2:DetachNetworkInterface"], [interface, arn("ec2", "instance/*")]),
        allow([f"ec2:Describe{what}" for what in seen], ["*"]),
        allow(["ec2:CreateTags"], [interface]),
    ]


def _part_arn(kind: str, identifier: Any) -> Any:
    name = identifier if isinstance(identifier, str) else f"${{{identifier['Ref']}}}"
    return arn("ec2", f"{kind}/{name}")


def _images() -> list[Json]:
    pulled = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
    own = arn("ecr", "repository/*")
    hyperpod = {"Fn::Sub": f"arn:${{AWS::Partition}}:ecr:${{AWS::Region}}:*:repository/{_IMAGES_OF_HYPERPOD}"}
    return [allow(["ecr:GetAuthorizationToken"], ["*"]), allow(pulled, [own, hyperpod])]


def _key(context: Context) -> list[Json]:
    key = context.aws.kms_key
    return [allow(["kms:Decrypt", "kms:GenerateDataKey"], [key])] if key else []


def _secrets_of_all(context: Context) -> list[Json]:
    """sssd on every node binds to the directory."""
    identity = context.site.identity
    secret = identity.bind.secret.aws_secret if identity and identity.bind else None
    return [allow(["secretsmanager:GetSecretValue"], [secret])] if secret else []


def _data(context: Context) -> list[Json]:
    named = [data_bucket_name(context), checkpoint_bucket_name(context)]
    names = [name for name in named if name is not None]
    if not names:
        return []
    whole = ["s3:GetBucketLocation", "s3:ListBucket", "s3:ListBucketMultipartUploads"]
    parts = ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:ListMultipartUploadParts"]
    return [
        allow(whole, [bucket_arn(name) for name in names]),
        allow([*parts, "s3:PutObject"], [bucket_arn(name, "/*") for name in names]),
    ]


def _controller(context: Context) -> list[Json]:
    made = [allow(["sns:Publish"], [ref("Topic")])]
    if context.aws.accounting_database is not None:
        made.append(allow(["secretsmanager:GetSecretValue"], [ref("DatabaseSecret")]))
    elif context.site.hyperpod and context.site.hyperpod.accounting_database:
        secret = context.site.hyperpod.accounting_database.secret
        made.append(allow(["secretsmanager:GetSecretValue"], [secret]))
    return made


def _login(context: Context) -> list[Json]:
    """A login node reads its agent's token, puts itself on the balancer's list, and takes itself off."""
    made = [*token_of_login_nodes(context), *balance_of_login_nodes(context)]
    entry = context.aws.login
    if context.site.lifecycle.login_balance is None and entry.load_balancer and not entry.scaling:
        made += balance_on(ref("LoginTargets"))
    return made
