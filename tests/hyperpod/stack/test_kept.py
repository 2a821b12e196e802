"""What stays of a stack when its cluster goes: all that has data, and nothing that could not be made."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctools.hyperpod.stack import infrastructure
from hpctools.hyperpod.stack.kept import given_up, holds_data, kept_only, references
from tests.hyperpod.stack.sites import example, smallest

PSEUDO = {"AWS::AccountId", "AWS::Partition", "AWS::Region", "AWS::StackName", "AWS::URLSuffix"}


@lru_cache
def university() -> dict[str, Any]:
    return infrastructure(example("university"))


def kinds(template: dict[str, Any]) -> set[str]:
    return {each["Type"] for each in template["Resources"].values()}


def test_data_stays_with_its_network_and_what_costs_by_the_hour_goes() -> None:
    kept = kept_only(university())
    assert kept is not None
    resources = kept["Resources"]
    assert {name for name, each in university()["Resources"].items() if holds_data(each)} <= resources.keys()
    assert {
        "Vpc",
        "PrivateSubnet1",
        "NodeSecurityGroup",
        "LustreSecurityGroup",
        "LustreInside1",
    } <= resources.keys()
    assert {"DataBucketPolicy", "CheckpointBucketPolicy", "ReplicationRole"} <= resources.keys()
    gone = {
        "NatGateway",
        "NatAddress",
        "EndpointS3",
        "LoginBalancer",
        "LifecycleBucket",
        "ComputeRole",
        "Topic",
        "Budget",
    }
    assert gone & resources.keys() == set()


def test_nothing_of_what_stays_changes() -> None:
    kept = kept_only(university())
    assert kept is not None
    assert all(kept["Resources"][name] == university()["Resources"][name] for name in kept["Resources"])
    assert kept_only(kept) == kept


def test_a_site_with_buckets_only_keeps_no_network() -> None:
    kept = kept_only(infrastructure(smallest()))
    assert kept is not None
    assert kinds(kept) == {"AWS::S3::Bucket", "AWS::S3::BucketPolicy", "AWS::Logs::LogGroup"}


def test_without_data_nothing_stays() -> None:
    template = {"Resources": {"Vpc": {"Type": "AWS::EC2::VPC"}}}
    assert kept_only(template) is None


def test_data_that_is_given_up_goes_and_the_database_leaves_a_snapshot() -> None:
    given = given_up(kept_only(university()) or {})
    policies = {name: each.get("DeletionPolicy") for name, each in given["Resources"].items()}
    assert policies["Database"] == "Snapshot"
    assert university()["Resources"]["Database"]["Properties"]["DeletionProtection"] is True
    assert given["Resources"]["Database"]["Properties"]["DeletionProtection"] is False
    assert {policies[name] for name in ("DataBucket", "FileSystemHome", "DatabaseSecret")} == {"Delete"}
    assert given_up(given) == given


def test_data_that_was_given_up_and_is_still_there_can_be_kept_again() -> None:
    kept = kept_only(university()) or {}
    again = kept_only(given_up(kept)) or {}
    assert again["Resources"].keys() == kept["Resources"].keys()
    holding = {name for name, each in kept["Resources"].items() if holds_data(each)}
    assert {again["Resources"][name]["DeletionPolicy"] for name in holding} == {"Retain"}


NAMES = ["A", "B", "C", "D", "E"]


@st.composite
def templates(draw: st.DrawFn) -> dict[str, Any]:
    """Resources that speak of each other in every way that there is, in no circles that matter."""
    resources = {}
    for name in NAMES:
        others = draw(st.lists(st.sampled_from(NAMES), max_size=3))
        forms = [{"Ref": o} for o in others[:1]] + [{"Fn::GetAtt": [o, "Arn"]} for o in others[1:2]]
        forms += [{"Fn::Sub": f"a-${{{o}.Arn}}-${{AWS::Region}}"} for o in others[2:]]
        made: dict[str, Any] = {"Type": draw(st.sampled_from(["X::Y::Z", "AWS::S3::BucketPolicy"]))}
        made["Properties"] = {"Of": forms}
        if draw(st.booleans()):
            made["DependsOn"] = draw(st.sampled_from([*NAMES, [NAMES[0], NAMES[1]]]))
        if draw(st.integers(0, 3)) == 0:
            made["DeletionPolicy"] = "Retain"
        resources[name] = made
    outputs = {f"Of{name}": {"Value": {"Ref": name}} for name in NAMES}
    return {"Resources": resources, "Outputs": outputs}


@given(templates())
def test_what_stays_is_whole_and_no_more_than_that(template: dict[str, Any]) -> None:
    kept = kept_only(template)
    data = {name for name, each in template["Resources"].items() if holds_data(each)}
    if not data:
        assert kept is None
        return
    assert kept is not None
    assert data <= kept["Resources"].keys()
    assert references(kept) <= kept["Resources"].keys() | PSEUDO
    for name in kept["Resources"].keys() - data:  # each is needed, or only speaks of what stays
        needed = any(name in references(each) for other, each in kept["Resources"].items() if other != name)
        assert needed or kept["Resources"][name]["Type"] == "AWS::S3::BucketPolicy"


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"Ref": "A"}, {"A"}),
        ({"Fn::GetAtt": ["A", "Arn"]}, {"A"}),
        ({"Fn::Sub": "x-${A.Arn}/${B}-${!C}"}, {"A", "B"}),
        ({"DependsOn": "A", "Properties": {"Deep": [{"More": {"Ref": "B"}}]}}, {"A", "B"}),
        ({"DependsOn": ["A", "B"]}, {"A", "B"}),
        ({"Text": "${A}"}, set()),
    ],
)
def test_references_in_all_their_forms(value: Any, found: set[str]) -> None:
    assert references(value) == found
