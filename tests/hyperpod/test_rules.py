"""Each rule: one change of a good cluster, and exactly the findings that it makes."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.hyperpod.samples import (
    DNS,
    NETWORK,
    ZFS_DNS,
    checked,
    continuous,
    files,
    group,
    kubernetes,
    legacy,
    lustre,
    several_controllers,
    slurmconfig,
    told,
)

G = "/InstanceGroups"
Json = dict[str, Any]


def at(value: Any, path: str) -> tuple[Any, Any]:
    """What holds a place, and the last step to it."""
    steps: list[Any] = [int(step) if step.isdigit() else step for step in path.strip("/").split("/")]
    for step in steps[:-1]:
        value = value[step]
    return value, steps[-1]


def put(base: Callable[[], Json], **changes: Any) -> Json:
    """A copy of a request with places set (None deletes); `__` between steps."""
    request = copy.deepcopy(base())
    for path, new in changes.items():
        holder, key = at(request, path.replace("__", "/"))
        if new is None:
            del holder[key]
        else:
            holder[key] = new
    return request


REQUESTS = [
    # The service model: keys, types, limits, patterns, choices.
    (put(slurmconfig, ClusterName="a_b"), [("/ClusterName", "pattern")]),
    (put(slurmconfig, ClusterName="x" * 64), [("/ClusterName", "limit")]),
    (put(slurmconfig, ClusterName=None), [("", "missing-key")]),
    (put(slurmconfig, ClusterName=7), [("/ClusterName", "type")]),
    (put(slurmconfig, Nodes=[]), [("/Nodes", "unknown-key")]),
    (put(slurmconfig, InstanceGroups__0__InstanceCount="1"), [(f"{G}/0/InstanceCount", "type")]),
    (put(slurmconfig, InstanceGroups__0__InstanceCount=True), [(f"{G}/0/InstanceCount", "type")]),
    (put(slurmconfig, InstanceGroups__2__InstanceCount=6759), [(f"{G}/2/InstanceCount", "limit")]),
    (put(slurmconfig, InstanceGroups__2__InstanceType="ml.p4d.24xlarg"), [(f"{G}/2/InstanceType", "choice")]),
    (put(slurmconfig, InstanceGroups__2__ExecutionRole=None), [(f"{G}/2", "missing-key")]),
    (put(slurmconfig, InstanceGroups__2__ThreadsPerCore=4), [(f"{G}/2/ThreadsPerCore", "limit")]),
    (put(slurmconfig, NodeRecovery="automatic"), [("/NodeRecovery", "choice")]),
    (put(slurmconfig, VpcConfig__Subnets=[]), [("/VpcConfig/Subnets", "limit")]),
    (put(slurmconfig, Tags=[{"Key": "a,b", "Value": "Zürich 1"}]), [("/Tags/0/Key", "pattern")]),
    (put(slurmconfig, InstanceGroups=None), [("", "missing-key")]),
    (put(slurmconfig, InstanceGroups={}), [("/InstanceGroups", "type")]),
    (
        put(slurmconfig, InstanceGroups__2__InstanceStorageConfigs=[{**lustre(), "EbsVolumeConfig": {}}]),
        [
            (f"{G}/2/InstanceStorageConfigs/0", "union"),
            (f"{G}/2/InstanceStorageConfigs/0/EbsVolumeConfig", "storage"),
        ],
    ),
    (
        put(slurmconfig, InstanceGroups__2__SlurmConfig__PartitionNames=["a", "b"]),
        [(f"{G}/2/SlurmConfig/PartitionNames", "limit")],
    ),
    (
        put(slurmconfig, InstanceGroups__2__SlurmConfig__PartitionNames=["ml.p4d"]),
        [(f"{G}/2/SlurmConfig/PartitionNames/0", "pattern")],
    ),
    (
        put(slurmconfig, InstanceGroups__0__SlurmConfig__NodeType="Head"),
        [
            ("/InstanceGroups", "one-controller"),
            (f"{G}/0/SlurmConfig/NodeType", "choice"),
        ],
    ),
    # The request as a whole.
    (put(slurmconfig, Orchestrator={}), [("/Orchestrator", "one-orchestrator"), ("", "strategy?")]),
    (
        put(slurmconfig, InstanceGroups__3__InstanceGroupName="gpu"),
        [(f"{G}/3/InstanceGroupName", "repeated")],
    ),
    (
        put(slurmconfig, Tags=[{"Key": "a", "Value": "1"}, {"Key": "a", "Value": "2"}]),
        [("/Tags/1/Key", "repeated")],
    ),
    (put(slurmconfig, Tags=[{"Key": "AWS:a", "Value": "1"}]), [("/Tags/0/Key", "reserved-tag")]),
    (put(slurmconfig, VpcConfig__Subnets=["subnet-1", "subnet-1"]), [("/VpcConfig/Subnets/1", "repeated")]),
    (
        put(slurmconfig, InstanceGroups__2__OverrideVpcConfig=NETWORK),
        [(f"{G}/2/OverrideVpcConfig", "override-vpc?")],
    ),
    (put(slurmconfig, AutoScaling={"Mode": "Enable"}), [("/AutoScaling", "kubernetes-only")]),
    (
        put(slurmconfig, InstanceGroups__2__KubernetesConfig={}),
        [(f"{G}/2/KubernetesConfig", "kubernetes-only")],
    ),
    (
        put(kubernetes, InstanceGroups__2__SlurmConfig={"NodeType": "Compute"}),
        [
            (f"{G}/2/SlurmConfig", "slurm-only"),
            (f"{G}/2/SlurmConfig", "partition-names"),
        ],
    ),
    (
        put(
            slurmconfig,
            InstanceGroups__3__TrainingPlanArn="arn:aws:sagemaker:us-west-2:111122223333:training-plan/p",
        ),
        [(f"{G}/3/TrainingPlanArn", "one-region?")],
    ),
    # Instance groups.
    (put(slurmconfig, InstanceGroups__2__InstanceType=None), [(f"{G}/2", "instance-type")]),
    (
        put(slurmconfig, InstanceGroups__2__InstanceRequirements={"InstanceTypes": ["ml.p5.48xlarge"]}),
        [(f"{G}/2", "instance-type")],
    ),
    (put(slurmconfig, InstanceGroups__2__MinInstanceCount=2), [(f"{G}/2/MinInstanceCount", "min-count")]),
    (put(continuous, InstanceGroups__2__MinInstanceCount=9), [(f"{G}/2/MinInstanceCount", "min-count")]),
    (
        put(slurmconfig, InstanceGroups__0__LifeCycleConfig={"OnCreate": "a.sh"}),
        [(f"{G}/0/LifeCycleConfig", "lifecycle")],
    ),
    (
        put(slurmconfig, InstanceGroups__0__LifeCycleConfig__SourceS3Uri="s3://my-bucket/src"),
        [(f"{G}/0/LifeCycleConfig/SourceS3Uri", "lifecycle-prefix?")],
    ),
    (
        put(slurmconfig, InstanceGroups__0__LifeCycleConfig__SourceS3Uri="https://example.edu/src"),
        [(f"{G}/0/LifeCycleConfig/SourceS3Uri", "lifecycle-prefix")],
    ),
    (
        put(slurmconfig, InstanceGroups__0__LifeCycleConfig__OnCreate="../on_create.sh"),
        [(f"{G}/0/LifeCycleConfig/OnCreate", "lifecycle")],
    ),
    (
        put(slurmconfig, InstanceGroups__2__InstanceStorageConfigs=[lustre(), lustre(ZFS_DNS, path="/b")]),
        [(f"{G}/2/InstanceStorageConfigs/1", "storage")],
    ),
    (
        put(
            slurmconfig,
            InstanceGroups__2__InstanceStorageConfigs=[
                lustre(path="/home/"),
                {"FsxOpenZfsConfig": {"DnsName": ZFS_DNS}},
            ],
        ),
        [(f"{G}/2/InstanceStorageConfigs/1/FsxOpenZfsConfig", "storage")],
    ),
    (
        put(
            slurmconfig,
            InstanceGroups__2__InstanceStorageConfigs=[
                {"EbsVolumeConfig": {"RootVolume": True, "VolumeSizeInGB": 5}},
                {"EbsVolumeConfig": {"VolumeKmsKeyId": "k"}},
            ],
        ),
        [
            (f"{G}/2/InstanceStorageConfigs/0/EbsVolumeConfig", "storage"),
            (f"{G}/2/InstanceStorageConfigs/0/EbsVolumeConfig/VolumeSizeInGB", "storage"),
            (f"{G}/2/InstanceStorageConfigs/1/EbsVolumeConfig", "storage"),
        ],
    ),
    (
        put(slurmconfig, VpcConfig=None),
        [(f"{G}/2/InstanceStorageConfigs/1/FsxLustreConfig", "fsx-needs-vpc")],
    ),
    (
        put(slurmconfig, InstanceGroups__2__CapacityRequirements={"Spot": {}, "OnDemand": {}}),
        [(f"{G}/2/CapacityRequirements", "capacity")],
    ),
    (
        put(
            slurmconfig,
            InstanceGroups__2__CapacityRequirements={"Spot": {}},
            InstanceGroups__2__TrainingPlanArn="arn:aws:sagemaker:eu-central-1:111122223333:training-plan/p",
        ),
        [(f"{G}/2/TrainingPlanArn", "capacity")],
    ),
    (
        put(slurmconfig, InstanceGroups__2__OnStartDeepHealthChecks=["InstanceStress", "InstanceStress"]),
        [(f"{G}/2/OnStartDeepHealthChecks/1", "repeated")],
    ),
    # Slurm in the request.
    (put(slurmconfig, InstanceGroups__3__SlurmConfig=None), [(f"{G}/3", "node-type")]),
    (
        put(slurmconfig, InstanceGroups__0__SlurmConfig__NodeType="Login"),
        [
            ("/InstanceGroups", "one-controller"),
            (f"{G}/1/SlurmConfig/NodeType", "one-login-group"),
        ],
    ),
    (
        put(slurmconfig, InstanceGroups__1__SlurmConfig__NodeType="Controller"),
        [(f"{G}/1/SlurmConfig/NodeType", "one-controller")],
    ),
    (put(slurmconfig, InstanceGroups__0__InstanceCount=2), [(f"{G}/0/InstanceCount", "one-controller")]),
    (put(slurmconfig, InstanceGroups__0__InstanceCount=0), [(f"{G}/0/InstanceCount", "one-controller")]),
    (
        put(slurmconfig, InstanceGroups__2__SlurmConfig={"NodeType": "Compute"}),
        [(f"{G}/2/SlurmConfig", "partition-names")],
    ),
    (
        put(slurmconfig, InstanceGroups__2__SlurmConfig={"NodeType": "Compute", "PartitionNames": []}),
        [(f"{G}/2/SlurmConfig", "partition-names")],
    ),
    (
        put(slurmconfig, InstanceGroups__0__SlurmConfig__PartitionNames=["p"]),
        [(f"{G}/0/SlurmConfig/PartitionNames", "partition-names")],
    ),
    (
        put(slurmconfig, InstanceGroups__2__SlurmConfig__PartitionNames=["dev"]),
        [(f"{G}/2/SlurmConfig/PartitionNames/0", "partition-name?")],
    ),
    (
        put(slurmconfig, InstanceGroups__2__SlurmConfig__PartitionNames=["DEFAULT"]),
        [(f"{G}/2/SlurmConfig/PartitionNames/0", "partition-name")],
    ),
    (
        put(slurmconfig, InstanceGroups=slurmconfig()["InstanceGroups"][:1]),
        [("/InstanceGroups", "no-compute?")],
    ),
    (
        put(continuous, Orchestrator={"Slurm": {"SlurmConfigStrategy": "Merge"}}),
        [("/Orchestrator/Slurm/SlurmConfigStrategy", "strategy")],
    ),
    (put(slurmconfig, Orchestrator={"Slurm": {}}), [("/Orchestrator/Slurm", "strategy?")]),
    (
        put(
            slurmconfig,
            Orchestrator__Slurm__AccountingDatabase={
                "Endpoint": "db.example.edu",
                "SecretArn": "arn:aws:secretsmanager:eu-central-1:111122223333:secret:db",
            },
        ),
        [("/Orchestrator/Slurm/AccountingDatabase", "accounting-database")],
    ),
]


@pytest.mark.parametrize(("request_", "expected"), REQUESTS, ids=range(len(REQUESTS)))
def test_one_fault_of_a_request_is_one_finding(request_: Json, expected: list[tuple[str, str]]) -> None:
    assert sorted(told(checked(request_))) == sorted(expected)


def named(**changes: Any) -> tuple[Json, Json]:
    request, provisioning = legacy()
    return request, put(lambda: provisioning, **changes)


def grouped(**changes: Any) -> tuple[Json, Json]:
    request, provisioning = legacy()
    return put(lambda: request, **changes), provisioning


LEGACY = [
    (named(version="1.0"), [("/version", "choice")]),
    (named(workload_manager=None), [("", "missing-key")]),
    (
        named(controller_group="haed"),
        [(f"{G}/0/InstanceGroupName", "group-without-part"), ("/controller_group", "unknown-group")],
    ),
    (
        named(login_group="dor"),
        [(f"{G}/1/InstanceGroupName", "group-without-part"), ("/login_group", "unknown-group")],
    ),
    (named(login_group=""), [(f"{G}/1/InstanceGroupName", "group-without-part"), ("/login_group", "empty?")]),
    (
        named(login_group=["door"]),
        [(f"{G}/1/InstanceGroupName", "group-without-part"), ("/login_group", "type")],
    ),
    (
        named(worker_groups={}),
        [
            (f"{G}/2/InstanceGroupName", "group-without-part"),
            (f"{G}/3/InstanceGroupName", "group-without-part"),
            ("/worker_groups", "type"),
        ],
    ),
    (
        named(worker_groups__1__instance_group_name="gpu"),
        [
            (f"{G}/3/InstanceGroupName", "group-without-part"),
            ("/worker_groups/1/instance_group_name", "one-part-each"),
        ],
    ),
    (
        named(worker_groups__1__instance_group_name="Cpu"),
        [
            (f"{G}/3/InstanceGroupName", "group-without-part"),
            ("/worker_groups/1/instance_group_name", "unknown-group"),
        ],
    ),
    (named(worker_groups__1__partition_name="a b"), [("/worker_groups/1/partition_name", "partition-name")]),
    (
        named(worker_groups__1__partition_name="default"),
        [("/worker_groups/1/partition_name", "partition-name")],
    ),
    (named(worker_groups__1__partition_name=None), [("/worker_groups/1", "missing-key")]),
    (named(login_groups="door"), [("/login_groups", "unknown-key?")]),
    (named(efs_id="fs-1"), [("/efs_id", "unknown-key?")]),
    (named(fsx_mountname=None), [("", "fsx-pair")]),
    (named(fsx_mountname="/fsx"), [("/fsx_mountname", "pattern")]),
    (named(fsx_dns_name="fs-XXXX.fsx"), [("/fsx_dns_name", "limit")]),
    (grouped(VpcConfig=None), [("/fsx_dns_name", "fsx-needs-vpc")]),
    (grouped(InstanceGroups__0__InstanceCount=2), [(f"{G}/0/InstanceCount", "several-controllers")]),
    (grouped(InstanceGroups__0__InstanceCount=0), [(f"{G}/0/InstanceCount", "one-controller")]),
    (grouped(InstanceGroups__0__LifeCycleConfig=None), [(f"{G}/0", "lifecycle")]),
    (
        grouped(InstanceGroups__2__InstanceStorageConfigs=[lustre(ZFS_DNS, "zzzz")]),
        [
            (f"{G}/2/InstanceStorageConfigs/0/FsxLustreConfig", "fsx-style"),
            (f"{G}/2/InstanceStorageConfigs/0/FsxLustreConfig/DnsName", "fsx-names"),
            (f"{G}/2/InstanceStorageConfigs/0/FsxLustreConfig/MountName", "fsx-names"),
        ],
    ),
    (grouped(NodeProvisioningMode="Continuous"), [("/NodeProvisioningMode", "continuous")]),
    (
        grouped(InstanceGroups=[*legacy()[0]["InstanceGroups"], group("late")]),
        [(f"{G}/4/InstanceGroupName", "group-without-part")],
    ),
]


@pytest.mark.parametrize(("given", "expected"), LEGACY, ids=range(len(LEGACY)))
def test_one_fault_between_legacy_files_is_told(
    given: tuple[Json, Json], expected: list[tuple[str, str]]
) -> None:
    assert sorted(told(checked(*given))) == sorted(expected)


def test_both_styles_at_once() -> None:
    report = checked(slurmconfig(), legacy()[1])
    assert report.style == "mixed"
    assert ("", "both-styles") in told(report)


def test_the_legacy_file_alone_is_checked_by_itself_and_says_so() -> None:
    assert told(checked(None, legacy()[1])) == [("", "no-request?")]


def test_what_several_controllers_share_is_on_a_file_system() -> None:
    request, provisioning = several_controllers()
    del provisioning["fsx_dns_name"], provisioning["fsx_mountname"]
    assert told(checked(request, provisioning)) == [
        ("/slurm_configurations/slurm_shared_directory", "shared-folder?")
    ]


def test_neither_style() -> None:
    assert told(checked(legacy()[0])) == [("", "no-slurm")]


def test_what_several_controllers_share_has_every_part_of_its_form() -> None:
    request, provisioning = several_controllers()
    provisioning["slurm_configurations"] |= {"slurm_sns_arn": "failover", "slurm_shared_directory": 7}
    del provisioning["slurm_configurations"]["slurm_database_user"]
    assert sorted(told(checked(request, provisioning))) == [
        ("/slurm_configurations", "missing-key"),
        ("/slurm_configurations/slurm_shared_directory", "type"),
        ("/slurm_configurations/slurm_sns_arn", "pattern"),
    ]


def test_a_pointer_with_a_line_and_a_remedy_stands_in_each_finding() -> None:
    request = put(slurmconfig, InstanceGroups__2__SlurmConfig__PartitionName="x")
    (finding,) = checked(request).findings
    lines = (files(request).cluster or pytest.fail("no cluster")).lines
    assert finding.line == lines[("InstanceGroups", 2, "SlurmConfig", "PartitionName")] > 1
    assert str(finding) == (
        f"cluster.json:{finding.line}: /InstanceGroups/2/SlurmConfig/PartitionName the key 'PartitionName';"
        " write PartitionNames [unknown-key]"
    )


def test_aws_own_validator_says_succeeded_of_this_and_we_say_all_of_it() -> None:
    """Six faults, three of which it tells before it forgets them: its last check overwrites the verdict."""
    request, provisioning = legacy()
    request["InstanceGroups"][0]["InstanceGroupName"] = "controller-machine"
    request["InstanceGroups"][1]["InstanceCount"] = "1"
    provisioning |= {"login_group": "login", "fsx_mountname": "/fsx", "fsx_dns_name": DNS.upper()}
    provisioning["worker_groups"][0]["instance_group_name"] = "gpus"
    report = checked(request, provisioning)
    assert {rule for _, rule in told(report)} == {"unknown-group", "group-without-part", "type", "pattern"}
    assert [pointer for pointer, rule in told(report) if rule == "unknown-group"] == [
        "/controller_group",
        "/login_group",
        "/worker_groups/0/instance_group_name",
    ]


def test_fsx_is_no_duty() -> None:
    """AWS's own validator asks for fsx_dns_name and fsx_mountname of everybody."""
    request, provisioning = legacy()
    del provisioning["fsx_dns_name"], provisioning["fsx_mountname"]
    assert told(checked(request, provisioning)) == []
