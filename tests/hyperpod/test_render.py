"""A site's files: the examples word by word, and what sites say that turns up in them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.validate import ParamValidator
from moto import mock_aws

from hpctools.errors import HpctoolsError
from hpctools.hyperpod import service_model
from hpctools.hyperpod.check import check
from hpctools.hyperpod.partitions import agent_partitions
from hpctools.hyperpod.render import Rendered, files_of, render
from hpctools.hyperpod.surroundings import surroundings
from hpctools.hyperpod.tags import cluster_tags
from hpctools.site import InvalidSiteError, Site, load, loads
from tests.hyperpod.conftest import GOLDEN
from tests.hyperpod.stack_outputs import LIFECYCLE, RAW, outputs

EXAMPLES = Path(__file__).parents[2] / "slurm-conf/examples"
Golden = Callable[[str, str], None]


def example(name: str) -> Site:
    return load(EXAMPLES / name / "site.yaml")


def rendered(name: str) -> Rendered:
    site = example(name)
    if name == "university":
        return render(site, surroundings(site, outputs(site), LIFECYCLE))
    return render(site, surroundings(site, None))


@pytest.mark.parametrize("name", ["university", "own-network", "two-controllers"])
def test_examples_word_by_word(name: str, golden: Golden) -> None:
    files = rendered(name).files
    for file, text in files.items():
        golden(f"{name}/{file}", text)
    assert files.keys() == {path.name for path in (GOLDEN / name).iterdir()}


@pytest.mark.parametrize("name", ["university", "own-network", "two-controllers"])
def test_what_is_rendered_has_no_findings_at_all_and_is_the_same_again(name: str) -> None:
    once = rendered(name)
    assert check(files_of(once)).findings == ()
    assert once.files == rendered(name).files


MINIMAL = """
cluster: {name: small, controllers: [ctl-1], provider: hyperpod}
node_groups:
  - {name: gpu, instance_type: ml.g5.xlarge, count: 2, gpus: {type: a10g, count: 1}}
departments:
  - {name: bio, supervisor: ada, partition: {node_groups: [gpu]}}
tiers:
  normal: {priority: 1, default: true}
hyperpod:
  execution_role: arn:aws:iam::111122223333:role/r
  network: {subnets: [subnet-0a1b2c3d], security_groups: [sg-0a1b2c3d]}
  lifecycle_source: s3://sagemaker-a
