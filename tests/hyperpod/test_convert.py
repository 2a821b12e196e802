"""From one style to the other: what both can say comes back as it was, the rest is told."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctools.errors import HpctoolsError
from hpctools.hyperpod.convert import Converted, to_legacy, to_slurmconfig
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

Json = dict[str, Any]
NAMES = st.from_regex(r"[a-z](-?[a-z0-9]){0,8}", fullmatch=True)
PARTITIONS = st.from_regex(r"[a-z](-?[a-z0-9]){0,8}", fullmatch=True).filter(
    lambda name: name not in ("dev", "all", "default")
)
VOLUMES = st.lists(st.integers(1, 16384), max_size=1)


@st.composite
def legacy_clusters(draw: st.DrawFn) -> tuple[Json, Json]:
    """Clusters that both styles can describe: one file system of each kind, for all nodes."""
    names = draw(st.lists(NAMES, min_size=2, max_size=6, unique=True))
    has_login = draw(st.booleans()) and len(names) > 2
    groups = [group(name, count=1 if name == names[0] else draw(st.integers(0, 64))) for name in names]
    for each in groups:
        sizes = draw(VOLUMES)
        if sizes:
            each["InstanceStorageConfigs"] = [{"EbsVolumeConfig": {"VolumeSizeInGB": sizes[0]}}]
    workers = names[2:] if has_login else names[1:]
    provisioning: Json = {"version": "1.0.0", "workload_manager": "slurm", "controller_group": names[0]}
    if has_login:
        provisioning["login_group"] = names[1]
    provisioning["worker_groups"] = [
        {"instance_group_name": name, "partition_name": draw(PARTITIONS)} for name in workers
    ]
    if draw(st.booleans()):
        provisioning |= {"fsx_dns_name": DNS, "fsx_mountname": "abcdefgh"}
    if draw(st.booleans()):
        provisioning["fsx_openzfs_dns_name"] = ZFS_DNS
    return {"ClusterName": "c", "InstanceGroups": groups, "VpcConfig": dict(NETWORK)}, provisioning


@settings(max_examples=60)
@given(legacy_clusters())
def test_there_and_back_again(cluster: tuple[Json, Json]) -> None:
    before = copy.deepcopy(cluster)
    there = to_slurmconfig(files(*cluster))
    assert cluster == before
    assert there.lost == ()
    assert there.provisioning is None
    assert told(checked(there.request)) == []
    back = to_legacy(files(there.request))
    assert back.lost == ()
    assert (back.request, back.provisioning) == cluster
    again = to_slurmconfig(files(back.request, back.provisioning))
    assert again.request == there.request


def test_every_part_finds_its_place() -> None:
    made = to_slurmconfig(files(*legacy()))
    parts = {each["InstanceGroupName"]: each["SlurmConfig"] for each in made.request["InstanceGroups"]}
    assert parts == {
        "head": {"NodeType": "Controller"},
        "door": {"NodeType": "Login"},
        "gpu": {"NodeType": "Compute", "PartitionNames": ["ml-p5-48xlarge"]},
        "cpu": {"NodeType": "Compute", "PartitionNames": ["dev"]},
    }
    assert all(each["InstanceStorageConfigs"][-1] == lustre() for each in made.request["InstanceGroups"])
    assert made.request["Orchestrator"] == {"Slurm": {"SlurmConfigStrategy": "Merge"}}
    assert made.changed[0].startswith("partition ml.p5.48xlarge is called ml-p5-48xlarge: ")
    assert "take provisioning_parameters.json away" in made.changed[-1]


def test_partitions_that_would_fall_together_stay_apart() -> None:
    request, provisioning = legacy()
    workers = provisioning["worker_groups"]
    workers[0]["partition_name"], workers[1]["partition_name"] = "ml.p5", "ml_p5"
    request["InstanceGroups"].append(group("late"))
    workers.append({"instance_group_name": "late", "partition_name": "ml-p5"})
    made = to_slurmconfig(files(request, provisioning))
    names = [each["SlurmConfig"].get("PartitionNames") for each in made.request["InstanceGroups"][2:]]
    assert names == [["ml-p5-2"], ["ml-p5-3"], ["ml-p5"]]


def test_what_scripts_of_your_own_read_is_lost_and_said() -> None:
    request, provisioning = legacy()
    made = to_slurmconfig(files(request, provisioning | {"efs_id": "fs-1"}))
    assert made.lost == ("efs_id: only scripts of your own read it",)


def test_several_controllers_stay_where_they_are() -> None:
    with pytest.raises(HpctoolsError, match="2 controllers: SlurmConfig has one only"):
        to_slurmconfig(files(*several_controllers()))
    request, provisioning = several_controllers()
    request["InstanceGroups"][0]["InstanceCount"] = 1
    (lost,) = to_slurmconfig(files(request, provisioning)).lost
    assert lost.startswith("slurm_configurations: ")


def test_what_the_legacy_style_has_no_word_for_is_lost_and_said() -> None:
    request = continuous()
    request["InstanceGroups"][2]["InstanceStorageConfigs"] = [lustre(path="/scratch")]
    request["InstanceGroups"][3]["InstanceStorageConfigs"] = [lustre(ZFS_DNS)]
    request["Orchestrator"]["Slurm"]["AccountingDatabase"] = {
        "Endpoint": "db.example.edu",
        "SecretArn": "arn:aws:secretsmanager:eu-central-1:111122223333:secret:db",
    }
    made = to_legacy(files(request))
    assert [lost.split(":")[0] for lost in made.lost] == [
        "MountPath /scratch of gpu",
        f"{ZFS_DNS} of cpu",
        "MinInstanceCount of gpu",
        "AccountingDatabase",
        "NodeProvisioningMode Continuous",
    ]
    assert made.changed[0] == f"head, door mount {DNS} too, as all nodes do from now on"
    assert told(checked(made.request, made.provisioning)) == []


def test_a_strategy_that_does_not_merge_is_lost() -> None:
    assert to_legacy(files(slurmconfig())).lost == (
        "SlurmConfigStrategy Managed: the legacy style always merges",
    )


def refused(convert: Any, *given: Any) -> str:
    report = checked(*given)
    with pytest.raises(HpctoolsError) as caught:
        convert(files(*given), report.errors)
    return str(caught.value)


def test_files_of_the_wrong_style_or_with_errors_are_refused() -> None:
    assert "not of the style legacy" in refused(to_slurmconfig, slurmconfig())
    assert "not of the style slurmconfig" in refused(to_legacy, *legacy())
    assert "not of the style slurmconfig" in refused(to_legacy, kubernetes())
    assert "have errors" in refused(to_slurmconfig, legacy()[0])
    assert "have errors" in refused(to_slurmconfig, None, {"version": "1"})
    assert "not of the style slurmconfig" in refused(to_legacy, None, legacy()[1])
    broken = slurmconfig()
    del broken["InstanceGroups"][2]["SlurmConfig"]["PartitionNames"]
    assert "have errors" in refused(to_legacy, broken)


def test_results_are_values() -> None:
    assert isinstance(to_legacy(files(slurmconfig())), Converted)
