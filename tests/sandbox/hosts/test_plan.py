"""Names and addresses of machines, and what HyperPod's agent says of them."""

from __future__ import annotations

import json

from hpctools.sandbox.hosts import Fleet, agent
from hpctools.sandbox.hosts.plan import Group

SMALL = Fleet(
    cluster="c",
    groups=(Group("ctl", "controller", 1), Group("gpu", "compute", 2, "ml.g5.xlarge", 1)),
    partition="p",
)


def test_names_and_addresses_follow_the_groups() -> None:
    said = [(each.name, each.role, each.address, each.hostname) for each in Fleet().machines]
    assert said == [
        ("controller-1", "controller", "10.77.0.11", "ip-10-77-0-11"),
        ("login-1", "login", "10.77.0.31", "ip-10-77-0-31"),
        ("login-2", "login", "10.77.0.32", "ip-10-77-0-32"),
        ("worker-1", "compute", "10.77.0.51", "ip-10-77-0-51"),
        ("worker-2", "compute", "10.77.0.52", "ip-10-77-0-52"),
        ("worker-3", "compute", "10.77.0.53", "ip-10-77-0-53"),
    ]


def test_addresses_and_instance_ids_are_all_different() -> None:
    machines = Fleet().machines
    assert len({each.address for each in machines}) == len({each.instance_id for each in machines}) == 6


def test_a_replaced_machine_may_have_another_address() -> None:
    moved = SMALL.with_address("gpu-1", "10.77.0.99")
    assert [each.hostname for each in moved.of_role("compute")] == ["ip-10-77-0-99", "ip-10-77-0-32"]
    assert "NodeName=ip-10-77-0-99 NodeAddr=10.77.0.99 " in agent.slurm_conf(moved)
    assert SMALL.of_role("compute")[0].address == "10.77.0.31"


def test_nodes_of_ones_own_are_called_by_their_names() -> None:
    own = Fleet(groups=SMALL.groups, provider="own")
    assert [each.hostname for each in own.machines] == ["ctl-1", "gpu-1", "gpu-2"]


def test_resource_config_says_what_hyperpod_says() -> None:
    said = json.loads(agent.resource_config(SMALL, empty=("gpu",)))
    assert said["SlurmConfig"] == {"PrimaryControllerIp": "10.77.0.11", "SecondaryControllerIps": []}
    assert said["ClusterConfig"]["ClusterName"] == "c"
    controller = {
        "InstanceName": "ctl-1",
        "InstanceId": "i-01000000000000001",
        "AgentIpAddress": "172.16.0.11",
        "CustomerIpAddress": "10.77.0.11",
    }
    assert said["InstanceGroups"] == [
        {"Name": "ctl", "InstanceType": "ml.m5.4xlarge", "Instances": [controller]},
        {"Name": "gpu", "InstanceType": "ml.g5.xlarge", "Instances": None},
    ]


def test_the_directory_is_no_instance_group() -> None:
    fleet = Fleet(groups=(*SMALL.groups, Group("directory", "directory", 1)))
    said = json.loads(agent.resource_config(fleet))
    assert [group["Name"] for group in said["InstanceGroups"]] == ["ctl", "gpu"]


def test_the_agents_slurm_conf_has_every_worker_in_its_partition() -> None:
    lines = agent.slurm_conf(SMALL).splitlines()
    assert "SlurmctldHost=ip-10-77-0-11(10.77.0.11)" in lines
    assert "PartitionName=p Nodes=ip-10-77-0-31,ip-10-77-0-32 MaxTime=INFINITE State=UP" in lines
    assert [line.split()[0] for line in lines if line.startswith("NodeName=")] == [
        "NodeName=ip-10-77-0-31",
        "NodeName=ip-10-77-0-32",
    ]
    assert agent.gres_conf(SMALL) == (
        "NodeName=ip-10-77-0-31 Name=gpu File=/dev/nvidia[0-0]\n"
        "NodeName=ip-10-77-0-32 Name=gpu File=/dev/nvidia[0-0]\n"
    )
