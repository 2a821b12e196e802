"""A cluster's whole life against moto: made, looked at, changed, deleted with and without its data.

Whatever moment somebody interrupts it at, the same call afterwards comes to the same end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hpctools.errors import HpctoolsError
from hpctools.hyperpod.operations import after
from hpctools.hyperpod.operations import aws as aws_module
from hpctools.hyperpod.operations.aws import Aws, connect
from hpctools.hyperpod.operations.life import Cluster, Life
from hpctools.hyperpod.operations.stacks import Stacks
from hpctools.hyperpod.operations.status import look
from hpctools.hyperpod.operations.watch import Watch
from hpctools.hyperpod.render import render
from hpctools.hyperpod.stack import Outputs
from hpctools.hyperpod.surroundings import surroundings
from hpctools.site import Site
from tests.hyperpod.aws_rig import Server, Told
from tests.hyperpod.stack.sites import example, smallest

SCRIPTS = "s3://sagemaker-scripts/abc/"


def preparing(life: Life) -> Callable[[Outputs | None], Cluster]:
    """Scripts are put into the bucket, for there to be something in it; the request is the real one."""

    def prepare(outputs: Outputs | None) -> Cluster:
        assert outputs is not None
        s3 = life.aws.service("s3")
        s3.ask("put_object", Bucket=outputs.lifecycle_bucket, Key="abc/on_create.sh", Body=b"#!/bin/bash")
        return Cluster(render(life.site, surroundings(life.site, outputs, SCRIPTS)).request, SCRIPTS)

    return prepare


def created(site: Site, aws: Aws, watch: Watch) -> Life:
    life = Life(site, aws, watch)
    life.create(preparing(life))
    return life


def there(aws: Aws) -> dict[str, Any]:
    """What an account has that costs money or holds data."""
    ec2 = aws.service("ec2")
    own = [{"Name": "isDefault", "Values": ["false"]}]
    clusters = aws.service("sagemaker").ask("list_clusters")["ClusterSummaries"]
    return {
        "clusters": [each["ClusterName"] for each in clusters],
        "vpcs": len(ec2.ask("describe_vpcs", Filters=own)["Vpcs"]),
        "systems": len(aws.service("fsx").ask("describe_file_systems")["FileSystems"]),
        "buckets": sorted(each["Name"] for each in aws.service("s3").ask("list_buckets")["Buckets"]),
        "balancers": len(aws.service("elbv2").ask("describe_load_balancers")["LoadBalancers"]),
        "databases": len(aws.service("rds").ask("describe_db_instances")["DBInstances"]),
    }


DATA = [
    "uni-gpu-checkpoints-123456789012-eu-central-1",
    "uni-gpu-checkpoints-123456789012-eu-west-1",
    "uni-gpu-data-123456789012-eu-central-1",
]
ALL = {
    "clusters": ["uni-gpu"],
    "vpcs": 1,
    "systems": 2,
    "buckets": ["sagemaker-uni-gpu-123456789012-eu-central-1", *DATA],
    "balancers": 1,
    "databases": 1,
}
KEPT = {"clusters": [], "vpcs": 1, "systems": 2, "buckets": DATA, "balancers": 0, "databases": 1}
NOTHING = {"clusters": [], "vpcs": 0, "systems": 0, "buckets": [], "balancers": 0, "databases": 0}


def put(aws: Aws, key: str) -> None:
    aws.service("s3").ask(
        "put_object", Bucket="uni-gpu-data-123456789012-eu-central-1", Key=key, Body=b"weights"
    )


def test_a_whole_life(aws: Aws, server: Server, watch: Watch, told: Told) -> None:
    site = example("university")
    life = created(site, aws, watch)
    assert there(aws) == ALL
    assert look(life).good

    # Again: nothing happens.
    server.rules()
    life.create(preparing(life))
    assert {"ExecuteChangeSet", "CreateCluster", "UpdateCluster"} & set(server.log) == set()

    # Deleted: data stays, what costs by the hour goes; what would be lost was told.
    put(aws, "model")
    put(aws, "model-2")
    losses = life.losses()
    assert losses.cluster == "InService"
    assert sum(sum(group.states.values()) for group in losses.nodes) == 9
    amounts = {each.name: each.amount for each in losses.holding}
    assert amounts == {
        "CheckpointBucket": "0 objects, 0 B",
        "CheckpointCopies": "0 objects, 0 B",
        "DataBucket": "2 objects, 14 B",
        "Database": "50 GiB",
        "DatabaseSecret": "",
        "FileSystemHome": "2048 GiB",
        "FileSystemScratch": "4800 GiB",
        "SessionLogGroup": "",
    }
    assert {"NatGateway", "LoginBalancer", "ComputeRole"} <= set(losses.going)
    life.delete()
    assert there(aws) == KEPT
    found = look(life)
    assert (found.cluster, [each.data_only for each in found.stacks], found.good) == (
        "absent",
        [False, True],
        False,
    )

    # Created again: with the data of before.
    before = life.stacks()[life.stack_name].outputs(life.stack_name)
    life.create(preparing(life))
    outputs = life.outputs()
    assert outputs is not None
    assert there(aws) == ALL
    assert outputs.file_systems[0].dns_name == before["FileSystemScratchDnsName"]
    assert (
        life.aws.service("s3").ask("get_object", Bucket=str(outputs.data_bucket), Key="model")["Body"].read()
        == b"weights"
    )

    # Given up: all of it goes, old versions too.
    life.delete(data=True)
    assert there(aws) == NOTHING
    assert life.losses().nothing
    life.delete(data=True)  # nothing is there, and nothing happens
    assert there(aws) == NOTHING


class Interrupted(BaseException):
    """Somebody pressed Ctrl-C, or killed us, just when AWS had done what we asked for."""


@contextmanager
def interrupted_at(number: int) -> Iterator[list[str]]:
    """Let the request of this number reach AWS, and never hear of it; the requests that came so far."""
    asked: list[str] = []
    real = aws_module.Service.ask

    def ask(service: Any, operation: str, **arguments: Any) -> dict[str, Any]:
        asked.append(operation)
        try:
            return real(service, operation, **arguments)
        finally:
            if len(asked) == number:
                raise Interrupted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aws_module.Service, "ask", ask)
        yield asked


def requests_of(act: Callable[[], None]) -> list[str]:
    with interrupted_at(0) as asked:
        act()
    return asked


def moments(asked: list[str]) -> list[int]:
    """Before the first request that changes something, and after each; of several alike after the last."""
    changing = ("create", "execute", "delete", "put", "update")
    last = {name: number for number, name in enumerate(asked, start=1) if name.startswith(changing)}
    return [min(last.values()) - 1, *sorted(last.values())]


def bare() -> Site:
    """A site whose stack is quickly made: this is about the order of things."""
    return smallest(network={"internet": "none", "endpoints": ("s3",)}, buckets={"data": None}, budget=None)


def test_a_creation_interrupted_anywhere_is_finished_by_the_next_one(
    aws: Aws, server: Server, watch: Watch
) -> None:
    site = bare()

    def act() -> None:
        life = Life(site, aws, watch)
        life.create(preparing(life))

    asked = requests_of(act)
    whole = there(aws)
    assert whole["clusters"] == ["tiny"]
    for number in moments(asked):
        server.post("/moto-api/reset")
        with interrupted_at(number), pytest.raises(Interrupted):
            act()
        act()
        assert there(aws) == whole, f"interrupted after request {number}, {asked[number - 1]}"
        assert server.log.count("CreateCluster") == 1


def test_a_deletion_interrupted_anywhere_is_finished_by_the_next_one(
    aws: Aws, server: Server, watch: Watch
) -> None:
    life = Life(bare(), aws, watch)

    def begin() -> None:
        server.post("/moto-api/reset")
        life.create(preparing(life))

    begin()
    asked = requests_of(lambda: life.delete(data=True))
    for number in moments(asked):
        begin()
        with interrupted_at(number), pytest.raises(Interrupted):
            life.delete(data=True)
        life.delete(data=True)
        assert there(aws) == NOTHING, f"interrupted after request {number}, {asked[number - 1]}"


@pytest.mark.parametrize(
    ("operation", "data"),
    [("create_change_set", False), ("execute_change_set", False), ("create_cluster", True)],
)
def test_a_creation_that_was_interrupted_can_be_deleted(
    aws: Aws, server: Server, watch: Watch, operation: str, data: bool
) -> None:
    life = Life(bare(), aws, watch)
    asked = requests_of(lambda: life.create(preparing(life)))
    server.post("/moto-api/reset")
    with interrupted_at(asked.index(operation) + 1), pytest.raises(Interrupted):
        life.create(preparing(life))
    life.delete(data=data)
    kept = ["tiny-checkpoints-123456789012-eu-central-1"]
    never_made = operation == "create_change_set"
    assert there(aws) == NOTHING | {"buckets": [] if data or never_made else kept}


def test_a_creation_that_failed_leaves_nothing_to_be_made_by_its_deletion(watch: Watch) -> None:
    """What is left of it is deleted; it is not brought to what would have been kept of it."""
    asked: list[str] = []

    class Failed(Stacks):
        def template(self, name: str) -> None:
            return None

        def was_made(self, name: str) -> bool:
            return False

        def delete(self, name: str) -> None:
            asked.append(f"delete {name}")

        def bring(self, *arguments: Any) -> bool:
            raise AssertionError("nothing is made by a deletion")

    class OfFailed(Life):
        def stacks(self) -> dict[str, Stacks]:
            return {"a": Failed(None, self.watch)}  # type: ignore[arg-type]

        @property
        def clusters(self) -> Any:
            return type("None there", (), {"delete": staticmethod(lambda name: False)})

    OfFailed(smallest(), None, watch).delete()  # type: ignore[arg-type]
    assert asked == ["delete a"]


def test_a_change_of_the_site_is_shown_then_made(aws: Aws, watch: Watch) -> None:
    created(smallest(), aws, watch)
    life = Life(
        smallest(keep_logs_days=30, network={"internet": "nat", "endpoints": ("s3", "ssm")}), aws, watch
    )
    assert [each.as_the_site_says for each in look(life).stacks] == [False]
    shown: list[str] = []
    found = life.update(
        preparing(life),
        lambda changes: shown.extend(f"{each.action} {each.name}" for each in changes),
        lambda difference: None,
    )
    assert {"Add EndpointSsm", "Add EndpointSecurityGroup", "Modify FlowLogGroup"} <= set(shown)
    assert found.lines == ()
    assert look(life).good


def test_a_creation_again_takes_nothing_from_a_cluster_that_is_there(aws: Aws, watch: Watch) -> None:
    """The site was changed since; an update shows it, and asks."""
    with_two, with_one = (
        smallest(network={"internet": "none", "endpoints": services}) for services in (("s3", "ssm"), ("s3",))
    )
    created(with_two, aws, watch)
    again = Life(with_one, aws, watch)
    with pytest.raises(
        HpctoolsError, match=r"EndpointS\w+, EndpointS\w+ would be replaced or removed; .*update"
    ):
        again.create(preparing(again))
    assert look(Life(with_two, aws, watch)).good
    again.update(preparing(again), lambda changes: None, lambda difference: None)
    again.create(preparing(again))
    assert look(again).good


def test_a_stack_that_rolled_back_is_well_once_the_site_is_as_before(
    aws: Aws, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CloudFormation says UPDATE_ROLLBACK_COMPLETE until the next change, for which there is no cause."""
    life, changed = created(smallest(), aws, watch), Life(smallest(keep_logs_days=30), aws, watch)
    real = Stacks.find

    def rolled_back(stacks: Stacks, name: str) -> dict[str, Any]:
        return (real(stacks, name) or {}) | {"StackStatus": "UPDATE_ROLLBACK_COMPLETE"}

    monkeypatch.setattr(Stacks, "find", rolled_back)
    assert look(life).good
    assert [(each.reason, look(changed).good) for each in look(changed).stacks] == [
        ("UPDATE_ROLLBACK_COMPLETE", False)
    ]


