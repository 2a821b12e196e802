"""Whole clusters as they are found, and the site files that come of them."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hpctools.conf import compile, sync_commands
from hpctools.conf.existing.read import read_existing
from hpctools.conf.existing.site_file import Existing
from hpctools.conf.existing.taking_over import take_over
from hpctools.conf.facts import Facts
from hpctools.conf.plan.compare import make_plan
from hpctools.conf.plan.live import Live, OnDisk
from hpctools.errors import HpctoolsError
from hpctools.site.hostlist import expand
from hpctools.site.load import loads

CLUSTERS = Path(__file__).parent / "clusters"
FACTS = Facts(cgroup="v1")


def existing(name: str) -> Existing:
    folder = CLUSTERS / name

    def ask(argv: object) -> str:
        raise AssertionError(f"asked {argv}")

    return read_existing(
        folder, dump=folder / "sacctmgr-dump.txt", qos=folder / "qos.txt", ask=ask, release=(22, 5, 8)
    )


@pytest.mark.parametrize("name", ["cloud", "physics"])
def test_the_site_file(name: str, golden: Callable[[Path, str], None]) -> None:
    taken = take_over(existing(name), FACTS, f"Taken over from the cluster {name}.")
    left_out = "".join(f"# left out: {each}\n" for each in taken.left_out)
    golden(CLUSTERS / name / "expected-site.yaml", taken.text + left_out)


@pytest.mark.parametrize("name", ["cloud", "physics"])
def test_its_plan_is_empty(name: str) -> None:
    there = existing(name)
    taken = take_over(there, FACTS, "")
    bundle = compile(loads(taken.text), taken.facts)
    assert sync_commands(bundle.accounts, there.accounts) == ()
    live = Live(OnDisk(there.files), None, there.accounts, (), (22, 5, 8))
    changes = make_plan(bundle, live, folder=Path("/etc/slurm")).changes
    assert [(c.area, c.subject, c.key, c.before, c.after) for c in changes] == []


def test_a_topology_yaml_is_left_as_it_is_and_that_is_said() -> None:
    there = existing("physics")
    told = "topology.yaml: it goes on to say which nodes are close to each other"
    there = replace(there, files={**there.files, "topology.yaml": "- topology: flat\n"})
    assert told not in take_over(there, FACTS, "").left_out
    assert told in take_over(replace(there, release=(26, 5, 5)), FACTS, "").left_out


def _edited(path: str, before: str, after: str) -> Existing:
    there = existing("cloud")
    assert before in there.files[path]
    return replace(there, files={**there.files, path: there.files[path].replace(before, after)})


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        ("slurm.conf", "Prolog=/opt/burst/prolog", "Prolog=/etc/slurm/prolog.d/*"),
        ("slurm.conf", "HealthCheckInterval=120", "HealthCheckInterval=5"),
        ("slurm.conf", "HealthCheckInterval=120", "HealthCheckNodeState=IDLE,CYCLE"),
        ("slurm.conf", "ResumeTimeout=600", "ResumeTimeout=70000"),
        ("slurm.conf", "PrivateData=cloud", "PrivateData=cloud\nPriorityWeightFairshare=10000000"),
        ("slurm.conf", "PrivateData=cloud", "PrivateData=cloud\nPriorityWeightAge=INFINITE"),
        ("slurm.conf", "SuspendTime=300", "SuspendTime=300\nResumeRate=INFINITE"),
        ("slurm.conf", "PrivateData=cloud", "PrivateData=cloud\nPriorityDecayHalfLife=30"),
        ("slurm.conf", "PrivateData=cloud", "PrivateData=cloud\nSlurmctldPort=6820-6823"),
        ("slurm.conf", "gpu:t4:2,shard:8", "gpu:t4:2,shard:2"),
        ("slurm.conf", "gpu:t4:2,shard:8", "gpu:t4:2,shard:200"),
        ("slurm.conf", "matlab:5", "matlab:0"),
        ("slurm.conf", "AllowAccounts=vis", "AllowAccounts=vis DefMemPerCPU=0"),
        ("slurm.conf", "DefaultTime=1:00:00", "DefaultTime=12:00:00"),
        ("cgroup.conf", "AllowedSwapSpace=10", "AllowedRAMSpace=110"),
        ("cgroup.conf", "AllowedSwapSpace=10", "AllowedSwapSpace=200"),
        ("cgroup.conf", "ConstrainRAMSpace=yes", "ConstrainRAMSpace=no"),
    ],
)
def test_what_no_word_of_a_site_file_can_say_is_said_in_slurms(path: str, before: str, after: str) -> None:
    there = _edited(path, before, after)
    taken = take_over(there, FACTS, "")
    assert taken.left_out == ()  # it holds the changes that a plan would have, too
    assert after.partition("=")[2].rpartition("=")[2] in taken.text.replace('"', "")


_SMALL = """\
ClusterName=burst
SlurmctldHost=head-1
SlurmUser=slurm
SlurmctldParameters=enable_configless
{nodes}
PartitionName=all-nodes Nodes=ALL
"""


@pytest.mark.parametrize(
    ("nodes", "addresses"),
    [
        ("NodeName=n[1-2] NodeAddr=ib-b,ib-a", {"n1": "ib-b", "n2": "ib-a"}),
        (
            "NodeName=head,n[1-2] NodeAddr=10.0.0.9,10.0.0.[1-2]",
            {"head": "10.0.0.9", "n1": "10.0.0.1", "n2": "10.0.0.2"},
        ),
        (
            "NodeName=b1 NodeAddr=10.0.0.2\nNodeName=a1 NodeAddr=10.0.0.1",
            {"a1": "10.0.0.1", "b1": "10.0.0.2"},
        ),
    ],
)
def test_each_node_keeps_its_own_address(nodes: str, addresses: dict[str, str]) -> None:
    """slurmctld gives the first name the first address, whatever their order."""
    there = replace(existing("cloud"), files={"slurm.conf": _SMALL.format(nodes=nodes)})
    (group,) = loads(take_over(there, FACTS, "").text).node_groups
    assert dict(zip(group.names, expand(group.addresses or ""), strict=True)) == addresses


def test_the_nodes_that_come_and_go_are_the_same_ones() -> None:
    """Those of a group that are always there stand first, also where the others have smaller numbers."""
    nodes = "NodeName=n[1-4] State=CLOUD\nNodeName=n5"
    power = "ResumeProgram=/opt/resume\nSuspendProgram=/opt/suspend\n"
    there = replace(existing("cloud"), files={"slurm.conf": power + _SMALL.format(nodes=nodes)})
    taken = take_over(there, FACTS, "")
    (group,) = loads(taken.text).node_groups
    assert (group.first_names(group.count.min), group.names[1:]) == (("n5",), ("n1", "n2", "n3", "n4"))
    assert [each for each in taken.left_out if "n[1-4]" in each] == []


def test_switches_below_another_may_be_a_host_list() -> None:
    """As in the example of topology.conf(5)."""
    there = _edited("topology.conf", "Switches=leaf1,leaf2", "Switches=leaf[1-2]")
    taken = take_over(there, FACTS, "")
    topology = loads(taken.text).cluster.topology
    assert topology is not None
    assert topology.switches[-1].switches == ("leaf1", "leaf2")
    assert taken.left_out == ()


def test_a_partition_without_nodes_is_told_and_the_others_are_taken_over() -> None:
    there = _edited("slurm.conf", "PartitionName=viz", "PartitionName=later MaxTime=60\nPartitionName=viz")
    taken = take_over(there, FACTS, "")
    assert [partition.name for partition in loads(taken.text).partitions] == ["train", "viz"]
    assert taken.left_out == (
        "partition later has no nodes: a site file cannot have it, and apply would remove it",
        "partition later would change: no nodes -> nothing",
    )


def test_nodes_that_are_yet_to_come_are_a_group_of_their_own() -> None:
    """Else all of a group would become FUTURE, so that Slurm knows none of them, or none."""
    nodes = "NodeName=a[1-2] State=FUTURE\nNodeName=b[1-2]"
    there = replace(existing("cloud"), files={"slurm.conf": _SMALL.format(nodes=nodes)})
    taken = take_over(there, FACTS, "")
    groups = {group.names: group.parameters.get("State") for group in loads(taken.text).node_groups}
    assert groups == {("a1", "a2"): "FUTURE", ("b1", "b2"): None}
    assert [each for each in taken.left_out if "FUTURE" in each] == []


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        ("slurm.conf", "RealMemory=60000", "RealMemory=60G"),
        ("slurm.conf", "Sockets=1", "Sockets=one"),
        ("slurm.conf", "CoresPerSocket=8", "CoresPerSocket=8,"),
        ("slurm.conf", "PrivateData=cloud", "SlurmctldPort=6817tcp"),
        ("slurmdbd.conf", "StorageHost=db.example.org", "StorageHost=db.example.org\nStoragePort=mysql"),
    ],
)
def test_a_number_that_is_none_is_said_without_a_traceback(path: str, before: str, after: str) -> None:
    with pytest.raises(HpctoolsError, match=f"{after.rpartition(chr(10))[2]}: that is no whole number"):
        take_over(_edited(path, before, after), FACTS, "")


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("", "NodeName= names no node; correct it in slurm.conf"),
        ("n[1-999999999]", "'n[1-999999999]' names more than 65536 hosts; correct it in slurm.conf"),
        ("n[1-9999],m[1-99999],m1", "'n[1-9999],m[1-99999],m1' names more than 65536 hosts; correct it in"),
    ],
)
def test_names_of_nodes_that_are_none_or_too_many_are_said(name: str, complaint: str) -> None:
    """A slip of the finger took all of the machine's memory, and never ended."""
    there = replace(existing("cloud"), files={"slurm.conf": _SMALL.format(nodes=f"NodeName={name}")})
    with pytest.raises(HpctoolsError, match=re.escape(complaint)):
        take_over(there, FACTS, "")


