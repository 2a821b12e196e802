"""The load balancer's target group: what is planned, and moto's elbv2."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st
from moto import mock_aws

from hpctools.errors import HpctoolsError
from hpctools.hyperpod.operations.aws import Service
from hpctools.login.nlb import (
    LoginNode,
    Steps,
    Target,
    can_be_target,
    carry_out,
    of_other_ports,
    plan,
    read_targets,
)

NAMES = st.sampled_from(["a", "b", "c", "d"])


def node(name: str, draining: bool = False) -> LoginNode:
    return LoginNode(name, f"10.0.0.{ord(name) - 96}", draining)


def target(name: str, state: str = "healthy") -> Target:
    return Target(node(name).target, 22, state)


def test_what_is_new_comes_and_what_is_drained_goes() -> None:
    steps = plan([node("a"), node("b", True), node("c")], [target("a"), target("b"), target("x")])
    assert steps == Steps((("c", "10.0.0.3"),), (("b", "10.0.0.2"),))


def test_what_leaves_already_is_left_alone_and_comes_back() -> None:
    assert plan([node("a"), node("b", True)], [target("a"), target("b", "draining")]).is_nothing
    assert plan([node("a"), node("b")], [target("a"), target("b", "draining")]).register == (
        ("b", "10.0.0.2"),
    )


def test_a_node_whose_sshd_is_dead_is_for_the_balancer_to_judge() -> None:
    assert plan([node("a")], [target("a", "unhealthy")]).is_nothing


def test_the_last_one_stays() -> None:
    both = [node("a", True), node("b", True)]
    steps = plan(both, [target("a"), target("b")])
    assert steps == Steps((), (("b", "10.0.0.2"),), kept="a")
    assert plan(both, [target("a")]) == Steps((), (), kept="a")
    # Another target, no node of ours, is enough for people to get in.
    assert plan(both, [target("a"), target("x")]) == Steps((), (("a", "10.0.0.1"),))


def test_the_last_one_that_stays_is_one_whose_sshd_answers() -> None:
    """Beside one that is switched off, drained or not, the only one that lets people in was deregistered."""
    dead = target("a", "unhealthy")
    steps = plan([node("a", True), node("b", True)], [dead, target("b")])
    assert steps == Steps((), (("a", "10.0.0.1"),), kept="b")
    crashed = replace(node("a"), silent=True)
    assert plan([crashed, node("b", True)], [dead, target("b")]) == Steps(kept="b")
    steps = plan([crashed, node("b", True), node("c")], [dead, target("b")])
    assert steps.deregister == (("b", "10.0.0.2"),), "another one comes"
    steps = plan([crashed, node("b", True)], [dead, target("b", "unhealthy")])
    assert steps.deregister == (("b", "10.0.0.2"),), "neither lets anybody in"


def test_one_that_lets_people_in_is_enough_though_aws_says_that_it_is_not_well() -> None:
    """A flap, or a check that a security group blocks: all were sent to the drained one, and refused."""
    steps = plan([node("b", True), node("c")], [target("b"), target("c", "unhealthy")])
    assert steps == Steps((), (("b", "10.0.0.2"),))
    gone = plan([node("b", True), node("c")], [target("b"), target("c", "draining")])
    assert gone.register == (("c", "10.0.0.3"),)
    both = [node("b", True), node("c", True)]
    assert plan(both, [target("b"), target("c", "unhealthy")]).kept == "b"


def test_a_silent_node_is_left_as_it_is() -> None:
    """Registered it stays; deregistered by somebody, it does not come back each minute."""
    dead = replace(node("a"), silent=True)
    assert plan([dead, node("b")], [target("a", "unhealthy"), target("b")]).is_nothing
    assert plan([dead, node("b")], [target("b")]).is_nothing


def test_an_address_that_a_node_no_longer_has_goes() -> None:
    """Another machine may have it next; a drained node is kept rather than it, if there is nobody else."""
    moved = replace(node("a"), target="10.0.0.9")
    steps = plan([moved], [target("a"), target("x")], {"10.0.0.1": "a", "10.0.0.5": "gone"})
    assert steps == Steps((("a", "10.0.0.9"),), (("a", "10.0.0.1"),))
    assert plan([node("a")], [target("a")], {"10.0.0.1": "b"}).is_nothing, "it is another node's now"
    steps = plan([node("a", True)], [target("a"), target("b")], {"10.0.0.2": "b"})
    assert steps == Steps((), (("b", "10.0.0.2"),), kept="a")


def test_a_drained_node_that_is_gone_does_not_take_its_heirs_address_along() -> None:
    """It would be deregistered for the one and registered for the other, each minute."""
    gone = replace(node("a", True), silent=True)
    heir = replace(node("d"), target=gone.target)
    assert plan([gone, heir, node("b")], [target("a"), target("b")]).is_nothing
    assert plan([gone, heir, node("b")], [target("b")]).register == (("d", gone.target),)
    quiet = replace(heir, silent=True)
    assert plan([gone, quiet, node("b")], [target("a"), target("b")]).is_nothing, "its agent is restarted"
    back = replace(gone, silent=False)
    assert plan([back, quiet, node("b")], [target("a"), target("b")]).deregister == (("a", gone.target),)


@pytest.mark.parametrize("name", ["login-1", "login-1.uni.example", "i-12", ""])
def test_what_aws_takes_for_no_target_is_told_and_not_tried(name: str) -> None:
    nameless = LoginNode("login-1", name, False)
    assert plan([nameless, node("b")], []) == Steps(
        (("b", "10.0.0.2"),), unusable=(("login-1", name),), others_stay=False
    )
    drained = replace(nameless, draining=True)
    assert plan([drained], [target("x")]).unusable == (("login-1", name),), "its drain does not reach AWS"


def test_what_aws_takes() -> None:
    found = ["10.0.0.1", "fd00::5", "i-0123456789abcdef0", "login-1"]
    assert [each for each in found if can_be_target(each, "ip")] == found[:2]
    assert [each for each in found if can_be_target(each, "instance")] == found[2:3]
    assert [each for each in found if can_be_target(each, None)] == found[:3], "nobody may ask what it is"


def test_a_former_address_says_nothing_in_a_group_of_instances() -> None:
    """The instance that has it now is not told of: ids are nobody else's."""
    there = [Target("i-0aaaaaaa", 22, "healthy"), Target("i-0bbbbbbb", 22, "healthy")]
    moved = LoginNode("a", "i-0aaaaaaa", False)
    assert plan([moved], there, {"10.0.0.1": "a"}, "instance").is_nothing
    lost = LoginNode("b", "10.0.0.2", True)
    assert plan([moved, lost], there, {}, "instance") == Steps(unusable=(("b", "10.0.0.2"),))


