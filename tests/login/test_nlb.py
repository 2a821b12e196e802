"""The load balancer's target group: what is planned, and moto's elbv2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st
from moto import mock_aws

from hpctools.hyperpod.operations.aws import Service
from hpctools.login.nlb import LoginNode, Steps, Target, carry_out, plan, read_targets

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
        steps = plan(nodes, read_targets(service, group))
        carry_out(service, group, steps, 22)
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
