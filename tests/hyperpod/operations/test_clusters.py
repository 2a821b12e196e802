"""A HyperPod cluster is created, changed, waited for and deleted; what differs is found without AWS."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from hpctools.errors import HpctoolsError, UnreachableError
from hpctools.hyperpod.operations.aws import RefusedError
from hpctools.hyperpod.operations.clusters import Clusters, NodeCount, difference
from hpctools.hyperpod.operations.watch import Watch
from tests.hyperpod.aws_rig import FastClock, Told

ROLE = "arn:aws:iam::123456789012:role/nodes"


def group(name: str, count: int, **more: Any) -> dict[str, Any]:
    return {
        "InstanceGroupName": name,
        "InstanceType": "ml.g5.12xlarge",
        "InstanceCount": count,
        "LifeCycleConfig": {"SourceS3Uri": "s3://sagemaker-x/abc/", "OnCreate": "on_create.sh"},
        "ExecutionRole": ROLE,
        **more,
    }


def described(wanted: dict[str, Any]) -> dict[str, Any]:
    """What DescribeCluster says of a group, with what AWS adds."""
    told = {key: value for key, value in wanted.items() if key not in ("InstanceCount", "MinInstanceCount")}
    count = wanted["InstanceCount"]
    told |= {"CurrentCount": count, "TargetCount": count, "Status": "InService", "CurrentImageId": "ami-1"}
    return told | ({"MinCount": wanted["MinInstanceCount"]} if "MinInstanceCount" in wanted else {})


def request(*groups: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"ClusterName": "uni", "InstanceGroups": list(groups), "NodeRecovery": "Automatic", **more}


def cluster(*groups: dict[str, Any], **more: Any) -> dict[str, Any]:
    told = {"ClusterName": "uni", "ClusterStatus": "InService", "NodeRecovery": "Automatic"}
    return told | {"InstanceGroups": [described(each) for each in groups]} | more


def test_a_cluster_as_it_should_be_differs_in_nothing() -> None:
    groups = [
        group(
            "controller",
            1,
            ThreadsPerCore=2,
            InstanceStorageConfigs=[{"EbsVolumeConfig": {"VolumeSizeInGB": 500}}],
        ),
        group("gpu", 4, MinInstanceCount=2, ImageId="default", OnStartDeepHealthChecks=[]),
    ]
    found = difference(request(*groups), cluster(*groups), {})
    assert (found.lines, found.removed, found.request) == ((), (), None)


def test_what_differs_is_told_and_asked_for() -> None:
    now = cluster(group("gpu", 4), group("old", 3))
    wanted = request(group("gpu", 6, TrainingPlanArn="arn:plan"), group("new", 1), NodeRecovery="None")
    found = difference(wanted, now, {})
    assert found.lines == (
        "~ group gpu InstanceCount: 4 -> 6",
        "~ group gpu TrainingPlanArn: nothing -> arn:plan",
        "+ group new: 1 nodes",
        "- group old: 3 nodes are ended",
        "~ NodeRecovery: Automatic -> None",
    )
    assert found.removed == ("old",)
    assert found.request == {
        "ClusterName": "uni",
        "InstanceGroups": wanted["InstanceGroups"],
        "NodeRecovery": "None",
        "InstanceGroupsToDelete": ["old"],
    }


@pytest.mark.parametrize(
    ("now", "span", "asked"),
    [
        (7, (0, 16), None),
        (0, (0, 16), None),
        (16, (0, 16), None),
        (17, (0, 16), 4),
        (7, (4, 4), 4),
        (7, None, 4),
    ],
)
def test_nodes_that_came_with_the_work_stay(
    now: int, span: tuple[int, int] | None, asked: int | None
) -> None:
    """A group whose count has a range keeps what it has, within the range: nodes come with the work."""
    found = difference(request(group("gpu", 4)), cluster(group("gpu", now)), {"gpu": span} if span else {})
    counts = [each["InstanceCount"] for each in found.request["InstanceGroups"]] if found.request else None
    assert counts == ([asked] if asked is not None else None)


def test_new_scripts_are_a_difference() -> None:
    wanted = group("gpu", 4)
    wanted["LifeCycleConfig"] = {"SourceS3Uri": "s3://sagemaker-x/def/", "OnCreate": "on_create.sh"}
    found = difference(request(wanted), cluster(group("gpu", 4)), {})
    assert found.lines == (
        "~ group gpu LifeCycleConfig: OnCreate=on_create.sh SourceS3Uri=s3://sagemaker-x/abc/"
        " -> OnCreate=on_create.sh SourceS3Uri=s3://sagemaker-x/def/",
    )


def test_several_instance_types_are_compared_with_those_that_aws_was_told() -> None:
    wanted = group("gpu", 4, InstanceRequirements={"InstanceTypes": ["ml.p5.48xlarge", "ml.p5e.48xlarge"]})
    now = cluster(group("gpu", 4))
    now["InstanceGroups"][0]["InstanceRequirements"] = {
        "CurrentInstanceTypes": ["ml.p5.48xlarge"],
        "DesiredInstanceTypes": ["ml.p5.48xlarge", "ml.p5e.48xlarge"],
    }
    assert difference(request(wanted), now, {}).request is None


def test_another_strategy_is_asked_for() -> None:
    slurm = {"Slurm": {"SlurmConfigStrategy": "Merge"}}
    now = cluster(group("gpu", 4), Orchestrator={"Slurm": {"SlurmConfigStrategy": "Managed"}})
    found = difference(request(group("gpu", 4), Orchestrator=slurm), now, {})
    assert found.request is not None
    assert found.request["Orchestrator"] == slurm


@dataclass
class Hyperpod:
    """HyperPod by heart: the statuses that DescribeCluster gives, in turn; the last one for ever."""

    statuses: list[str]
    name: str = "sagemaker"
    region: str = "eu-central-1"
    failure: str = ""
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        self.asked.append((operation, arguments))
        if operation != "describe_cluster":
            return {}
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if not status:
            raise RefusedError("Cluster uni does not exist", "ResourceNotFound")
        return cluster(group("gpu", 2), ClusterStatus=status, FailureMessage=self.failure)

    def pages(self, operation: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        states = ["Running", "Pending"]
        yield {
            "ClusterNodeSummaries": [
                {"InstanceGroupName": "gpu", "InstanceStatus": {"Status": each}} for each in states
            ]
        }

    def done(self) -> list[str]:
        return [operation for operation, _ in self.asked if operation != "describe_cluster"]


def clusters(watch: Watch, *statuses: str, failure: str = "") -> tuple[Clusters, Hyperpod]:
    service = Hyperpod(list(statuses), failure=failure)
    return Clusters(service, watch), service  # type: ignore[arg-type]


def test_a_cluster_is_created_and_waited_for(watch: Watch, told: Told) -> None:
    found, service = clusters(watch, "", "Creating", "Creating", "Creating", "InService")
    assert found.create(request(group("gpu", 2))) is True
    assert service.done() == ["create_cluster"]
    assert told.lines() == [
        "cluster uni: creating gpu 2",
        "group gpu: 2 wanted 1 Pending, 1 Running",
        "cluster uni: InService",
    ]


def test_one_that_is_being_created_is_waited_for(watch: Watch) -> None:
    found, service = clusters(watch, "Creating", "Creating", "InService")
    assert found.create(request(group("gpu", 2))) is False
    assert service.done() == []


def test_one_that_is_being_deleted_is_let_go_first(watch: Watch) -> None:
    found, service = clusters(watch, "Deleting", "Deleting", "", "", "Creating", "InService")
    assert found.create(request(group("gpu", 2))) is True
    assert service.done() == ["create_cluster"]


def test_a_failure_is_told_in_hyperpods_words_with_what_to_do(watch: Watch) -> None:
    reason = "Lifecycle scripts did not run successfully on gpu-1"
    found, _ = clusters(watch, "", "Creating", "Failed", failure=reason)
    with pytest.raises(HpctoolsError) as told:
        found.create(request(group("gpu", 2)))
    assert told.value.message == f"cluster uni failed: {reason}"
    assert "/aws/sagemaker/Clusters/uni" in told.value.remedy


def test_a_creation_that_rolls_back_is_waited_for_to_its_end(watch: Watch) -> None:
    found, _ = clusters(watch, "", "Creating", "RollingBack", "RollingBack", "Failed", failure="no capacity")
    with pytest.raises(HpctoolsError, match="no capacity"):
        found.create(request(group("gpu", 2)))


def test_waiting_for_nodes_has_an_end(told: Told, clock: FastClock) -> None:
    found, _ = clusters(Watch(told, clock, limit_seconds=600), "", "Creating")
    with pytest.raises(UnreachableError, match="cluster uni took more than 10 minutes; AWS goes on with it"):
        found.create(request(group("gpu", 2)))


def test_nothing_is_changed_without_agreement(watch: Watch) -> None:
    found, service = clusters(watch, "InService")

    def refuse(difference: Any) -> None:
        assert difference.lines == ("~ group gpu InstanceCount: 2 -> 3",)
        raise HpctoolsError("no")

    with pytest.raises(HpctoolsError, match="no"):
        found.change(request(group("gpu", 3)), {}, refuse)
    assert service.done() == []
    found.change(request(group("gpu", 3)), {})
    assert service.done() == ["update_cluster"]


BEFORE = ["InService"] * 4  # what is asked of a cluster before it is changed


def test_a_change_that_hyperpod_took_back_is_no_success(watch: Watch) -> None:
    reason = "Lifecycle scripts did not run successfully on gpu-3"
    found, _ = clusters(watch, *BEFORE, "Updating", "RollingBack", "RollingBack", "InService", failure=reason)
    with pytest.raises(HpctoolsError, match=f"took the change of cluster uni back: {reason}; see the nodes'"):
        found.change(request(group("gpu", 3)), {})


def test_a_change_that_is_back_before_anybody_looks_is_no_success(watch: Watch) -> None:
    found, service = clusters(watch, "InService")
    service.failure = ""

    def fails_later(difference: Any) -> None:
        service.failure = "no capacity"

    with pytest.raises(HpctoolsError, match="took the change of cluster uni back: no capacity"):
        found.change(request(group("gpu", 3)), {}, fails_later)


def test_what_failed_before_a_change_is_not_held_against_it(watch: Watch) -> None:
    found, service = clusters(watch, "InService", failure="of last week")
    found.change(request(group("gpu", 3)), {})
    assert service.done() == ["update_cluster"]


def test_a_cluster_that_is_not_there_cannot_be_changed(watch: Watch) -> None:
    found, _ = clusters(watch, "")
    with pytest.raises(HpctoolsError, match="there is no cluster uni; create it"):
        found.change(request(group("gpu", 3)), {})


@pytest.mark.parametrize(
    ("statuses", "asked"),
    [
        (["InService", "InService", "Deleting", "Deleting", ""], ["delete_cluster"]),
        (["Deleting", "Deleting", "Deleting", ""], []),
        (["Failed", "Failed", "Deleting", ""], ["delete_cluster"]),
        (["Creating", "Creating", "InService", "InService", "Deleting", ""], ["delete_cluster"]),
    ],
)
def test_a_cluster_is_deleted_from_every_state(watch: Watch, statuses: list[str], asked: list[str]) -> None:
    found, service = clusters(watch, *statuses)
    assert found.delete("uni") is True
    assert service.done() == asked


def test_what_is_not_there_needs_no_deletion(watch: Watch) -> None:
    found, service = clusters(watch, "")
    assert found.delete("uni") is False
    assert service.done() == []


def test_nodes_are_counted_by_group_and_state(watch: Watch) -> None:
    found, _ = clusters(watch, "InService")
    assert found.nodes("uni") == (NodeCount("gpu", 2, {"Running": 1, "Pending": 1}),)
    absent, _ = clusters(watch, "")
    assert absent.nodes("uni") == ()