class Refusing:
    """An elbv2 that takes no target of these."""

    def __init__(self, *refused: str) -> None:
        self.refused = refused
        self.done: list[tuple[str, str]] = []

    def ask(self, operation: str, **words: Any) -> dict[str, Any]:
        (one,) = words["Targets"]
        if one["Id"] in self.refused:
            raise HpctoolsError(f"InvalidTarget: {one['Id']}")
        self.done.append((operation, one["Id"]))
        return {}


def test_what_is_drained_goes_although_another_cannot_come() -> None:
    there = [target("a"), target("d")]
    steps = plan([node("a", True), node("b"), node("c"), node("d")], there)
    elbv2 = Refusing("10.0.0.2")
    with pytest.raises(HpctoolsError, match=r"InvalidTarget: 10\.0\.0\.2"):
        carry_out(elbv2, "arn", steps, 22, there)
    assert elbv2.done == [("register_targets", "10.0.0.3"), ("deregister_targets", "10.0.0.1")]


def test_the_last_one_stays_when_nobody_can_come() -> None:
    steps = plan([node("a", True), node("b")], [target("a")])
    elbv2 = Refusing("10.0.0.2")
    with pytest.raises(HpctoolsError):
        carry_out(elbv2, "arn", steps, 22, [target("a")])
    assert elbv2.done == []


