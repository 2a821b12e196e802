"""The entry: a Network Load Balancer before the login nodes, and login nodes that come and go."""

from __future__ import annotations

from typing import Any

from hpctools.errors import UsageError
from hpctools.hyperpod.stack.buckets import bucket_arn, lifecycle_bucket_name
from hpctools.hyperpod.stack.context import Context
from hpctools.hyperpod.stack.intrinsic import Json, Part, arn, attribute, ref, resource, sub
from hpctools.hyperpod.stack.network import place
from hpctools.hyperpod.stack.roles import allow, balance_of_login_nodes, role, token_of_login_nodes
from hpctools.hyperpod.stack.security import SSH, group, group_id, rule
from hpctools.site.aws_access import LoadBalancer, LoginScaling

IDLE_SECONDS = 6000
"""The balancer forgets a silent connection after this time, AWS's longest; its default of 350 s ends SSH."""
DRAIN_SECONDS = 3600
"""Sessions of a node that leaves are kept this long, AWS's longest."""
_ROOT_GIB = 100


def source_parameter(context: Context) -> str:
    """The Systems Manager parameter that says where the lifecycle scripts are."""
    return f"/hpctools/{context.cluster}/lifecycle"


def entry(context: Context) -> Part:
    """The balancer with its targets; nothing where the site has none."""
    balancer = context.aws.login.load_balancer
    if balancer is None:
        return Part()
    made = {
        "EntrySecurityGroup": group(context, "entry", _allowed(balancer)),
        "EntryToNodes": _entry_to_nodes(),
        "NodesFromEntry": _nodes_from_entry(),
        "LoginTargets": _targets(context),
        "LoginBalancer": _balancer(context, balancer),
        "LoginListener": _listener(context, balancer),
    }
    outputs = {"EntryHost": attribute("LoginBalancer", "DNSName"), "LoginTargetsArn": ref("LoginTargets")}
    return Part(made | _scaling(context), outputs)


def _allowed(balancer: LoadBalancer) -> list[Json]:
    ports = (balancer.port, balancer.port)
    return [rule("tcp", ports, "people", cidr=cidr) for cidr in balancer.allow_from]


def _entry_to_nodes() -> Json:
    properties = {
        "GroupId": group_id("EntrySecurityGroup"),
        "DestinationSecurityGroupId": group_id("NodeSecurityGroup"),
        "IpProtocol": "tcp",
        "FromPort": SSH,
        "ToPort": SSH,
        "Description": "login nodes",
    }
    return resource("AWS::EC2::SecurityGroupEgress", properties)


def _nodes_from_entry() -> Json:
    properties = {
        "GroupId": group_id("NodeSecurityGroup"),
        "SourceSecurityGroupId": group_id("EntrySecurityGroup"),
        "IpProtocol": "tcp",
        "FromPort": SSH,
        "ToPort": SSH,
        "Description": "people, by the entry",
    }
    return resource("AWS::EC2::SecurityGroupIngress", properties)


def _attributes(**several: str) -> list[Json]:
    return [{"Key": key.replace("__", "."), "Value": value} for key, value in sorted(several.items())]


def _targets(context: Context) -> Json:
    """HyperPod's login nodes are not our instances, so they are targets by address."""
    properties = {
        "HealthCheckIntervalSeconds": 10,
        "HealthCheckPort": str(SSH),
        "HealthCheckProtocol": "TCP",
        "HealthyThresholdCount": 2,
        "Port": SSH,
        "Protocol": "TCP",
        "Tags": context.named("login"),
        "TargetGroupAttributes": _attributes(
            deregistration_delay__timeout_seconds=str(DRAIN_SECONDS),
            preserve_client_ip__enabled="true",
        ),
        "TargetType": "ip" if context.aws.login.scaling is None else "instance",
        "UnhealthyThresholdCount": 2,
        "VpcId": place(context).vpc,
    }
    return resource("AWS::ElasticLoadBalancingV2::TargetGroup", properties)


