"""Judging what AWS told: facts that are given, one of them wrong, and exactly the finding that it makes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hpctools.hyperpod.live import AwsFacts, judge
from hpctools.hyperpod.live.facts import FileSystem, Permission, Plan, Role, SecurityGroup, Statement, Subnet
from hpctools.hyperpod.live.role_rules import MANAGED_POLICY
from tests.hyperpod.samples import Json, files, legacy, pairs, slurmconfig

REGION = "eu-central-1"
PLAN = "arn:aws:sagemaker:eu-central-1:123456789012:training-plan/spring"

SG, SUBNET, VPC = "sg-0a1b2c3d4e5f60718", "subnet-0a1b2c3d4e5f60718", "vpc-1"
ITSELF = Permission("-1", None, None, frozenset({SG}), frozenset())
EVERYWHERE = Permission("-1", None, None, frozenset(), frozenset({"0.0.0.0/0"}))
ROLE_ARN = "arn:aws:iam::111122223333:role/nodes"
ALLOWED = Statement(True, ("ec2:*",), ("*",))
FACTS = AwsFacts(
    region=REGION,
    account="111122223333",
    subnets={SUBNET: Subnet(VPC, f"{REGION}a", "euc1-az2", "10.0.0.0/24", 200, False, False)},
    groups={SG: SecurityGroup(VPC, (ITSELF,), (ITSELF,))},
    file_systems={
        "fs-0a1b2c3d4e5f60718": FileSystem(
            "LUSTRE",
            "fs-0a1b2c3d4e5f60718.fsx.eu-central-1.amazonaws.com",
            "abcdefgh",
            VPC,
            "AVAILABLE",
            None,
        )
    },
    roles={ROLE_ARN: Role(frozenset({"sagemaker.amazonaws.com"}), frozenset({MANAGED_POLICY}), (ALLOWED,))},
)
Change = Callable[[AwsFacts], AwsFacts]


def subnet(**changes: Any) -> Change:
    return lambda facts: replace(facts, subnets={SUBNET: replace((facts.subnets or {})[SUBNET], **changes)})


def security(inbound: tuple[Permission, ...], outbound: tuple[Permission, ...], vpc: str = VPC) -> Change:
    return lambda facts: replace(facts, groups={SG: SecurityGroup(vpc, inbound, outbound)})


def quotas(**changes: float | None) -> Change:
    """Enough of everything that the sample has, but for what is stated; None is told by nobody."""
    enough: dict[str, float | None] = {
        f"{each['InstanceType']} for cluster usage": 20 for each in slurmconfig()["InstanceGroups"]
    }
    enough |= {
        "Maximum number instances allowed per SageMaker HyperPod cluster": 20,
        "Total number of instances allowed across SageMaker HyperPod clusters": 30,
        "Maximum size of EBS volume in GB for a SageMaker HyperPod cluster instance": 1024,
    }
    told = {name: value for name, value in (enough | changes).items() if value is not None}
    return lambda facts: replace(facts, quotas=told)


def system(**changes: Any) -> Change:
    return lambda facts: replace(
        facts,
        file_systems={name: replace(each, **changes) for name, each in (facts.file_systems or {}).items()},
    )


def role(**changes: Any) -> Change:
    return lambda facts: replace(facts, roles={ROLE_ARN: replace((facts.roles or {})[ROLE_ARN], **changes)})


def plan(**changes: Any) -> Plan:
    usual: Json = {
        "status": "Active",
        "targets": {"hyperpod-cluster"},
        "types": {},
        "zones": set(),
        "available": 99,
    }
    return Plan(**usual | changes)


NET, LUSTRE = "/VpcConfig/SecurityGroupIds", "/InstanceGroups/2/InstanceStorageConfigs/1/FsxLustreConfig"
OTHER = Permission("-1", None, None, frozenset({"sg-other"}), frozenset())
CHANGES: list[tuple[str, Change, list[tuple[str, str]]]] = [
    ("as it should be", lambda facts: facts, []),
    ("public addresses", subnet(gives_public_addresses=True), [("/VpcConfig/Subnets/0", "public-subnet")]),
    ("a gateway", subnet(gateway=True), [("/VpcConfig/Subnets/0", "public-subnet")]),
    ("few addresses", subnet(free=13), [("/VpcConfig/Subnets", "addresses")]),
    ("enough addresses", subnet(free=14), []),
    # AWS's own validator takes a reference to whatever group for one to itself, and no rule for a good one.
    ("another group in", security((OTHER,), (ITSELF,)), [(NET, "self-reference")]),
    ("no rule in", security((), (ITSELF,)), [(NET, "self-reference")]),
    (
        "one port in",
        security((replace(ITSELF, protocol="tcp", first=22, last=22),), (ITSELF,)),
        [(NET, "self-reference")],
    ),
    ("out to anywhere, with EFA", security((ITSELF,), (EVERYWHERE,)), [(NET, "self-reference")]),
    ("no rule out", security((ITSELF,), ()), [(NET, "self-reference")]),
    ("two VPCs", security((ITSELF,), (ITSELF,), "vpc-2"), [(f"{NET}/0", "one-vpc")]),
    ("no file system", lambda facts: replace(facts, file_systems={}), [(f"{LUSTRE}/DnsName", "fsx")]),
    ("being made", system(status="CREATING"), [(f"{LUSTRE}/DnsName", "fsx")]),
    ("OpenZFS", system(kind="OPENZFS"), [(f"{LUSTRE}/DnsName", "fsx")]),
    ("another mount name", system(mount_name="zzzz"), [(f"{LUSTRE}/MountName", "fsx-names")]),
    (
        "another DNS name",
        system(dns_name="fs-0a1b2c3d4e5f60718.fsx.other"),
        [(f"{LUSTRE}/DnsName", "fsx-names")],
    ),
    ("in another VPC", system(vpc="vpc-2"), [(f"{LUSTRE}/DnsName", "fsx-reach")]),
    ("reached through the nodes' group", system(groups=frozenset({SG})), []),
    (
        "nobody may take it on",
        role(services=frozenset({"ec2.amazonaws.com"})),
        [("/InstanceGroups/0/ExecutionRole", "role-trust")],
    ),
    ("no network rights", role(statements=()), [("/InstanceGroups/0/ExecutionRole", "role-policies")]),
    (
        "denied",
        role(statements=(ALLOWED, Statement(False, ("ec2:Delete*",), ("*",)))),
        [("/InstanceGroups/0/ExecutionRole", "role-policies")],
    ),
    ("denied elsewhere", role(statements=(ALLOWED, Statement(False, ("ec2:*",), ("arn:x",)))), []),
    ("no role", lambda facts: replace(facts, roles={}), [("/InstanceGroups/0/ExecutionRole", "role")]),
    (
        "nowhere for sale",
        lambda facts: replace(facts, offered={"p4d.24xlarge": frozenset({f"{REGION}b"})}),
        [("/InstanceGroups/2/InstanceType", "instance-offering")],
    ),
    ("for sale here", lambda facts: replace(facts, offered={"p4d.24xlarge": frozenset({f"{REGION}a"})}), []),
    (
        "the name is taken",
        lambda facts: replace(facts, clusters=frozenset({"training"})),
        [("/ClusterName", "cluster-exists?")],
    ),
    (
        "a quota of volumes",
        quotas(**{"Maximum size of EBS volume in GB for a SageMaker HyperPod cluster instance": 100}),
        [("/InstanceGroups/2/InstanceStorageConfigs/0/EbsVolumeConfig/VolumeSizeInGB", "quota")],
    ),
    (
        "a quota of all clusters",
        quotas(**{"Total number of instances allowed across SageMaker HyperPod clusters": 13}),
        [("/InstanceGroups", "quota")],
    ),
    (
        "a quota of one cluster, in AWS's own words",
        quotas(**{"Maximum number instances allowed per SageMaker HyperPod cluster": 13}),
        [("/InstanceGroups", "quota")],
    ),
    (
        "a quota that has another name by now",
        quotas(**{"Total number of instances allowed across SageMaker HyperPod clusters": None}),
        [("/InstanceGroups", "not-checked?")],
    ),
]


@pytest.mark.parametrize(
    ("change", "expected"), [each[1:] for each in CHANGES], ids=[each[0] for each in CHANGES]
)
def test_one_fact_that_is_wrong_is_one_finding(change: Change, expected: list[tuple[str, str]]) -> None:
    assert pairs(tuple(judge(files(slurmconfig()), change(FACTS)))) == expected


def test_nothing_known_is_nothing_judged() -> None:
    assert list(judge(files(slurmconfig()), AwsFacts(REGION, "1"))) == []


def test_every_network_is_looked_at_not_the_first_subnet_alone() -> None:
    """AWS's own validator looks at the first subnet of VpcConfig, and never at OverrideVpcConfig."""
    request = slurmconfig()
    request["VpcConfig"]["Subnets"].append("subnet-2")
    request["InstanceGroups"][2]["OverrideVpcConfig"] = {
        "SecurityGroupIds": ["sg-3"],
        "Subnets": ["subnet-3"],
    }
    public = replace((FACTS.subnets or {})[SUBNET], gateway=True)
    subnets = dict(FACTS.subnets or {}) | {"subnet-2": public, "subnet-3": public}
    groups = dict(FACTS.groups or {}) | {"sg-3": SecurityGroup(VPC, (), (EVERYWHERE,))}
    found = pairs(tuple(judge(files(request), replace(FACTS, subnets=subnets, groups=groups))))
    own = "/InstanceGroups/2/OverrideVpcConfig"
    assert found == [
        ("/VpcConfig/Subnets/1", "public-subnet"),
        (f"{own}/Subnets/0", "public-subnet"),
        (f"{own}/SecurityGroupIds", "self-reference"),
        (f"{own}/SecurityGroupIds", "self-reference"),
    ]


