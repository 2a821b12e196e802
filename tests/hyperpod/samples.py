"""Clusters' files as people write them: structured like HyperPod's own samples, in words of ours."""

import copy
import json
from pathlib import Path
from typing import Any

from hpctools.hyperpod.check import Report, check
from hpctools.hyperpod.document import of_bytes
from hpctools.hyperpod.files import Files
from hpctools.hyperpod.findings import Finding

Json = dict[str, Any]

ROLE = "arn:aws:iam::111122223333:role/nodes"
SOURCE = "s3://sagemaker-cluster-111122223333/current/"
DNS = "fs-0a1b2c3d4e5f60718.fsx.eu-central-1.amazonaws.com"
ZFS_DNS = "fs-0a1b2c3d4e5f60719.fsx.eu-central-1.amazonaws.com"
NETWORK = {"SecurityGroupIds": ["sg-0a1b2c3d4e5f60718"], "Subnets": ["subnet-0a1b2c3d4e5f60718"]}


def group(name: str, kind: str = "ml.c5.xlarge", count: int = 1, **more: Any) -> Json:
    return {
        "InstanceGroupName": name,
        "InstanceType": kind,
        "InstanceCount": count,
        "LifeCycleConfig": {"SourceS3Uri": SOURCE, "OnCreate": "on_create.sh"},
        "ExecutionRole": ROLE,
        **more,
    }


def lustre(dns: str = DNS, mount: str = "abcdefgh", path: str = "/fsx") -> Json:
    return {"FsxLustreConfig": {"DnsName": dns, "MountName": mount, "MountPath": path}}


def slurmconfig() -> Json:
    """SlurmConfig in the request: a controller, login nodes, two kinds of workers."""
    return {
        "ClusterName": "training",
        "InstanceGroups": [
            group("head", SlurmConfig={"NodeType": "Controller"}),
            group("door", "ml.m5.xlarge", SlurmConfig={"NodeType": "Login"}, ThreadsPerCore=2),
            group(
                "gpu",
                "ml.p4d.24xlarge",
                8,
                SlurmConfig={"NodeType": "Compute", "PartitionNames": ["gpu-jobs"]},
                InstanceStorageConfigs=[{"EbsVolumeConfig": {"VolumeSizeInGB": 500}}, lustre()],
                OnStartDeepHealthChecks=["InstanceStress", "InstanceConnectivity"],
            ),
            group(
                "cpu",
                "ml.c5.18xlarge",
                4,
                SlurmConfig={"NodeType": "Compute", "PartitionNames": ["cpu-jobs"]},
            ),
        ],
        "Orchestrator": {"Slurm": {"SlurmConfigStrategy": "Managed"}},
        "VpcConfig": copy.deepcopy(NETWORK),
        "Tags": [{"Key": "Project", "Value": "training"}],
    }


def continuous() -> Json:
    """SlurmConfig with continuous provisioning, which takes no strategy."""
    request = slurmconfig()
    request["NodeProvisioningMode"] = "Continuous"
    request["Orchestrator"] = {"Slurm": {}}
    request["InstanceGroups"][2]["MinInstanceCount"] = 2
    return request


def legacy() -> tuple[Json, Json]:
    """The request of the legacy style, and provisioning_parameters.json."""
    request = {
        "ClusterName": "training",
        "InstanceGroups": [
            group("head", InstanceStorageConfigs=[{"EbsVolumeConfig": {"VolumeSizeInGB": 500}}]),
            group("door", "ml.m5.xlarge"),
            group("gpu", "ml.p5.48xlarge", 4, ThreadsPerCore=1),
            group("cpu", "ml.c5.18xlarge", 2),
        ],
        "VpcConfig": copy.deepcopy(NETWORK),
    }
    provisioning = {
        "version": "1.0.0",
        "workload_manager": "slurm",
        "controller_group": "head",
        "login_group": "door",
        "worker_groups": [
            {"instance_group_name": "gpu", "partition_name": "ml.p5.48xlarge"},
            {"instance_group_name": "cpu", "partition_name": "dev"},
        ],
        "fsx_dns_name": DNS,
        "fsx_mountname": "abcdefgh",
    }
    return request, provisioning


def several_controllers() -> tuple[Json, Json]:
    """Two controllers, which the legacy style alone has."""
    request, provisioning = legacy()
    request["InstanceGroups"][0]["InstanceCount"] = 2
    provisioning["slurm_configurations"] = {
        "slurm_database_secret_arn": "arn:aws:secretsmanager:eu-central-1:111122223333:secret:db-AbCdEf",
        "slurm_database_endpoint": "db.abc.eu-central-1.rds.amazonaws.com",
        "slurm_shared_directory": "/fsx",
        "slurm_database_user": "slurm",
        "slurm_sns_arn": "arn:aws:sns:eu-central-1:111122223333:failover",
    }
    return request, provisioning


def kubernetes() -> Json:
    """A cluster on EKS: none of ours, and still a good file."""
    request = legacy()[0]
    request["Orchestrator"] = {"Eks": {"ClusterArn": "arn:aws:eks:eu-central-1:111122223333:cluster/k"}}
    request["NodeRecovery"] = "Automatic"
    return request


def files(request: Any = None, provisioning: Any = None, updates: bool = False) -> Files:
    read = {
        name: of_bytes(json.dumps(value, indent=1).encode(), name)[0]
        for name, value in (("cluster.json", request), ("provisioning.json", provisioning))
        if value is not None
    }
    return Files(read.get("cluster.json"), read.get("provisioning.json"), updates)


def checked(request: Any = None, provisioning: Any = None, updates: bool = False) -> Report:
    return check(files(request, provisioning, updates))


def told(report: Report) -> list[tuple[str, str]]:
    """Pointer and rule of each finding; a warning's rule has a question mark."""
    return [
        (each.pointer, each.rule + ("?" if each.severity == "warning" else "")) for each in report.findings
    ]


def pairs(findings: tuple[Finding, ...]) -> list[tuple[str, str]]:
    return told(Report("unknown", findings))


def write(folder: Path, **texts: Any) -> dict[str, Path]:
    """Write files; their names' underscores become dots where they end in _json."""
    paths = {}
    for name, value in texts.items():
        path = folder / f"{name}.json"
        path.write_text(value if isinstance(value, str) else json.dumps(value, indent=2), encoding="utf-8")
        paths[name] = path
    return paths
