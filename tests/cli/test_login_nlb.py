"""`hpctools login nlb` from its words to the target group: moto's elbv2 and ec2."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import boto3
import pytest
from click.testing import CliRunner
from moto import mock_aws

from hpctools.cli import login, login_nlb
from hpctools.errors import UsageError
from hpctools.hyperpod.operations.aws import RefusedError
from tests.login.agent.made_agent import FakeService

REGION = "eu-central-1"


@dataclass
class Account:
    """An account of moto's with a network, and the service whose nodes it has.

    Attributes:
        told: what `GET /v1/login/nodes` answers.
    """

    elbv2: Any
    ec2: Any
    vpc: str
    subnet: str
    told: dict[str, Any]

    def group(self, kind: str) -> str:
        """A target group's ARN."""
        made = self.elbv2.create_target_group(
            Name=f"login-{kind}", Protocol="TCP", Port=22, VpcId=self.vpc, TargetType=kind
        )
        return str(made["TargetGroups"][0]["TargetGroupArn"])

    def instance(self, address: str, subnet: str = "") -> str:
        """The id of an instance with this address."""
        image = self.ec2.describe_images()["Images"][0]["ImageId"]
        made = self.ec2.run_instances(
            ImageId=image, MinCount=1, MaxCount=1, SubnetId=subnet or self.subnet, PrivateIpAddress=address
        )
        return str(made["Instances"][0]["InstanceId"])

    def other_network(self) -> str:
        """A subnet with the same addresses in another network."""
        vpc = self.ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        return str(self.ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24")["Subnet"]["SubnetId"])

    def nodes(self, **states: str) -> None:
        """What agents have told, by the last part of their address; `gone`: `draining` and `silent`."""
        self.told["nodes"] = [
            {
                "name": f"login-{number[1:]}", "address": f"10.0.0.{number[1:]}",
                "state": "draining" if state == "gone" else state, "silent": state in ("silent", "gone"),
                "heard_seconds_ago": 90 if state in ("silent", "gone") else 4,
            }
            for number, state in states.items()
        ]  # fmt: skip

    def there(self, group: str) -> set[str]:
        """Targets that are not leaving."""
        found = self.elbv2.describe_target_health(TargetGroupArn=group)["TargetHealthDescriptions"]
        return {each["Target"]["Id"] for each in found if each["TargetHealth"]["State"] != "draining"}


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        ec2: Any = boto3.client("ec2", region_name=REGION)
        vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24")["Subnet"]["SubnetId"]
        told: dict[str, Any] = {"nodes": [], "former": []}
        monkeypatch.setattr(login_nlb, "find_service", lambda environment: FakeService(told))
        yield Account(boto3.client("elbv2", region_name=REGION), ec2, vpc, subnet, told)


def step(group: str, *words: str, code: int = 0) -> list[str]:
    """What the command says of a group."""
    done = CliRunner().invoke(login.login, ["nlb", "--target-group", group, *words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done.output.splitlines()


def test_a_group_of_addresses_follows_the_nodes(account: Account) -> None:
    group = account.group("ip")
    account.nodes(n4="up", n5="up", n6="silent")
    assert step(group, "--dry-run") == [
        "login-4 (10.0.0.4) would be registered", "login-5 (10.0.0.5) would be registered",
    ]  # fmt: skip
    assert account.there(group) == set()
    step(group)
    assert account.there(group) == {"10.0.0.4", "10.0.0.5"}
    assert step(group) == ["all is in step"]
    account.nodes(n4="draining", n5="up", n6="up")
    account.told["former"] = [{"address": "10.0.0.5", "node": "login-7", "left_seconds_ago": 999}]
    assert step(group) == [
        "login-6 (10.0.0.6) registered",
        "login-4 (10.0.0.4) deregistered: its sessions stay for a while",
    ]
    account.nodes(n4="draining", n6="draining")
    assert step(group)[-1] == "login-6 stays although it is drained: nobody could log in without it"
    assert account.there(group) == {"10.0.0.6"}


def test_a_drained_node_that_is_gone_leaves_its_address_to_its_heir(account: Account) -> None:
    """Also in a moment in which nothing is heard of the heir: whose agent, or the service, begins anew."""
    group = account.group("ip")
    account.nodes(n4="up", n5="up")
    step(group)
    account.nodes(n4="silent", n5="up")
    gone = {"name": "login-1", "address": "10.0.0.4", "state": "draining", "heard_seconds_ago": 3600}
    account.told["nodes"].append(gone)
    assert step(group) == ["all is in step"]
    gone["heard_seconds_ago"] = 4
    assert step(group) == ["login-1 (10.0.0.4) deregistered: its sessions stay for a while"]


def test_a_group_of_instances_follows_the_nodes(account: Account) -> None:
    """Agents tell addresses; in another network of the account an instance may have the same one."""
    group, elsewhere = account.group("instance"), account.other_network()
    for each in ("10.0.0.4", "10.0.0.5"):
        account.instance(each, elsewhere)
    four, five, other = (account.instance(f"10.0.0.{number}") for number in (4, 5, 9))
    account.elbv2.register_targets(TargetGroupArn=group, Targets=[{"Id": other, "Port": 22}])
    account.nodes(n4="up", n5="up")
    assert step(group) == [f"login-4 ({four}) registered", f"login-5 ({five}) registered"]
    assert account.there(group) == {four, five, other}
    assert step(group) == ["all is in step"]
    account.nodes(n4="draining", n5="silent")
    assert step(group) == [f"login-4 ({four}) deregistered: its sessions stay for a while"]
    assert account.there(group) == {five, other}
    account.nodes(n4="up", n5="up")
    account.told["former"] = [{"address": "10.0.0.9", "node": "login-4", "left_seconds_ago": 999}]
    assert step(group) == [f"login-4 ({four}) registered"], "whose address it was says nothing of its id"
    assert account.there(group) == {four, five, other}


def test_a_node_that_is_no_instance_is_said_and_keeps_no_other_one(account: Account) -> None:
    """HyperPod's nodes are none of ours; what is stated is taken."""
    group, four = account.group("instance"), account.instance("10.0.0.4")
    ended = account.instance("10.0.0.6")
    account.ec2.terminate_instances(InstanceIds=[ended])
    account.nodes(n4="up", n5="up", n6="up")
    said = f"is the address of no instance in {account.vpc}; say it: --target"
    assert step(group, code=1) == [
        f"login-4 ({four}) registered",
        f"login-5: 10.0.0.5 {said} login-5=ID",
        f"login-6: 10.0.0.6 {said} login-6=ID",
    ]
    five = account.instance("10.0.0.15")
    account.nodes(n4="draining", n5="up")
    assert step(group, "--target", f"login-5={five}") == [
        f"login-5 ({five}) registered",
        f"login-4 ({four}) deregistered: its sessions stay for a while",
    ]
    assert account.there(group) == {five}


def test_more_nodes_than_aws_takes_in_one_question(account: Account) -> None:
    group = account.group("instance")
    made = {number: account.instance(f"10.0.0.{number}") for number in (4, 254)}
    account.nodes(**{f"n{number}": "up" for number in range(4, 255)})
    step(group, code=1)
    assert account.there(group) == set(made.values())


def test_a_group_that_takes_no_machines(account: Account) -> None:
    group = account.group("alb")
    with pytest.raises(UsageError, match="of type alb: no login node can be one"):
        step(group)


def test_who_may_not_ask_what_a_group_is_goes_on_as_before(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rights of earlier releases: no drain is to be lost for the want of one; other refusals are errors."""
    group = account.group("ip")
    account.nodes(n4="up")

    def refused(code: str) -> RefusedError:
        said = f"elbv2 describe_target_groups: {code}"
        return RefusedError(said, code, "allow elasticloadbalancing:DescribeTargetGroups to this principal")

    def refuse(code: str) -> None:
        def read(*_: object) -> None:
            raise refused(code)

        monkeypatch.setattr(login_nlb, "read_group", read)

    refuse("AccessDenied")
    said = step(group)
    assert said[0].endswith("until then nodes are registered as they are told or stated")
    assert "DescribeTargetGroups" in said[0]
    assert account.there(group) == {"10.0.0.4"}
    instances, four = account.group("instance"), account.instance("10.0.0.4")
    assert step(instances, "--target", f"login-4={four}")[1:] == [f"login-4 ({four}) registered"]
    assert account.there(instances) == {four}
    refuse("TargetGroupNotFound")
    with pytest.raises(RefusedError):
        step(group)


def test_a_group_that_is_not_there_is_said(account: Account) -> None:
    group = account.group("ip")
    account.elbv2.delete_target_group(TargetGroupArn=group)
    with pytest.raises(RefusedError, match="TargetGroupNotFound"):
        step(group)


def test_a_drained_node_that_is_gone_is_no_trouble(account: Account) -> None:
    """Its instance was ended while it was drained: each minute it was said, and the command ended with 1."""
    group, four = account.group("instance"), account.instance("10.0.0.4")
    account.nodes(n4="up", n5="gone")
    assert step(group) == [f"login-4 ({four}) registered"]
    assert step(group) == ["all is in step"]


def test_a_drained_node_that_is_gone_leaves_its_address_to_who_has_it_now(account: Account) -> None:
    """Whose agent is being restarted: it was deregistered for the other one's drain."""
    group = account.group("ip")
    account.nodes(n4="up", n5="up")
    step(group)
    account.nodes(n4="silent", n5="up", n6="gone")
    account.told["nodes"][2]["address"] = "10.0.0.4"
    assert step(group) == ["all is in step"]
    assert account.there(group) == {"10.0.0.4", "10.0.0.5"}
