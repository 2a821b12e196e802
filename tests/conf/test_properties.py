"""What holds for every site: determinism, what Slurm reads back, and accounts that converge."""

import re
from typing import Any

import yaml
from ClusterShell.NodeSet import NodeSet
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctools.conf import Facts, bootstrap_commands, compile, load_file, sync_commands
from hpctools.conf.topology import compute_groups
from hpctools.site import Site, loads

from .sites import sites
from .slurmdbd import FakeSlurmdbd


def site_of(data: dict[str, Any]) -> Site:
    return loads(yaml.safe_dump(data, sort_keys=False))


@given(sites(), st.sampled_from([(22, 5, 8), (24, 11), (26, 5)]), st.sampled_from(["v1", "v2", "none"]))
@settings(max_examples=60, deadline=None)
def test_a_site_compiles_to_the_same_bytes_every_time(data: dict, release: tuple, cgroup: Any) -> None:
    facts = Facts(slurm_version=release, cgroup=cgroup)
    first, second = compile(site_of(data), facts), compile(site_of(data), facts)
    assert first == second
    assert all(file.text.isascii() and file.text.endswith("\n") for file in first.files)


def parse(text: str) -> list[dict[str, str]]:
    """Read a Slurm file as Slurm does: settings separated by spaces, comments dropped."""
    lines = [line.split("#")[0].split() for line in text.splitlines()]
    return [dict(part.split("=", 1) for part in line) for line in lines if line]


@given(sites())
@settings(max_examples=60, deadline=None)
def test_slurm_reads_back_the_nodes_and_partitions_that_the_site_has(data: dict) -> None:
    site = site_of(data)
    groups = {group.name: group for group in compute_groups(site, Facts())}
    lines = parse(compile(site).file("slurm.conf").text)
    nodes = {name: line for line in lines for name in NodeSet(line.get("NodeName", ""))}
    partitions = {line["PartitionName"]: line for line in lines if "PartitionName" in line}

    assert sorted(nodes) == sorted(name for group in groups.values() for name in group.nodes)
    for group in groups.values():
        for name in group.nodes:
            line = nodes[name]
            assert int(line["CPUs"]) == group.hardware.cpus
            product = int(line["Sockets"]) * int(line["CoresPerSocket"]) * int(line["ThreadsPerCore"])
            assert product == group.hardware.cpus
            assert ("Gres" in line) == (group.gpus is not None)
    expected = {
        department.partition_name: {
            name
            for group in department.partition.node_groups
            if group in groups
            for name in groups[group].nodes
        }
        for department in site.departments
    }
    assert {name: set(NodeSet(line["Nodes"])) for name, line in partitions.items()} == {
        name: members for name, members in expected.items() if members
    }
    for line in partitions.values():
        assert set(line["AllowQos"].split(",")) <= set(site.tiers)


@given(sites())
@settings(max_examples=60, deadline=None)
def test_every_gpu_of_a_node_line_has_its_record(data: dict) -> None:
    """slurmctld ends at shards without the records of their GPUs."""
    bundle = compile(site_of(data))
    records: dict[str, dict[str, int]] = {}
    detected: set[str] = set()
    for line in parse(bundle.file("gres.conf").text):
        for name in NodeSet(line.get("NodeName", "")):
            if "AutoDetect" in line:
                detected.add(name)
                continue
            files = re.fullmatch(r"/dev/nvidia(?:0|\[0-(\d+)\])", line.get("File", ""))
            count = int(files[1] or 0) + 1 if files else int(line["Count"])
            records.setdefault(name, {})[line["Name"]] = count
    for line in parse(bundle.file("slurm.conf").text):
        for name in NodeSet(line.get("NodeName", "")) - NodeSet.fromlist(sorted(detected)):
            told = [part.split(":") for part in line.get("Gres", "").split(",") if part]
            assert records.get(name, {}) == {parts[0]: int(parts[-1]) for parts in told}


@given(sites(), sites())
@settings(max_examples=60, deadline=None)
def test_accounts_converge_from_anything_and_then_rest(before: dict, after: dict) -> None:
    """From nothing to one site and from there to another: each time the second sync has nothing to do."""
    slurmdbd = FakeSlurmdbd()
    for data in (before, after):
        wanted = compile(site_of(data)).accounts
        for command in sync_commands(wanted, slurmdbd.tree()):
            slurmdbd.carry_out(command)
        assert sync_commands(wanted, slurmdbd.tree()) == ()
        assert bootstrap_commands(wanted, slurmdbd.tree()) == ()
        assert load_file(wanted, slurmdbd.tree()).text == ""


@given(sites(), sites())
@settings(max_examples=60, deadline=None)
def test_loading_the_new_ones_first_comes_to_the_same(before: dict, after: dict) -> None:
    by_load, by_command = FakeSlurmdbd(), FakeSlurmdbd()
    for data in (before, after):
        wanted = compile(site_of(data)).accounts
        for command in bootstrap_commands(wanted, by_load.tree()):
            by_load.carry_out(command)
        file = load_file(wanted, by_load.tree())
        by_load.load(file.text)
        for command in sync_commands(wanted, file.live):
            by_load.carry_out(command)
        for command in sync_commands(wanted, by_command.tree()):
            by_command.carry_out(command)
        assert sync_commands(wanted, by_load.tree()) == ()
        assert as_sets(by_load) == as_sets(by_command)


def as_sets(slurmdbd: FakeSlurmdbd) -> tuple[object, ...]:
    tree = slurmdbd.tree()
    accounts = {a.name: (a.parent, a.settings, set(a.coordinators)) for a in tree.accounts}
    rows = {(row.user, row.account): row.settings for row in tree.associations}
    return accounts, rows, tree.default_accounts, {qos.name: qos.settings for qos in tree.qos}


@given(sites())
@settings(max_examples=30, deadline=None)
def test_nothing_that_a_site_leaves_out_is_removed(data: dict) -> None:
    slurmdbd = FakeSlurmdbd()
    wanted = compile(site_of(data)).accounts
    for command in sync_commands(wanted, slurmdbd.tree()):
        slurmdbd.carry_out(command)
    for user in ("guest", "temp"):
        slurmdbd.carry_out(("add", "user", f"name={user}", f"account={wanted.accounts[0].name}", "cluster=c"))
    assert sync_commands(wanted, slurmdbd.tree()) == ()