def test_ports_of_a_file_system_behind_a_door_of_its_own() -> None:
    door = "sg-door"
    request = slurmconfig()
    request["VpcConfig"]["SecurityGroupIds"].append(door)
    facts = system(groups=frozenset({door}))(FACTS)

    def with_rules(*rules: Permission) -> list[tuple[str, str]]:
        groups = dict(facts.groups or {}) | {door: SecurityGroup(VPC, rules, ())}
        return pairs(tuple(judge(files(request), replace(facts, groups=groups))))

    ports = [(988, 988), (1021, 1023)]
    nodes = [Permission("tcp", low, high, frozenset({SG}), frozenset()) for low, high in ports]
    ranges = [Permission("tcp", low, high, frozenset(), frozenset({"10.0.0.0/8"})) for low, high in ports]
    assert with_rules(*nodes) == with_rules(*ranges) == []
    assert with_rules(*nodes[:1]) == [(f"{LUSTRE}/DnsName", "fsx-reach")]
    narrow = [replace(rule, ranges=frozenset({"10.0.0.0/25"})) for rule in ranges]
    assert with_rules(*narrow) == [(f"{LUSTRE}/DnsName", "fsx-reach")]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (plan(), []),
        (plan(types={"ml.p4d.24xlarge": 8}, zones={f"{REGION}a"}), []),
        (plan(zones={"euc1-az2"}), []),
        (plan(status="Expired", available=0), ["TrainingPlanArn"]),
        (plan(status="Scheduled", available=0), []),
        (plan(targets={"training-job"}), ["TrainingPlanArn"]),
        (plan(types={"ml.p5.48xlarge": 8}), ["InstanceType"]),
        (plan(available=7), ["InstanceCount"]),
        (plan(zones={f"{REGION}c"}), ["TrainingPlanArn"]),
    ],
)
def test_plans(given: Plan, expected: list[str]) -> None:
    request = slurmconfig()
    request["InstanceGroups"][2]["TrainingPlanArn"] = PLAN
    found = pairs(tuple(judge(files(request), replace(FACTS, plans={PLAN: given}))))
    assert found == [(f"/InstanceGroups/2/{key}", "training-plan") for key in expected]