def _balancer(context: Context, balancer: LoadBalancer) -> Json:
    here = place(context)
    public = balancer.internet_facing
    way_in = ["InternetGatewayAttachment"] if public and context.aws.network.vpc is None else []
    properties = {
        "LoadBalancerAttributes": _attributes(
            deletion_protection__enabled="false", load_balancing__cross_zone__enabled="true"
        ),
        "Scheme": "internet-facing" if public else "internal",
        "SecurityGroups": [group_id("EntrySecurityGroup")],
        "Subnets": list(here.public_subnets if public else here.subnets),
        "Tags": context.named("login"),
        "Type": "network",
    }
    return resource("AWS::ElasticLoadBalancingV2::LoadBalancer", properties, after=way_in)


def _listener(context: Context, balancer: LoadBalancer) -> Json:
    properties = {
        "DefaultActions": [{"Type": "forward", "TargetGroupArn": ref("LoginTargets")}],
        "ListenerAttributes": _attributes(tcp__idle_timeout__seconds=str(IDLE_SECONDS)),
        "LoadBalancerArn": ref("LoginBalancer"),
        "Port": balancer.port,
        "Protocol": "TCP",
    }
    return resource("AWS::ElasticLoadBalancingV2::Listener", properties)


def _scaling(context: Context) -> Json:
    scaling = context.aws.login.scaling
    if scaling is None:
        return {}
    return {
        "LoginInstanceRole": _instance_role(context),
        "LoginInstanceProfile": resource("AWS::IAM::InstanceProfile", {"Roles": [ref("LoginInstanceRole")]}),
        "LoginTemplate": _launch_template(context, scaling),
        "LoginGroup": _group(context, scaling),
        "LoginGrowth": _growth(scaling),
    }


def _instance_role(context: Context) -> Json:
    """What an EC2 login node may do: fetch its scripts, and be reached by Session Manager."""
    channels = [
        f"ssmmessages:{verb}{kind}Channel" for verb in ("Create", "Open") for kind in ("Control", "Data")
    ]
    bucket = lifecycle_bucket_name(context)
    parameter = arn("ssm", f"parameter{source_parameter(context)}")
    statements = [
        allow(["s3:ListBucket"], [bucket_arn(bucket)]),
        allow(["s3:GetObject"], [bucket_arn(bucket, "/*")]),
        allow(["ssm:GetParameter"], [parameter]),
        allow(["ssm:UpdateInstanceInformation"], [arn("ec2", "instance/*")]),
        allow(channels, ["*"]),
    ]
    key = context.aws.kms_key
    if key is not None:
        statements.append(allow(["kms:Decrypt"], [key]))
    identity = context.site.identity
    secret = identity.bind.secret.aws_secret if identity and identity.bind else None
    if secret is not None:
        statements.append(allow(["secretsmanager:GetSecretValue"], [secret]))
    own = [*token_of_login_nodes(context), *balance_of_login_nodes(context)]
    return role(context, ["ec2.amazonaws.com"], [*statements, *own])


_FIRST_BOOT = """\
#!/bin/bash
# Says who this node is, as HyperPod says it on nodes of its own; waits until the scripts are uploaded, since
# the stack comes first; fetches and runs them.
set -euo pipefail
export AWS_DEFAULT_REGION=${AWS::Region}
metadata=http://169.254.169.254/latest
token=$(curl -sfX PUT $metadata/api/token -H "X-aws-ec2-metadata-token-ttl-seconds: 60")
ask() { curl -sf "$metadata/meta-data/$1" -H "X-aws-ec2-metadata-token: $token"; }
id=$(ask instance-id)
address=$(ask local-ipv4)
install -d -m 0755 /opt/ml/config
cat >/opt/ml/config/resource_config.json <<JSON
{"ClusterConfig": {"ClusterName": "CLUSTER"}, "InstanceGroups": [{"Name": "GROUP", "Instances": [
  {"InstanceName": "GROUP-$id", "InstanceId": "$id", "CustomerIpAddress": "$address"}]}]}
JSON
source=""
for _ in $(seq 180); do
  source=$(aws ssm get-parameter --name PARAMETER --query Parameter.Value --output text) && break
  sleep 10
done
[ -n "$source" ] || { echo "PARAMETER never said where the scripts are" >&2; exit 1; }
# Where the image has people's commands in it, everybody enters it.
[ -d /opt/hpctools ] || install -d -m 0755 /opt/hpctools
install -d -m 0700 /opt/hpctools/lifecycle
aws s3 cp --recursive --only-show-errors "$source" /opt/hpctools/lifecycle
exec bash /opt/hpctools/lifecycle/on_create.sh
"""