class ByPort:
    """An elbv2 as AWS's is: targets are known by id and port."""

    def __init__(self, *targets: tuple[str, int]) -> None:
        self.targets = set(targets)

    def ask(self, operation: str, **words: Any) -> dict[str, Any]:
        named = {(each["Id"], each["Port"]) for each in words.get("Targets", ())}
        if operation == "deregister_targets":
            self.targets -= named
        elif operation == "register_targets":
            self.targets |= named
        targets = [
            {"Target": {"Id": i, "Port": p}, "TargetHealth": {"State": "healthy"}} for i, p in self.targets
        ]
        return {"TargetHealthDescriptions": targets}


def test_what_leaves_is_named_with_the_ports_that_it_has() -> None:
    """Registered by hand, or when sshd was elsewhere: with the port of today AWS would find nothing."""
    elbv2 = ByPort(("10.0.0.1", 2222), ("10.0.0.1", 22), ("10.0.0.2", 2222), ("10.0.0.24", 9))
    nodes, targets = [node("a", True), node("b"), node("c")], read_targets(elbv2, "arn")
    others = of_other_ports(nodes, targets, 22)
    assert sorted((name, each.port) for name, each in others) == [("a", 2222), ("b", 2222)]
    carry_out(elbv2, "arn", plan(nodes, targets), 22, targets)
    assert elbv2.targets == {("10.0.0.2", 2222), ("10.0.0.3", 22), ("10.0.0.24", 9)}


@given(st.dictionaries(NAMES, st.booleans(), min_size=1), st.sets(NAMES, min_size=1))
def test_there_is_always_somebody_and_a_second_time_does_nothing(
    drained: dict[str, bool], present: set[str]
) -> None:
    nodes = [node(name, gone) for name, gone in drained.items()]
    steps = plan(nodes, [target(name) for name in present])
    left = {t for _, t in steps.deregister}
    after = ({target(name).id for name in present} | {t for _, t in steps.register}) - left
    assert after
    assert plan(nodes, [Target(each, 22, "healthy") for each in after]).is_nothing


@pytest.fixture
def elbv2(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Service, str]]:
    """moto's elbv2 with a target group of addresses."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    with mock_aws():
        client: Any = boto3.client("elbv2", region_name="eu-central-1")
        vpc: Any = boto3.client("ec2", region_name="eu-central-1").create_vpc(CidrBlock="10.0.0.0/16")
        made = client.create_target_group(
            Name="login", Protocol="TCP", Port=22, VpcId=vpc["Vpc"]["VpcId"], TargetType="ip"
        )
        yield Service(client, "elbv2", "eu-central-1"), made["TargetGroups"][0]["TargetGroupArn"]


def test_a_real_target_group_is_brought_in_step(elbv2: tuple[Service, str]) -> None:
    service, group = elbv2

    def ids() -> set[str]:
        return {each.id for each in read_targets(service, group) if each.state != "draining"}

    def step(*nodes: LoginNode) -> Steps:
        targets = read_targets(service, group)
        steps = plan(nodes, targets)
        carry_out(service, group, steps, 22, targets)
        return steps

    step(node("a"), node("b"))
    assert ids() == {"10.0.0.1", "10.0.0.2"}
    assert step(node("a"), node("b")).is_nothing
    step(node("a", True), node("b"))
    assert ids() == {"10.0.0.2"}
    assert step(node("a", True), node("b", True)).kept == "b"
    assert ids() == {"10.0.0.2"}
    step(node("a"), node("b"))
    assert ids() == {"10.0.0.1", "10.0.0.2"}
