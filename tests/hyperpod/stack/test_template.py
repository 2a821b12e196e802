"""The template as a whole: what it is made from, what it never has in it, and that AWS's own rules hold."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctools.errors import UsageError
from hpctools.hyperpod.operations.stacks import Wanted
from hpctools.hyperpod.stack import as_yaml, copies, infrastructure, lifecycle_bucket, stack_name
from hpctools.hyperpod.stack.context import short_name
from hpctools.hyperpod.stack.intrinsic import BODY_LIMIT, Part, template
from hpctools.hyperpod.stack.kept import given_up, kept_only, references
from hpctools.hyperpod.stack.logs import RETENTIONS, retention
from hpctools.hyperpod.tags import stack_tags
from hpctools.site import Site
from tests.hyperpod.stack.sites import example, largest, smallest

SITES = {
    "smallest": smallest,
    "university": lambda: example("university"),
    "closed-network": lambda: example("closed-network"),
    "largest": largest,
    "no-way-out": lambda: smallest(network={"internet": "none", "zones": ("use1-az1",)}),
}
PSEUDO = {"AWS::AccountId", "AWS::Partition", "AWS::Region", "AWS::StackName", "AWS::URLSuffix"}


@lru_cache
def made(name: str) -> dict[str, Any]:
    return infrastructure(SITES[name]())


@lru_cache
def schemas() -> Any:
    from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER

    return PROVIDER_SCHEMA_MANAGER


def of_type(found: dict[str, Any], kind: str) -> dict[str, dict[str, Any]]:
    return {name: each for name, each in found["Resources"].items() if each["Type"] == kind}


def test_the_smallest_sites_template_is_this(golden: Callable[[str, str], None]) -> None:
    golden("stack-smallest.yaml", as_yaml(made("smallest")))


# (template, regions): one region with everything, several at once for the usual shapes.
LINTED = {
    "smallest": (lambda: made("smallest"), ["us-east-1", "ap-northeast-1"]),
    "university": (lambda: made("university"), ["eu-central-1"]),
    "closed-network": (lambda: made("closed-network"), ["us-west-2"]),
    "copies": (lambda: copies(example("university")), ["eu-west-1"]),
    "copies-with-key": (lambda: copies(example("closed-network")), ["us-east-2"]),
    "kept": (lambda: kept_only(made("university")), ["eu-central-1"]),
    "given-up": (lambda: given_up(kept_only(made("closed-network")) or {}), ["us-west-2"]),
}


@pytest.mark.parametrize("name", LINTED)
def test_cfn_lint_finds_nothing_not_even_information(name: str) -> None:
    from cfnlint.api import lint
    from cfnlint.config import ManualArgs

    build, regions = LINTED[name]
    found = lint(as_yaml(build()), config=ManualArgs(regions=regions, include_checks=["I"]))
    assert [f"{each.rule.id} {each.path}: {each.message}" for each in found] == []


@pytest.mark.parametrize("name", SITES)
def test_the_same_site_gives_the_same_bytes_and_they_mean_the_template(name: str) -> None:
    again = infrastructure(SITES[name]())
    assert as_yaml(again) == as_yaml(made(name))
    assert yaml.safe_load(as_yaml(again)) == again
    assert list(again["Resources"]) == sorted(again["Resources"])
    assert not re.search(r"[&*]id\d|!!", as_yaml(again))


@pytest.mark.parametrize("name", SITES)
def test_what_it_speaks_of_is_there(name: str) -> None:
    assert references(made(name)) <= made(name)["Resources"].keys() | PSEUDO


@pytest.mark.parametrize("name", SITES)
def test_no_secret_is_in_it(name: str) -> None:
    """Passwords are made by Secrets Manager and read by CloudFormation; nothing else is said of them."""
    for place, value in leaves(made(name)["Resources"]):
        if place.rpartition(".")[2] in ("Password", "MasterUserPassword"):
            pytest.fail(f"{place} is the literal {value!r}")
        if "Password.Fn::Sub" in place:
            assert re.fullmatch(r"\{\{resolve:secretsmanager:\$\{\w+\}:SecretString:password\}\}", str(value))


def leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from leaves(each, f"{place}.{key}")
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from leaves(each, f"{place}.{index}")
    else:
        yield place, value


@pytest.mark.parametrize("name", ["university", "closed-network"])
def test_everything_that_can_carry_a_tag_carries_the_bills(name: str) -> None:
    site = SITES[name]()
    tags = stack_tags(site)
    assert {site.billing.cluster_tag, "hpctools:department", "hpctools:capacity"} <= tags.keys()
    wanted = [{"Key": key, "Value": value} for key, value in tags.items()]
    untagged = []
    for logical, each in made(name)["Resources"].items():
        schema = schemas().get_resource_schema("us-east-1", each["Type"]).schema
        key = schema.get("tagging", {}).get("tagProperty", "/properties/Tags").rpartition("/")[2]
        shape = schema["properties"].get(key, {})
        # Listeners cost nothing by themselves.
        carried = tags_of(each, key)
        taggable = schema.get("tagging", {}).get("taggable") and shape
        if taggable and not all(tag in carried for tag in wanted):
            untagged.append((logical, each["Type"]))
    allowed = {"AWS::ElasticLoadBalancingV2::Listener"}
    assert [each for each in untagged if each[1] not in allowed] == []


def tags_of(resource: dict[str, Any], key: str) -> list[Any]:
    stated = resource.get("Properties", {}).get(key, [])
    if key == "TagSpecifications":
        return [tag for each in stated for tag in each["Tags"]]
    return [
        {"Key": tag["Key"], "Value": tag["Value"]} for tag in stated if isinstance(tag, dict) and "Key" in tag
    ]


@pytest.mark.parametrize("name", SITES)
def test_it_fits_into_one_request_and_loses_no_tag_by_it(name: str) -> None:
    site = SITES[name]()
    tags = dict(stack_tags(site))
    wanted = Wanted("a", made(name), tags)
    assert len(wanted.body) <= BODY_LIMIT
    sent, whole = json.loads(wanted.body), made(name)
    if sent != whole:
        assert name == "largest"  # only that one is too long with them
        assert without_tags(sent, tags) == without_tags(whole, tags)


def without_tags(value: Any, tags: dict[str, str]) -> Any:
    """What CloudFormation tags by itself: all but the volumes of a launch template's instances."""
    if isinstance(value, dict) and value.get("ResourceType") == "volume":
        return value
    if isinstance(value, dict):
        kept = {key: without_tags(each, tags) for key, each in value.items()}
        return {key: each for key, each in kept.items() if each != [] or key not in ("Tags", "ResourceTags")}
    if isinstance(value, list):
        plain = [{"Key": key, "Value": each} for key, each in tags.items()]
        ours = [*plain, *(each | {"PropagateAtLaunch": False} for each in plain)]
        return [without_tags(each, tags) for each in value if each not in ours]
    return value