def test_nothing_is_updated_that_was_never_created(aws: Aws, server: Server, watch: Watch) -> None:
    life = Life(smallest(), aws, watch)
    server.rules()
    with pytest.raises(HpctoolsError, match="there is no cluster tiny in eu-central-1; create it"):
        life.update(preparing(life), lambda changes: None, lambda found: None)
    assert set(server.log) == {"DescribeCluster"}


def test_logs_that_hyperpod_makes_are_forgotten_in_time(aws: Aws, watch: Watch) -> None:
    logs = aws.service("logs")
    ours, other = "/aws/sagemaker/Clusters/tiny/abc", "/aws/sagemaker/Clusters/tiny-2/abc"
    for name in (ours, other):
        logs.ask("create_log_group", logGroupName=name)
    after.settle(smallest(keep_logs_days=100), aws, watch)
    groups = {
        each["logGroupName"]: each.get("retentionInDays")
        for each in logs.ask("describe_log_groups")["logGroups"]
    }
    assert groups == {ours: 120, other: None}


def test_what_the_bill_needs_is_asked_for_and_a_refusal_is_no_failure(
    aws: Aws, server: Server, watch: Watch, told: Told
) -> None:
    server.rules()
    after.settle(smallest(), aws, watch)
    assert server.log.count("UpdateCostAllocationTagsStatus") == 4
    server.rules(
        refuse=[{"action": "UpdateCostAllocationTagsStatus", "code": "AccessDeniedException", "times": 9}]
    )
    after.settle(smallest(), aws, watch)
    assert [line.partition(" ce ")[0] for line in told.lines()[-4:]] == [
        "cost tag ClusterName: not activated",
        "cost tag hpctools:node-group: not activated",
        "cost tag hpctools:department: not activated",
        "cost tag hpctools:capacity: not activated",
    ]


def test_login_nodes_of_ec2_are_told_where_their_scripts_are(server: Server, watch: Watch) -> None:
    aws = connect("us-west-2")
    after.remember_scripts(example("closed-network"), aws, "s3://one/")
    after.remember_scripts(example("closed-network"), aws, "s3://two/")
    told = aws.service("ssm").ask("get_parameter", Name="/hpctools/closed-gpu/lifecycle")["Parameter"][
        "Value"
    ]
    assert told == "s3://two/"
    after.remember_scripts(smallest(), aws, "s3://three/")
    assert len(aws.service("ssm").ask("describe_parameters")["Parameters"]) == 1


def test_login_nodes_of_a_later_creation_are_not_sent_to_scripts_that_are_gone(
    server: Server, watch: Watch
) -> None:
    """They ask until they are told where their scripts are, and start before these are uploaded."""
    aws = connect("us-west-2")
    after.remember_scripts(example("closed-network"), aws, "s3://one/")
    life = Life(example("closed-network"), aws, watch)
    life.delete()
    assert aws.service("ssm").ask("describe_parameters")["Parameters"] == []
    life.delete()