def test_sizes_of_blocks_that_are_none_are_said_without_a_traceback() -> None:
    there = _edited("slurm.conf", "PrivateData=cloud", "PrivateData=cloud\nTopologyPlugin=topology/block")
    blocks = "BlockName=one Nodes=n1\nBlockSizes=30,x\n"
    there = replace(there, files={**there.files, "topology.conf": blocks})
    with pytest.raises(HpctoolsError, match="BlockSizes=x: that is no whole number"):
        take_over(there, FACTS, "")


def test_an_entry_that_cannot_be_without_a_value_is_refused_as_it_stands() -> None:
    there = _edited("slurm.conf", "ResumeProgram=/opt/burst/resume", 'ResumeProgram="/opt/burst/resume -v"')
    with pytest.raises(HpctoolsError, match=r"resume_program: found '/opt/burst/resume -v'"):
        take_over(there, FACTS, "")


def test_a_block_without_nodes_is_told_and_the_others_are_taken_over() -> None:
    there = _edited("slurm.conf", "TopologyPlugin=topology/tree", "TopologyPlugin=topology/block")
    blocks = "BlockName=spare\nBlockName=one Nodes=gpu-[1-8]\nBlockName=two Nodes=viz-1\n"
    blocks += "BlockName=late Nodes=\n"
    there = replace(there, files={**there.files, "topology.conf": blocks}, release=(24, 11, 5))
    taken = take_over(there, FACTS, "")
    topology = loads(taken.text).cluster.topology
    assert topology is not None
    assert [block.name for block in topology.blocks] == ["one", "two"]
    assert taken.left_out[:2] == (
        "block spare has no nodes: a site file cannot have it, and apply would remove it",
        "block late has no nodes: a site file cannot have it, and apply would remove it",
    )


def _without(names: Callable[[str], str]) -> Existing:
    there = existing("cloud")
    accounts = tuple(replace(each, name=names(each.name)) for each in there.accounts.accounts)
    tree = replace(there.accounts, accounts=tuple(each for each in accounts if each.name), associations=())
    return replace(there, accounts=replace(tree, default_accounts={}))


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (lambda name: "", "cluster burst has no accounts"),
        (lambda name: f"{name}@site", "no account of cluster burst has a name that a site file can have"),
    ],
)
def test_a_cluster_without_accounts_is_told_what_it_needs(names: Callable[[str], str], why: str) -> None:
    with pytest.raises(HpctoolsError) as told:
        take_over(_without(names), FACTS, "")
    assert (told.value.message, told.value.remedy) == (
        f"{why}, and a site file has one department at least",
        "make one and import again: sacctmgr add account research cluster=burst",
    )
