"""The aws section: what it takes, and what it refuses with the line and what is wanted instead."""

from __future__ import annotations

import pytest

from hpctools.site import InvalidSiteError, loads
from hpctools.site.aws import Aws

SITE = """\
cluster: {name: tiny, controllers: [ctl]}
node_groups:
  - {name: cpu, instance_type: m5.large, count: 2}
departments:
  - {name: bio, supervisor: ada, partition: {node_groups: [cpu]}}
tiers:
  normal: {priority: 100, default: true}
"""
VPC = "{id: vpc-0123456789abcdef0, cidr: 10.0.0.0/16, subnets: [subnet-0123456789abcdef0]}"
FSX = "{name: a, mount: /a}"
KEY = "arn:aws:kms:eu-central-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"


def refused(aws: str) -> list[str]:
    with pytest.raises(InvalidSiteError) as told:
        loads(f"{SITE}aws: {aws}\n")
    return [str(each) for each in told.value.findings]


def aws_of(aws: str) -> Aws:
    found = loads(f"{SITE}aws: {aws}\n").aws
    assert found is not None
    return found


def test_an_empty_section_is_a_private_network_with_a_way_out_buckets_and_a_budget() -> None:
    found = aws_of("{}")
    assert (found.network.internet, found.network.subnet_count, found.network.has_public_subnets) == (
        "nat",
        2,
        True,
    )
    assert found.buckets.data is not None
    assert found.buckets.checkpoints is not None
    assert found.budget is not None
    assert loads(SITE).aws is None


@pytest.mark.parametrize(
    ("aws", "place", "expected"),
    [
        ("{region: frankfurt}", "aws.region", "an AWS region, for example eu-central-1"),
        ("{network: {zones: [eu-central-1a]}}", "aws.network.zones[0]", "the id of an availability zone"),
        ("{network: {zones: [euc1-az1, euc1-az1]}}", "aws.network", "each zone once"),
        ("{network: {cidr: 10.0.0.1/16}}", "aws.network.cidr", "without host bits"),
        ("{network: {cidr: 10.0.0.0/24}}", "aws.network", "a range between /16 and /22"),
        ("{network: {cidr: fe80::/64}}", "aws.network.cidr", "a range of IPv4 addresses"),
        ("{network: {internet: none, endpoints: [ssm]}}", "aws.network", "s3 among them"),
        (f"{{file_systems: [{FSX}, {FSX}]}}", "aws", "a mount and a name of their own"),
        ("{file_systems: [{name: a, mount: /a, size_gib: 3600}]}", "aws.file_systems[0]", "multiple of 2400"),
        (
            "{file_systems: [{name: a, mount: /a, throughput: 320}]}",
            "aws.file_systems[0]",
            "125, 250, 500, 1000",
        ),
        (
            "{file_systems: [{name: a, kind: openzfs, mount: /a, throughput: 250}]}",
            "aws.file_systems[0]",
            "160, 320",
        ),
        ("{file_systems: [{name: a, mount: fsx}]}", "aws.file_systems[0].mount", "an absolute path"),
        (
            "{file_systems: [{name: a, mount: /a, existing: {dns_name: fs-0123456789abcdef0.fsx.eu-central-1."
            "amazonaws.com}}]}",
            "aws.file_systems[0]",
            "existing.mount_name for lustre",
        ),
        ("{buckets: {lifecycle: scripts}}", "aws.buckets.lifecycle", "starts with sagemaker-"),
        ("{buckets: {data: {name: My_Data}}}", "aws.buckets.data.name", "a bucket name"),
        (
            "{region: eu-west-1, buckets: {checkpoints: {replicate_to: eu-west-1}}}",
            "aws",
            "another region than the cluster's",
        ),
        (
            f"{{kms_key: '{KEY}', buckets: {{checkpoints: {{replicate_to: eu-west-1}}}}}}",
            "aws",
            "replica_key",
        ),
        (
            "{network: {zones: [euc1-az1]}, accounting_database: {}}",
            "aws",
            "two zones or more: accounting_database",
        ),
        (f"{{network: {{vpc: {VPC}}}, accounting_database: {{}}}}", "aws", "two zones or more"),
        (
            "{network: {internet: none},"
            " login: {load_balancer: {internet_facing: true, allow_from: [10.0.0.0/8]}}}",
            "aws",
            "beside an internet-facing entry",
        ),
        ("{login: {load_balancer: {}}}", "aws.login.load_balancer.allow_from", "the key"),
        (
            "{login: {scaling: {instance_type: m7i.large, image: ami-0123456789abcdef0}}}",
            "aws.login",
            "load_balancer",
        ),
        (
            "{login: {load_balancer: {allow_from: [10.0.0.0/8]},"
            " scaling: {instance_type: ml.m5.large, image: ami-0123456789abcdef0}}}",
            "aws.login.scaling",
            "an EC2 instance type: m5.large",
        ),
        ("{directory: {}}", "aws.directory", "create or reach"),
        ("{notifications: {emails: [nobody]}}", "aws.notifications.emails[0]", "an e-mail address"),
        ("{budget: {amount: 5}}", "aws.budget.amount", "text in quotes"),
        ("{tags: {'aws:x': y}}", "aws.tags", "not starting with aws:"),
        ("{keep_logs_days: 0}", "aws.keep_logs_days", "1"),
        ("{identity_center: {instance: x}}", "aws.identity_center.instance", "an Identity Center instance"),
    ],
)
def test_what_cannot_be_is_refused_where_it_stands(aws: str, place: str, expected: str) -> None:
    told = refused(aws)
    assert any(f"site.yaml:8: {place}" in each and expected in each for each in told), told


def test_lists_have_lengths_that_aws_takes() -> None:
    assert refused("{budget: {alert_at: [1, 2, 3, 4, 5]}}")  # with the forecast's, AWS takes five
    many = ", ".join(f"a{number}@b.example" for number in range(11))
    assert refused(f"{{notifications: {{emails: [{many}]}}}}")