def first_boot(context: Context) -> str:
    """What an EC2 login node does when it starts for the first time, with CloudFormation's references.

    Raises:
        UsageError: the site has no login group, so that its scripts would not know what the node is.
    """
    group_name = _login_group(context)
    if group_name is None:
        raise UsageError(
            "aws.login.scaling is for login nodes, and the site has no node group of role login",
            "add one; its count may be 0",
        )
    words = {"PARAMETER": source_parameter(context), "CLUSTER": context.cluster, "GROUP": group_name}
    text = _FIRST_BOOT
    for word, value in words.items():
        text = text.replace(word, value)
    return text


def _launch_template(context: Context, scaling: LoginScaling) -> Json:
    tags = context.tag_list(Name=f"{context.cluster}-login", **_group_tag(context))
    disk = {
        "DeleteOnTermination": True,
        "Encrypted": True,
        "KmsKeyId": context.aws.kms_key,
        "VolumeSize": _ROOT_GIB,
        "VolumeType": "gp3",
    }
    ebs = {key: value for key, value in disk.items() if value is not None}
    data = {
        "BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": ebs}],
        "IamInstanceProfile": {"Arn": attribute("LoginInstanceProfile", "Arn")},
        "ImageId": scaling.image,
        "InstanceType": scaling.instance_type,
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
        "SecurityGroupIds": [group_id("NodeSecurityGroup")],
        "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in ("instance", "volume")],
        "UserData": {"Fn::Base64": sub(first_boot(context))},
    }
    properties = {
        "LaunchTemplateData": data,
        "TagSpecifications": [{"ResourceType": "launch-template", "Tags": context.named("login")}],
    }
    return resource("AWS::EC2::LaunchTemplate", properties)


def _group_tag(context: Context) -> dict[str, str]:
    """The bill's tag, so that these nodes are in the pool of login nodes."""
    group_name = _login_group(context)
    return {context.site.billing.node_group_tag: group_name} if group_name else {}


def _login_group(context: Context) -> str | None:
    return next((group.name for group in context.site.node_groups if group.role == "login"), None)


def _group(context: Context, scaling: LoginScaling) -> Json:
    """Login nodes; a node that does not answer is not ended, since people may have work open on it."""
    template: Any = {
        "LaunchTemplateId": ref("LoginTemplate"),
        "Version": attribute("LoginTemplate", "LatestVersionNumber"),
    }
    properties = {
        "HealthCheckGracePeriod": 600,
        "HealthCheckType": "EC2",
        "LaunchTemplate": template,
        "MaxSize": str(scaling.max),
        "MinSize": str(scaling.min),
        "NewInstancesProtectedFromScaleIn": True,
        "Tags": [each | {"PropagateAtLaunch": False} for each in context.named("login")],
        "TargetGroupARNs": [ref("LoginTargets")],
        "VPCZoneIdentifier": list(place(context).subnets),
    }
    return resource("AWS::AutoScaling::AutoScalingGroup", properties)


def _growth(scaling: LoginScaling) -> Json:
    """It grows by itself and shrinks by hand only: people's sessions live on these nodes."""
    target = {
        "DisableScaleIn": True,
        "PredefinedMetricSpecification": {"PredefinedMetricType": "ASGAverageCPUUtilization"},
        "TargetValue": scaling.cpu_percent,
    }
    properties = {
        "AutoScalingGroupName": ref("LoginGroup"),
        "PolicyType": "TargetTrackingScaling",
        "TargetTrackingConfiguration": target,
    }
    return resource("AWS::AutoScaling::ScalingPolicy", properties)
