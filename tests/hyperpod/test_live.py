"""`--aws` against moto, and against botocore's Stubber for what moto lacks (quotas, training plans)."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from moto import mock_aws

from hpctools.errors import UnreachableError
from hpctools.hyperpod import live
from hpctools.hyperpod.live import gather
from hpctools.hyperpod.operations.aws import Aws
from tests.hyperpod.samples import Json, files, group, legacy, lustre, pairs

REGION = "eu-central-1"
PLAN = "arn:aws:sagemaker:eu-central-1:123456789012:training-plan/spring"
QUOTAS = {
    "ml.c5.xlarge for cluster usage": 4,
    "ml.trn1.32xlarge for cluster usage": 4,
    "Maximum number instances allowed per SageMaker HyperPod cluster": 20,
    "Total number of instances allowed across SageMaker HyperPod clusters": 500,
}
PLAN_ANSWER = {
    "TrainingPlanArn": PLAN,
    "TrainingPlanName": "spring",
    "Status": "Active",
    "TargetResources": ["training-job"],
    "AvailableInstanceCount": 4,
    "ReservedCapacitySummaries": [
        {
            "ReservedCapacityArn": "arn:aws:sagemaker:eu-central-1:123456789012:reserved-capacity/r",
            "InstanceType": "ml.p5.48xlarge",
            "TotalInstanceCount": 4,
            "Status": "Active",
            "AvailabilityZone": "eu-central-1c",
            "StartTime": datetime(2026, 1, 1, tzinfo=timezone.utc),
        }
    ],
}


@dataclass(eq=False)
class Session:
    """boto3 in moto, but for some services whose answers are given."""

    given: Mapping[str, Any] = field(default_factory=dict)

    def client(self, name: str, region_name: str, config: object = None) -> Any:
        return self.given.get(name) or boto3.client(name, region_name=region_name)  # type: ignore[call-overload]


def stubbed(name: str, *answers: tuple[str, Json | None, str]) -> Any:
    """A client that gives answers in this order: operation, response or None, error code."""
    client = boto3.client(name, region_name=REGION)  # type: ignore[call-overload]
    stubber = Stubber(client)
    for operation, response, code in answers:
        if response is None:
            stubber.add_client_error(operation, service_error_code=code, service_message="no")
        else:
            stubber.add_response(operation, response)
    stubber.activate()
    return client


def sagemaker(plan: Json | None = None, code: str = "ResourceNotFound") -> Any:
    clusters = {"ClusterSummaries": [cluster_summary("other")]}
    return stubbed("sagemaker", ("describe_training_plan", plan, code), ("list_clusters", clusters, ""))


def cluster_summary(name: str) -> Json:
    arn = f"arn:aws:sagemaker:{REGION}:123456789012:cluster/abcdefghijkl"
    when = datetime(2026, 1, 1, tzinfo=timezone.utc)
    return {"ClusterArn": arn, "ClusterName": name, "CreationTime": when, "ClusterStatus": "InService"}


def quotas() -> Any:
    listed = [{"QuotaName": name, "Value": float(value)} for name, value in QUOTAS.items()]
    return stubbed("service-quotas", ("list_service_quotas", {"Quotas": listed}, ""))


@pytest.fixture(scope="module")
def cloud() -> Iterator[Json]:
    """An account: a VPC, a private and a public subnet, two security groups, Lustre, a role, scripts."""
    credentials = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": REGION}
    with pytest.MonkeyPatch.context() as patch, mock_aws():
        for name, value in credentials.items():
            patch.setenv(name, value)
        patch.delenv("AWS_PROFILE", raising=False)
        yield _network() | {"role": _role(), "source": _scripts()}


def _network() -> Json:
    ec2 = boto3.client("ec2", region_name=REGION)
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    zone = f"{REGION}a"
    private = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.1.0/24", AvailabilityZone=zone)["Subnet"][
        "SubnetId"
    ]
    public = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.2.0/28", AvailabilityZone=zone)["Subnet"][
        "SubnetId"
    ]
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
    ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
    ec2.associate_route_table(RouteTableId=table, SubnetId=public)
    good = ec2.create_security_group(GroupName="good", Description="d", VpcId=vpc)["GroupId"]
    bare = ec2.create_security_group(GroupName="bare", Description="d", VpcId=vpc)["GroupId"]
    itself: Any = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": good}]}]
    ec2.authorize_security_group_ingress(GroupId=good, IpPermissions=itself)
    ec2.authorize_security_group_egress(GroupId=good, IpPermissions=itself)
    fsx = boto3.client("fsx", region_name=REGION)
    made = fsx.create_file_system(
        FileSystemType="LUSTRE",
        StorageCapacity=1200,
        SubnetIds=[private],
        SecurityGroupIds=[good],
        LustreConfiguration={"DeploymentType": "SCRATCH_2"},
    )["FileSystem"]
    return {
        "private": private,
        "public": public,
        "good": good,
        "bare": bare,
        "dns": made["DNSName"],
        "mount": "abcdefgh",  # which moto does not tell
        "vpc": vpc,
    }


def _role() -> str:
    iam = boto3.client("iam")
    trust = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"Service": "sagemaker.amazonaws.com"},
                "Action": "sts:AssumeRole",
            }
        ],
    }
    arn: str = iam.create_role(RoleName="nodes", AssumeRolePolicyDocument=json.dumps(trust))["Role"]["Arn"]
    policy = {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": ["ec2:*", "logs:*", "ssmmessages:*"], "Resource": "*"},
            {
                "Effect": "Allow",
                "Action": ["s3:Get*", "s3:ListBucket"],
                "Resource": "arn:aws:s3:::sagemaker-scripts*",
            },
        ],
    }
    iam.put_role_policy(RoleName="nodes", PolicyName="inline", PolicyDocument=json.dumps(policy))
    return arn


def _scripts() -> str:
    s3 = boto3.client("s3", region_name=REGION)
    s3.create_bucket(Bucket="sagemaker-scripts", CreateBucketConfiguration={"LocationConstraint": REGION})
    s3.put_object(Bucket="sagemaker-scripts", Key="current/on_create.sh", Body=b"")
    return "s3://sagemaker-scripts/current/"


def lustre_of(cloud: Json) -> Any:
    """FSx as it answers: with the VPC and the mount name, which moto leaves out."""
    system = {
        "FileSystemType": "LUSTRE",
        "FileSystemId": cloud["dns"].split(".")[0],
        "DNSName": cloud["dns"],
        "VpcId": cloud["vpc"],
        "Lifecycle": "AVAILABLE",
        "LustreConfiguration": {"MountName": cloud["mount"]},
    }
    return stubbed("fsx", ("describe_file_systems", {"FileSystems": [system]}, ""))


def small(cloud: Json) -> Json:
    """A cluster that fits the account."""
    more = {"LifeCycleConfig": {"SourceS3Uri": cloud["source"], "OnCreate": "on_create.sh"}}
    more |= {"ExecutionRole": cloud["role"]}
    compute = {"NodeType": "Compute", "PartitionNames": ["work"]}
    groups = [
        group("head", **more, SlurmConfig={"NodeType": "Controller"}),
        group(
            "work", **more, SlurmConfig=compute, InstanceStorageConfigs=[lustre(cloud["dns"], cloud["mount"])]
        ),
    ]
    return {
        "ClusterName": "training",
        "InstanceGroups": groups,
        "Orchestrator": {"Slurm": {"SlurmConfigStrategy": "Merge"}},
        "VpcConfig": {"SecurityGroupIds": [cloud["good"]], "Subnets": [cloud["private"]]},
    }


def asked(cloud: Json, request: Json, **given: Any) -> list[tuple[str, str]]:
    usual = {"service-quotas": quotas(), "sagemaker": no_plans(), "fsx": lustre_of(cloud)}
    return pairs(live.check(files(request), aws=Aws(Session(usual | given), REGION)))


def no_plans() -> Any:
    return stubbed("sagemaker", ("list_clusters", {"ClusterSummaries": [cluster_summary("other")]}, ""))


def test_a_cluster_that_fits_has_no_findings(cloud: Json) -> None:
    assert asked(cloud, small(cloud)) == []


def test_everything_that_does_not_fit_is_told_at_once(cloud: Json) -> None:
    request = small(cloud)
    request["VpcConfig"] = {
        "SecurityGroupIds": [cloud["bare"], "sg-0000000f"],
        "Subnets": [cloud["public"], "subnet-0000000f"],
    }
    head, work = request["InstanceGroups"]
    head["ExecutionRole"] = "arn:aws:iam::123456789012:role/missing"
    head["LifeCycleConfig"] = {"SourceS3Uri": "s3://sagemaker-nowhere/x", "OnCreate": "on_create.sh"}
    work |= {"InstanceType": "ml.trn1.32xlarge", "InstanceCount": 30, "TrainingPlanArn": PLAN}
    work["LifeCycleConfig"]["OnCreate"] = "start.sh"
    work["InstanceStorageConfigs"] = [lustre(cloud["dns"], "wrong")]
    assert sorted(asked(cloud, request, sagemaker=sagemaker(PLAN_ANSWER))) == sorted(
        [
            ("/VpcConfig/Subnets/0", "public-subnet"),
            ("/VpcConfig/Subnets/1", "subnet"),
            ("/VpcConfig/Subnets", "addresses"),
            ("/VpcConfig/SecurityGroupIds/1", "security-group"),
            ("/VpcConfig/SecurityGroupIds", "self-reference"),
            ("/VpcConfig/SecurityGroupIds", "self-reference"),
            ("/InstanceGroups/0/ExecutionRole", "role"),
            ("/InstanceGroups/0/LifeCycleConfig/SourceS3Uri", "lifecycle-scripts"),
            ("/InstanceGroups/1/LifeCycleConfig/OnCreate", "lifecycle-scripts"),
            ("/InstanceGroups/1/InstanceStorageConfigs/0/FsxLustreConfig/MountName", "fsx-names"),
            ("/InstanceGroups", "quota"),
            ("/InstanceGroups", "quota"),
            ("/InstanceGroups/1/TrainingPlanArn", "training-plan"),
            ("/InstanceGroups/1/TrainingPlanArn", "training-plan"),
            ("/InstanceGroups/1/InstanceType", "training-plan"),
            ("/InstanceGroups/1/InstanceCount", "training-plan"),
            ("/InstanceGroups/1/InstanceType", "instance-offering"),
        ]
    )


def test_a_file_of_the_other_style_in_s3_is_found(cloud: Json) -> None:
    """The local files look right; HyperPod would fail and roll back."""
    s3 = boto3.client("s3")
    place = {"Bucket": "sagemaker-scripts", "Key": "current/provisioning_parameters.json"}
    s3.put_object(**place, Body=b"")
    try:
        found = asked(cloud, small(cloud))
    finally:
        s3.delete_object(**place)
    assert found == [(f"/InstanceGroups/{n}/LifeCycleConfig/SourceS3Uri", "both-styles") for n in (0, 1)]


def test_what_the_credentials_may_not_see_is_a_warning(cloud: Json) -> None:
    """Nothing else is less checked for it."""
    denied = stubbed("service-quotas", ("list_service_quotas", None, "AccessDeniedException"))
    request = small(cloud)
    request["VpcConfig"]["Subnets"] = ["subnet-0000000f"]
    found = asked(cloud, request, **{"service-quotas": denied})
    assert found == [("", "not-checked?"), ("/VpcConfig/Subnets/0", "subnet")]


def test_one_service_that_is_down_leaves_the_others_to_ask(cloud: Json) -> None:
    down = stubbed("service-quotas", ("list_service_quotas", None, "ThrottlingException"))
    request = small(cloud)
    request["VpcConfig"]["Subnets"] = ["subnet-0000000f"]
    found = asked(cloud, request, **{"service-quotas": down})
    assert found == [("", "no-answer?"), ("/VpcConfig/Subnets/0", "subnet")]


def test_a_plan_that_is_not_there(cloud: Json) -> None:
    request = small(cloud)
    request["InstanceGroups"][1]["TrainingPlanArn"] = PLAN
    assert asked(cloud, request, sagemaker=sagemaker()) == [
        ("/InstanceGroups/1/TrainingPlanArn", "training-plan")
    ]


def test_no_credentials_are_no_answer(cloud: Json) -> None:
    expired = stubbed("sts", ("get_caller_identity", None, "ExpiredToken"))
    with pytest.raises(UnreachableError, match="expired"):
        asked(cloud, small(cloud), sts=expired)


def test_nothing_is_asked_about_kubernetes() -> None:
    request = legacy()[0]
    request["Orchestrator"] = {"Eks": {"ClusterArn": "arn:aws:eks:eu-central-1:111122223333:cluster/k"}}
    assert live.check(files(request), region=REGION) == ()


def test_gather_tells_what_is_there(cloud: Json) -> None:
    session = Session({"service-quotas": quotas(), "sagemaker": no_plans()})
    facts = gather(files(small(cloud)), Aws(session, REGION))
    assert facts.unseen == ()
    assert facts.account == "123456789012"
    subnet = (facts.subnets or {})[cloud["private"]]
    assert (subnet.zone, subnet.cidr, subnet.gateway, subnet.gives_public_addresses) == (
        f"{REGION}a", "10.0.1.0/24", False, False,
    )  # fmt: skip
    assert facts.objects == {cloud["source"]: frozenset({"on_create.sh"})}
    assert (facts.roles or {})[cloud["role"]].services == {"sagemaker.amazonaws.com"}
    assert facts.clusters == {"other"}


def test_an_update_looks_at_the_cluster_that_is_there(cloud: Json) -> None:
    """moto knows no SlurmConfig: the answer is given."""
    described = {
        **cluster_summary("training"),
        "InstanceGroups": [{"InstanceGroupName": "head", "SlurmConfig": {"NodeType": "Login"}}],
    }
    client = stubbed(
        "sagemaker",
        ("list_clusters", {"ClusterSummaries": [cluster_summary("training")]}, ""),
        ("describe_cluster", described, ""),
    )
    given = {"service-quotas": quotas(), "sagemaker": client, "fsx": lustre_of(cloud)}
    found = live.check(files(small(cloud), updates=True), aws=Aws(Session(given), REGION))
    assert pairs(found) == [("/InstanceGroups/0/SlurmConfig/NodeType", "node-type")]


def test_a_name_that_nothing_at_aws_can_have_is_not_there(cloud: Json) -> None:
    """Placeholders that nobody filled in; what else is wrong is told with them."""
    request = small(cloud)
    head, work = request["InstanceGroups"]
    head["LifeCycleConfig"] = {"SourceS3Uri": "s3://${BUCKET}/src", "OnCreate": "on_create.sh"}
    work["InstanceStorageConfigs"] = [lustre("fs-1.fsx.eu-central-1.amazonaws.com")]
    request["VpcConfig"]["Subnets"] = ["subnet-0000000f"]
    found = asked(cloud, request, fsx=boto3.client("fsx", region_name=REGION))
    assert found == [
        ("/VpcConfig/Subnets/0", "subnet"),
        ("/InstanceGroups/1/InstanceStorageConfigs/0/FsxLustreConfig/DnsName", "fsx"),
        ("/InstanceGroups/0/LifeCycleConfig/SourceS3Uri", "lifecycle-scripts"),
        ("/InstanceGroups/0/ExecutionRole", "role-policies"),
    ]


@pytest.mark.parametrize("written", ["999999999999:role/nodes", "123456789012:role/hpc/nodes"])
def test_a_role_of_another_account_or_path_is_not_the_one_of_the_same_name(cloud: Json, written: str) -> None:
    request = small(cloud)
    request["InstanceGroups"][0]["ExecutionRole"] = f"arn:aws:iam::{written}"
    assert asked(cloud, request) == [("/InstanceGroups/0/ExecutionRole", "role")]


def test_a_plan_of_another_account_is_not_the_one_of_the_same_name(cloud: Json) -> None:
    request = small(cloud)
    request["InstanceGroups"][1]["TrainingPlanArn"] = PLAN.replace("123456789012", "999999999999")
    assert asked(cloud, request, sagemaker=sagemaker(PLAN_ANSWER)) == [
        ("/InstanceGroups/1/TrainingPlanArn", "training-plan")
    ]