@pytest.mark.parametrize("name", SITES)
def test_subnets_are_within_the_network_and_apart(name: str) -> None:
    subnets = of_type(made(name), "AWS::EC2::Subnet")
    if not subnets:  # the site has a network of its own
        assert made(name)["Outputs"]["SubnetIds"]["Value"].startswith("subnet-")
        return
    ranges = [ipaddress.ip_network(each["Properties"]["CidrBlock"]) for each in subnets.values()]
    whole = ipaddress.ip_network(of_type(made(name), "AWS::EC2::VPC")["Vpc"]["Properties"]["CidrBlock"])
    assert not any(each["Properties"]["MapPublicIpOnLaunch"] for each in subnets.values())
    assert all(each.subnet_of(whole) for each in ranges)
    assert not any(one.overlaps(other) for one in ranges for other in ranges if one is not other)


def test_nodes_speak_with_each_other_both_ways_for_efa() -> None:
    """EFA needs the way out to the group itself beside one to 0.0.0.0/0 (awsome-distributed-ai #546)."""
    nodes = {"Fn::GetAtt": ["NodeSecurityGroup", "GroupId"]}
    found = made("smallest")["Resources"]
    inside, out = found["NodesFromNodes"]["Properties"], found["NodesToNodes"]["Properties"]
    assert (inside["GroupId"], inside["SourceSecurityGroupId"], inside["IpProtocol"]) == (nodes, nodes, "-1")
    assert (out["GroupId"], out["DestinationSecurityGroupId"], out["IpProtocol"]) == (nodes, nodes, "-1")