def test_without_efa_a_range_will_do() -> None:
    request = slurmconfig()
    request["InstanceGroups"][2]["InstanceType"] = "ml.m5.xlarge"
    facts = security((ITSELF,), (EVERYWHERE,))(FACTS)
    assert pairs(tuple(judge(files(request), facts))) == [(NET, "self-reference?")]


def test_scripts_outside_the_managed_policys_reach() -> None:
    request = slurmconfig()
    for each in request["InstanceGroups"]:
        each["LifeCycleConfig"]["SourceS3Uri"] = "s3://my-scripts/x"
    assert pairs(tuple(judge(files(request), FACTS))) == [
        ("/InstanceGroups/0/ExecutionRole", "role-policies")
    ]
    reads = Statement(True, ("s3:*",), ("arn:aws:s3:::my-scripts", "arn:aws:s3:::my-scripts/*"))
    assert pairs(tuple(judge(files(request), role(statements=(ALLOWED, reads))(FACTS)))) == []


def test_a_legacy_cluster_needs_its_file_in_s3() -> None:
    request, provisioning = legacy()
    objects = {"s3://sagemaker-cluster-111122223333/current/": frozenset({"on_create.sh"})}
    found = pairs(tuple(judge(files(request, provisioning), replace(FACTS, objects=objects))))
    assert found == [
        (f"/InstanceGroups/{n}/LifeCycleConfig/SourceS3Uri", "lifecycle-scripts") for n in range(4)
    ]