"""


def request_of(text: str) -> dict[str, Any]:
    site = loads(text)
    return render(site, surroundings(site, None)).request


def group(request: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(g for g in request["InstanceGroups"] if g["InstanceGroupName"] == name)
    return found


def test_the_smallest_site() -> None:
    request = request_of(MINIMAL)
    assert [each["InstanceGroupName"] for each in request["InstanceGroups"]] == ["controller", "gpu"]
    assert group(request, "gpu") == {
        "InstanceGroupName": "gpu",
        "InstanceType": "ml.g5.xlarge",
        "InstanceCount": 2,
        "SlurmConfig": {"NodeType": "Compute", "PartitionNames": ["gpu"]},
        "LifeCycleConfig": {"SourceS3Uri": "s3://sagemaker-a/", "OnCreate": "on_create.sh"},
        "ExecutionRole": "arn:aws:iam::111122223333:role/r",
        "ThreadsPerCore": 2,
    }
    assert request["Orchestrator"] == {"Slurm": {"SlurmConfigStrategy": "Merge"}}
    assert "NodeProvisioningMode" not in request


def test_threads_are_those_that_slurm_counts() -> None:
    text = MINIMAL.replace(
        "gpus: {type: a10g, count: 1}}",
        "gpus: {type: a10g, count: 1},"
        " hardware: {sockets: 1, cores_per_socket: 2, threads_per_core: 1, memory_mib: 15000}}",
    )
    assert group(request_of(text), "gpu")["ThreadsPerCore"] == 1


def test_a_partition_of_the_agents_is_never_called_like_one_of_the_sites() -> None:
    text = MINIMAL.replace("name: bio,", "name: gpu,")
    assert agent_partitions(loads(text)) == {"gpu": "gpu-nodes"}
    assert agent_partitions(loads(MINIMAL.replace("name: gpu,", "name: dev,").replace("[gpu]", "[dev]"))) == {
        "dev": "dev-nodes"
    }


def test_tags_name_cluster_departments_and_capacity() -> None:
    assert cluster_tags(example("university")) == {
        "ClusterName": "uni-gpu",
        "hpctools:department": "nlp+cv+dl",
        "hpctools:capacity": "on-demand+reserved+spot",
        "CostCentre": "4711",
        "Project": "research-computing",
    }


def test_the_sites_tags_win_but_not_over_the_clusters_name() -> None:
    text = MINIMAL + "  tags: {'hpctools:department': all, ClusterName: other}\n"
    assert cluster_tags(loads(text)) == {
        "ClusterName": "small",
        "hpctools:department": "all",
        "hpctools:capacity": "own",
    }


def test_many_departments_fit_into_a_tag() -> None:
    several = "".join(f"  - {{name: department-number-{n}, supervisor: a{n}}}\n" for n in range(20))
    text = MINIMAL.replace("tiers:\n", several + "tiers:\n")
    assert cluster_tags(loads(text))["hpctools:department"] == "21 departments"


def test_all_gaps_are_told_at_once() -> None:
    site = example("university")
    with pytest.raises(HpctoolsError) as caught:
        surroundings(site, None)
    assert caught.value.message == (
        "nothing says hyperpod.execution_role, hyperpod.network, hyperpod.lifecycle_source,"
        " aws.file_systems scratch, aws.file_systems home"
    )


def test_each_role_is_the_stacks() -> None:
    roles = {
        each["InstanceGroupName"]: each["ExecutionRole"]
        for each in rendered("university").request["InstanceGroups"]
    }
    assert roles == {
        "controller": RAW["ControllerRoleArn"],
        "login": RAW["LoginRoleArn"],
        "reserved": RAW["ComputeRoleArn"],
        "shared": RAW["ComputeRoleArn"],
        "spot": RAW["ComputeRoleArn"],
    }


def test_files_are_json_that_ends_with_a_line() -> None:
    for text in rendered("two-controllers").files.values():
        assert json.loads(text)
        assert text.endswith("}\n")


def test_managed_is_for_sites_without_partitions_of_their_own() -> None:
    """A department without a partition: jobs run in HyperPod's own."""
    text = MINIMAL.replace(", partition: {node_groups: [gpu]}", "") + "  strategy: managed\n"
    assert request_of(text)["Orchestrator"] == {"Slurm": {"SlurmConfigStrategy": "Managed"}}


@pytest.mark.parametrize("name", ["university", "own-network", "two-controllers"])
def test_botocore_would_send_what_is_rendered(name: str) -> None:
    report = ParamValidator().validate(rendered(name).request, service_model.request("CreateCluster"))
    assert report.generate_report() == ""