@pytest.mark.parametrize("name", SITES)
def test_only_the_entry_lets_anybody_in_by_address(name: str) -> None:
    site = SITES[name]()
    balancer = site.aws.login.load_balancer if site.aws else None
    for logical, each in of_type(made(name), "AWS::EC2::SecurityGroup").items():
        cidrs = {
            rule["CidrIp"] for rule in each["Properties"].get("SecurityGroupIngress", []) if "CidrIp" in rule
        }
        if logical == "EntrySecurityGroup":
            assert balancer is not None
            assert cidrs == set(balancer.allow_from)
        elif logical == "EndpointSecurityGroup":
            assert "0.0.0.0/0" not in cidrs
        else:
            assert cidrs == set()
        out = [rule["CidrIp"] for rule in each["Properties"]["SecurityGroupEgress"]]
        assert out == ["127.0.0.1/32"], "AWS adds a rule that lets all out where a group has none"


def test_without_internet_nothing_leads_out() -> None:
    kinds = {each["Type"] for each in made("no-way-out")["Resources"].values()}
    assert kinds & {"AWS::EC2::NatGateway", "AWS::EC2::InternetGateway", "AWS::EC2::EIP"} == set()
    services = {
        each["Properties"]["ServiceName"]["Fn::Sub"].removeprefix("com.amazonaws.${AWS::Region}.")
        for each in of_type(made("no-way-out"), "AWS::EC2::VPCEndpoint").values()
    }
    needed = {"s3", "ssm", "ssmmessages", "ec2messages", "sts", "logs", "ecr.api", "ecr.dkr", "sagemaker.api"}
    assert services >= needed | {"secretsmanager"}


@pytest.mark.parametrize("name", SITES)
def test_buckets_are_closed_encrypted_versioned_and_spoken_with_by_tls(name: str) -> None:
    buckets = of_type(made(name), "AWS::S3::Bucket")
    assert {"LifecycleBucket", "DataBucket", "CheckpointBucket"} <= buckets.keys()
    for logical, bucket in buckets.items():
        stated = bucket["Properties"]
        assert set(stated["PublicAccessBlockConfiguration"].values()) == {True}
        assert len(stated["PublicAccessBlockConfiguration"]) == 4
        assert stated["VersioningConfiguration"] == {"Status": "Enabled"}
        assert stated["BucketEncryption"]["ServerSideEncryptionConfiguration"]
        policy = made(name)["Resources"][f"{logical}Policy"]["Properties"]["PolicyDocument"]["Statement"]
        assert policy == [
            {
                "Sid": "EncryptedConnectionsOnly",
                "Effect": "Deny",
                "Principal": "*",
                "Action": "s3:*",
                "Resource": [{"Fn::GetAtt": [logical, "Arn"]}, {"Fn::Sub": f"${{{logical}.Arn}}/*"}],
                "Condition": {"Bool": {"aws:SecureTransport": "false"}},
            }
        ]


def test_what_has_data_outlives_the_stack_and_scripts_do_not() -> None:
    kept = {
        name: each["DeletionPolicy"]
        for name, each in made("university")["Resources"].items()
        if "DeletionPolicy" in each
    }
    assert kept == {
        "CheckpointBucket": "Retain",
        "DataBucket": "Retain",
        "SessionLogGroup": "Retain",
        "Database": "RetainExceptOnCreate",
        "DatabaseSecret": "RetainExceptOnCreate",
        "FileSystemHome": "RetainExceptOnCreate",
        "FileSystemScratch": "RetainExceptOnCreate",
        "FlowLogGroup": "Delete",
        "LifecycleBucket": "Delete",
    }
    policies = [each.get("UpdateReplacePolicy") for each in made("university")["Resources"].values()]
    assert policies.count("Retain") == 7  # nor does a change that replaces them lose them


def test_every_log_group_forgets() -> None:
    for name in SITES:
        for group in of_type(made(name), "AWS::Logs::LogGroup").values():
            assert group["Properties"]["RetentionInDays"] == 90