def test_an_update_is_of_a_cluster_that_is_there_and_keeps_its_node_types() -> None:
    request = slurmconfig()
    del request["VpcConfig"], request["Tags"]
    facts = replace(
        FACTS, clusters=frozenset({"training"}), node_types={"head": "Controller", "gpu": "Login"}
    )
    (kind,) = judge(files(request, updates=True), facts)
    assert (kind.pointer, kind.rule) == ("/InstanceGroups/2/SlurmConfig/NodeType", "node-type")
    (missing,) = judge(files(request, updates=True), replace(FACTS, clusters=frozenset({"other"})))
    assert (missing.pointer, missing.rule) == ("/ClusterName", "no-cluster")


def test_spot_instances_have_quotas_of_their_own() -> None:
    request = slurmconfig()
    request["InstanceGroups"][2]["CapacityRequirements"] = {"Spot": {}}
    found = list(judge(files(request), quotas()(FACTS)))
    assert [(each.rule, each.severity) for each in found] == [("not-checked", "warning")] * 2
    told = "\n".join(each.found for each in found)
    assert "'ml.p4d.24xlarge for cluster spot instance usage'" in told
    assert "'Total number of Spot instances allowed across SageMaker HyperPod clusters'" in told
    enough = quotas(
        **{
            "ml.p4d.24xlarge for cluster spot instance usage": 20,
            "Total number of Spot instances allowed across SageMaker HyperPod clusters": 0,
        }
    )
    assert pairs(tuple(judge(files(request), enough(FACTS)))) == [("/InstanceGroups", "quota")]


def test_a_group_in_a_network_of_its_own_reaches_the_file_system_too() -> None:
    """The cluster's security group is let in; that of the group is not."""
    door, own = "sg-00000000000000d00", "sg-00000000000000e00"
    lustre_in = tuple(
        Permission("tcp", low, high, frozenset({SG}), frozenset()) for low, high in [(988, 988), (1018, 1023)]
    )
    facts = system(groups=frozenset({door}))(FACTS)
    groups = {
        **(facts.groups or {}),
        door: SecurityGroup(VPC, lustre_in, ()),
        own: SecurityGroup(
            VPC, (replace(ITSELF, groups=frozenset({own})),), (replace(ITSELF, groups=frozenset({own})),)
        ),
    }
    facts = replace(facts, groups=groups)
    request = slurmconfig()
    assert pairs(tuple(judge(files(request), facts))) == []
    place = next(
        number
        for number, each in enumerate(request["InstanceGroups"])
        if any("FsxLustreConfig" in config for config in each.get("InstanceStorageConfigs", ()))
    )
    request["InstanceGroups"][place]["OverrideVpcConfig"] = {"SecurityGroupIds": [own], "Subnets": [SUBNET]}
    found = list(judge(files(request), facts))
    assert [each.rule for each in found] == ["fsx-reach"]
    assert found[0].pointer.startswith(f"/InstanceGroups/{place}/InstanceStorageConfigs")