def test_moto_makes_a_cluster_of_what_is_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The university alone: moto knows neither InstanceRequirements nor newer types."""
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(key, "x")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    request = rendered("university").request
    with mock_aws():
        client = boto3.client("sagemaker", region_name="eu-central-1")
        client.create_cluster(**request)
        made = client.describe_cluster(ClusterName=request["ClusterName"])
        tags = client.list_tags(ResourceArn=made["ClusterArn"])["Tags"]
    groups = {each["InstanceGroupName"]: each["TargetCount"] for each in made["InstanceGroups"]}
    assert groups == {"controller": 1, "login": 2, "reserved": 4, "shared": 2, "spot": 0}
    assert tags == request["Tags"]


def test_what_hyperpod_would_refuse_is_not_written() -> None:
    """The instance type exists on EC2 and not on SageMaker: only the check of the result knows."""
    text = MINIMAL.replace("instance_type: ml.g5.xlarge", "instance_type: ml.r5.24xlarge").replace(
        ", gpus: {type: a10g, count: 1}", ""
    )
    with pytest.raises(HpctoolsError, match=r"/InstanceGroups/1/InstanceType 'ml.r5.24xlarge'"):
        request_of(text)


FINDINGS = [
    ("  node_groups: {cpu: {ebs_gib: 5}}\n", "hyperpod.node_groups.cpu", "one of: gpu"),
    ("  node_groups: {gpu: {min_count: 1}}\n", "hyperpod.node_groups.gpu.min_count", "continuous: true"),
    (
        "  continuous: true\n  node_groups: {gpu: {min_count: 3}}\n",
        "hyperpod.node_groups.gpu.min_count",
        "at most 2",
    ),
    (
        "  node_groups: {gpu: {partition: bio}}\n",
        "hyperpod.node_groups.gpu.partition",
        "a name that no other",
    ),
    ("  controller: {group: gpu}\n", "hyperpod.controller.group", "a name that no node group has"),
    ("  continuous: true\n  style: legacy\n", "hyperpod.style", "slurmconfig"),
    ("  continuous: true\n  strategy: merge\n", "hyperpod.strategy", "nothing: continuous"),
    ("  strategy: overwrite\n", "hyperpod.strategy", "merge: the site's partitions"),
    ("  style: legacy\n  strategy: merge\n", "hyperpod.strategy", "nothing: the legacy style"),
    (
        "  failover: {topic: 'arn:aws:sns:eu-central-1:111122223333:t'}\n",
        "hyperpod.failover",
        "nothing, or several",
    ),
    (
        "  accounting_database:\n    endpoint: db\n"
        "    secret: arn:aws:secretsmanager:eu-central-1:111122223333:secret:x\n",
        "hyperpod.accounting_database",
        "continuous: true beside it",
    ),
    ("  execution_role: nodes\n", "hyperpod.execution_role", "the ARN of a role"),
    ("  style: both\n", "hyperpod.style", "legacy"),
]


@pytest.mark.parametrize(("more", "path", "expected"), FINDINGS, ids=[path for _, path, _ in FINDINGS])
def test_a_site_that_hyperpod_would_refuse_has_a_finding(more: str, path: str, expected: str) -> None:
    base = (
        MINIMAL.replace("  execution_role: arn:aws:iam::111122223333:role/r\n", "")
        if "role: n" in more
        else MINIMAL
    )
    with pytest.raises(InvalidSiteError) as caught:
        loads(base + more)
    assert [(finding.path, expected in finding.expected) for finding in caught.value.findings] == [
        (path, True)
    ]


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("name: small", "name: small_one", "cluster.name"),
        ("instance_type: ml.g5.xlarge", "instance_type: g5.xlarge", "node_groups[0].instance_type"),
        ("name: bio,", "name: dev,", "departments[0].partition"),
    ],
)
def test_names_that_hyperpod_does_not_take_have_a_finding(old: str, new: str, path: str) -> None:
    with pytest.raises(InvalidSiteError) as caught:
        loads(MINIMAL.replace(old, new))
    assert [finding.path for finding in caught.value.findings] == [path]


def test_power_saving_has_a_finding_since_it_would_know_no_node_that_stays() -> None:
    power = "provider: hyperpod, power_saving: {resume_program: /opt/r, suspend_program: /opt/s}}"
    with pytest.raises(InvalidSiteError) as caught:
        loads(MINIMAL.replace("provider: hyperpod}", power))
    assert [finding.path for finding in caught.value.findings] == ["cluster.power_saving"]


def test_several_controllers_need_what_they_share() -> None:
    with pytest.raises(InvalidSiteError) as caught:
        loads(MINIMAL.replace("[ctl-1]", "[ctl-1, ctl-2]"))
    assert sorted(finding.expected.split(":")[0].split(",")[0] for finding in caught.value.findings) == [
        "hyperpod.accounting_database",
        "hyperpod.failover",
    ]