@given(st.integers(1, 3653))
def test_logs_are_kept_no_shorter_than_asked_for(days: int) -> None:
    chosen = retention(days)
    assert chosen in RETENTIONS
    assert chosen >= days
    assert all(each < days for each in RETENTIONS if each < chosen)


def test_the_budget_watches_the_clusters_tag_and_adds_up_the_departments() -> None:
    raw = example("university").model_dump(mode="python", exclude_unset=True)
    raw["aws"].pop("budget")
    budget = of_type(infrastructure(Site.model_validate(raw)), "AWS::Budgets::Budget")["Budget"]["Properties"]
    assert budget["Budget"]["BudgetLimit"] == {"Amount": "55000.00", "Unit": "USD"}
    assert budget["Budget"]["CostFilters"] == {"TagKeyValue": ["user:ClusterName$uni-gpu"]}
    told = [
        (each["Notification"]["NotificationType"], each["Notification"]["Threshold"])
        for each in budget["NotificationsWithSubscribers"]
    ]
    assert told == [("ACTUAL", 50), ("ACTUAL", 75), ("ACTUAL", 90), ("ACTUAL", 100), ("FORECASTED", 100)]


def test_budgets_in_another_currency_are_not_added_to_dollars() -> None:
    raw = example("university").model_dump(mode="python", exclude_unset=True)
    raw["aws"].pop("budget")
    raw["departments"][0]["budget"] |= {"currency": "EUR"}
    with pytest.raises(UsageError, match="budgets in EUR, and AWS Budgets counts in USD"):
        infrastructure(Site.model_validate(raw))


def test_addresses_that_differ_in_signs_only_are_told_each() -> None:
    people = ("a.lee@uni.example", "a-lee@uni.example", "alee@uni.example", "a.lee@un.i-example.org")
    resources = infrastructure(smallest(notifications={"emails": people}))["Resources"]
    mails = {name: each for name, each in resources.items() if each["Type"] == "AWS::SNS::Subscription"}
    assert sorted(each["Properties"]["Endpoint"] for each in mails.values()) == sorted(people)
    assert all(name.isalnum() for name in mails)


def test_a_site_without_an_aws_section_has_no_stack() -> None:
    with pytest.raises(UsageError, match="no aws section"):
        infrastructure(example("centre"))
    assert copies(smallest()) is None


def test_login_nodes_that_come_and_go_need_a_login_group() -> None:
    login = {
        "load_balancer": {"allow_from": ("10.0.0.0/8",)},
        "scaling": {"instance_type": "m7i.large", "image": "ami-0123456789abcdef0"},
    }
    with pytest.raises(UsageError, match="no node group of role login"):
        infrastructure(smallest(login=login))


def test_two_parts_with_one_name_are_a_mistake_that_is_seen() -> None:
    part = Part({"Vpc": {"Type": "AWS::EC2::VPC"}})
    with pytest.raises(ValueError, match="Vpc"):
        template("twice", [part, part])


@settings(max_examples=200)
@given(st.from_regex(r"[a-z][a-z0-9_-]{0,39}", fullmatch=True))
def test_bucket_names_are_names_that_s3_takes(cluster: str) -> None:
    short = short_name(cluster)
    for name in (f"sagemaker-{short}", f"{short}-data", f"{short}-checkpoints"):
        whole = f"{name}-123456789012-ap-southeast-7"
        assert re.fullmatch(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]", whole), whole
    assert short_name(cluster) == short


@given(st.lists(st.from_regex(r"[a-z][a-z0-9_-]{0,39}", fullmatch=True), min_size=2, max_size=6, unique=True))
def test_different_clusters_have_different_buckets(clusters: list[str]) -> None:
    assert len({short_name(cluster) for cluster in clusters}) == len(clusters)


def test_names_are_what_others_are_told() -> None:
    site = example("university")
    assert stack_name(site) == "hpctools-uni-gpu"
    assert (
        lifecycle_bucket(site, "123456789012", "eu-central-1")
        == "sagemaker-uni-gpu-123456789012-eu-central-1"
    )
    assert stack_name(example("closed-network")) == "genomics-hpc"
