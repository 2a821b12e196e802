"""What holds for every site: determinism, what Slurm reads back, and accounts that converge."""

import json
import re
from typing import Any

from ClusterShell.NodeSet import NodeSet
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctools.conf import Facts, bootstrap_commands, compile, load_file, sync_commands
from hpctools.conf.text import without_comments
from hpctools.site import Site, loads

from .sites import below, least, node_names, sites
from .slurm_reader import leaves, lines_of, read
from .slurmdbd import FakeSlurmdbd


def site_of(data: dict[str, Any]) -> Site:
    return loads(json.dumps(data, indent=1))  # which is YAML, and quotes what could be read as something else


@given(sites(), st.sampled_from([(22, 5, 8), (24, 11), (26, 5)]), st.sampled_from(["v1", "v2", "none"]))
@settings(max_examples=60, deadline=None)
def test_a_site_compiles_to_the_same_bytes_every_time(data: dict, release: tuple, cgroup: Any) -> None:
    facts = Facts(slurm_version=release, cgroup=cgroup)
    first, second = compile(site_of(data), facts), compile(site_of(data), facts)
    assert first == second
    assert all(file.text.isascii() and file.text.endswith("\n") for file in first.files)


@given(sites())
@settings(max_examples=60, deadline=None)
def test_slurm_reads_back_the_nodes_that_the_site_has(data: dict) -> None:
    told = read(compile(site_of(data)).file("slurm.conf").text)
    wanted = {}
    for group in data["node_groups"]:
        for place, name in enumerate(node_names(group)):
            if place < least(group) or "power_saving" in data["cluster"]:
                wanted[name] = node_words(group, place)
    assert told.nodes.keys() == wanted.keys()
    for name, words in wanted.items():
        node = told.nodes[name]
        assert {key: node.get(key) for key in words} == words
        product = int(node["sockets"]) * int(node["corespersocket"]) * int(node["threadspercore"])
        assert int(node["cpus"]) == product


def node_words(group: dict[str, Any], place: int) -> dict[str, str | None]:
    """What the line of a node says, from the plain data."""
    features = dict.fromkeys([group["name"], *group.get("features", ())])
    stated = {key.lower(): str(value).strip('"') for key, value in group.get("parameters", {}).items()}
    address = group["addresses"].split("[")[0] + str(place + 1) if "addresses" in group else None
    return {
        "feature": ",".join(features),
        "weight": str(group["weight"]) if "weight" in group else None,
        "state": "UNKNOWN" if place < least(group) else "CLOUD",
        "nodeaddr": address,
        **stated,
    }


@given(sites())
@settings(max_examples=60, deadline=None)
def test_slurm_reads_back_the_partitions_that_the_site_has(data: dict) -> None:
    told = read(compile(site_of(data)).file("slurm.conf").text)
    groups = {group["name"]: present(group, data) for group in data["node_groups"]}
    own = [(d.get("name"), d["partition"], d) for d in data["departments"] if "partition" in d]
    shared = [(partition["name"], partition, None) for partition in data["partitions"]]
    wanted = {}
    for name, terms, department in own + shared:
        nodes = {node for group in terms["node_groups"] for node in groups[group]}
        if nodes:
            wanted[name] = partition_words(data, terms, department) | {"nodes": nodes}
    assert told.partitions.keys() == wanted.keys()
    for name, words in wanted.items():
        assert {key: told.partitions[name].get(key) for key in words} == words


def present(group: dict[str, Any], data: dict[str, Any]) -> list[str]:
    """The nodes of a group that Slurm should know of."""
    return node_names(group) if "power_saving" in data["cluster"] else node_names(group)[: least(group)]


def partition_words(
    data: dict[str, Any], terms: dict[str, Any], department: dict[str, Any] | None
) -> dict[str, object]:
    """What the line of a partition says, from the plain data; what Slurm is to decide is None."""
    chosen = terms.get("departments", "all") if department is None else [department["name"]]
    owners = (
        [] if chosen == "all" else [next(d for d in data["departments"] if d["name"] == n) for n in chosen]
    )
    accounts = [each["name"] for owner in owners for each in (owner, *below(owner))]
    tiers = list(data["tiers"]) if department else terms.get("tiers")
    stated = {key.lower(): str(value).strip('"') for key, value in terms.get("parameters", {}).items()}
    return {
        "default": "YES" if terms.get("default") else "NO",
        "allowaccounts": ",".join(accounts) or None,
        "allowqos": ",".join(name for name in data["tiers"] if name in tiers) if tiers else None,
        "maxtime": slurm_time(terms.get("max_time")),
        "prioritytier": str(terms["priority_tier"]) if "priority_tier" in terms else None,
        "oversubscribe": terms.get("over_subscribe", "no").upper(),
        "exclusiveuser": "YES" if terms.get("exclusive_user") else None,
        **({"defcpupergpu": str(terms["cpus_per_gpu"])} if "cpus_per_gpu" in terms else {}),
        **memory_words(terms),
        **stated,
    }


def memory_words(terms: dict[str, Any]) -> dict[str, str | None]:
    if "memory_mib_per_gpu" in terms:
        return {"defmempergpu": "9000", "defmempercpu": None}
    return {"defmempercpu": "1500"} if "memory_mib_per_cpu" in terms else {"defmempergpu": None}


def slurm_time(text: str | None) -> str:
    """`0-02:00:00` is spelled `02:00:00`."""
    return "UNLIMITED" if text is None else text.removeprefix("0-")


@given(sites(), st.sampled_from([(22, 5, 8), (24, 11), (26, 5)]))
@settings(max_examples=60, deadline=None)
def test_slurm_reads_back_the_settings_that_the_site_states(data: dict, release: tuple) -> None:
    site, cluster = site_of(data), data["cluster"]
    bundle = compile(site, Facts(slurm_version=release))
    told = read(bundle.file("slurm.conf").text).settings
    for key, value in cluster.get("parameters", {}).items():
        assert told[key.lower()] == str(value).strip('"')
    scripts, power = cluster.get("scripts", {}), cluster.get("power_saving", {})
    assert told.get("prolog") == scripts.get("prolog")
    assert told.get("prologslurmctld") == scripts.get("prolog_slurmctld")
    assert told.get("healthcheckprogram") == scripts.get("health_check", {}).get("program")
    assert told.get("resumeprogram") == power.get("resume_program")
    assert told.get("privatedata") == ("cloud" if power and release < (23, 2) else None)
    assert told.get("treewidth") == ("65533" if power and release < (23, 11) else None)
    container = "namespacetype" if release >= (25, 11) else "jobcontainertype"
    assert (container in told) == ("job_container" in cluster)
    stated = cluster.get("configuration", {})
    assert told["statesavelocation"] == stated.get("state_folder", "/var/spool/slurmctld")
    assert ("slurmctldparameters" in told) == (stated.get("distribution") != "shared")
    kept = lines_of(bundle.file("cgroup.conf").text)
    wanted = cluster.get("containment", {}).get("memory", True)
    assert {"constrainramspace": "yes" if wanted else "no"} in kept


@given(sites())
@settings(max_examples=60, deadline=None)
def test_every_node_is_on_its_switch_and_below_the_top(data: dict) -> None:
    topology = data["cluster"].get("topology")
    bundle = compile(site_of(data))
    if topology is None:
        assert "topology.conf" not in [file.path for file in bundle.files]
        return
    told = leaves(bundle.file("topology.conf").text)
    groups = {group["name"]: present(group, data) for group in data["node_groups"]}
    everything = {name for nodes in groups.values() for name in nodes}
    wanted = {}
    for switch in topology["switches"]:
        listed = switch["nodes"].split(",") if "nodes" in switch else []
        nodes = {*listed, *(n for g in switch.get("node_groups", ()) for n in groups[g])} & everything
        if nodes:
            wanted[switch["name"]] = nodes
    assert {name: nodes for name, (nodes, _) in told.items() if nodes} == wanted
    (top,) = [below for _, below in told.values() if below]
    assert set(top) == wanted.keys()


@given(sites(), st.integers(1, 5))
@settings(max_examples=30, deadline=None)
def test_where_things_stand_in_the_file_means_nothing_to_slurm(data: dict, lines: int) -> None:
    text = json.dumps(data, indent=1)
    first, moved = compile(loads(text)), compile(loads("\n" * lines + text, "other.yaml"))
    assert first.accounts == moved.accounts
    for one, other in zip(first.files, moved.files, strict=True):
        assert without_comments(one.text) == without_comments(other.text)


@given(sites())
@settings(max_examples=60, deadline=None)
def test_every_gpu_of_a_node_line_has_its_record(data: dict) -> None:
    """slurmctld ends at shards without the records of their GPUs."""
    bundle = compile(site_of(data))
    records: dict[str, dict[str, int]] = {}
    detected: set[str] = set()
    for line in lines_of(bundle.file("gres.conf").text):
        for name in NodeSet(line.get("nodename", "")):
            if "autodetect" in line and "name" not in line:
                detected.add(name)
                continue
            files = re.fullmatch(r"/dev/nvidia(?:0|\[0-(\d+)\])", line.get("file", ""))
            count = int(files[1] or 0) + 1 if files else int(line["count"])
            records.setdefault(name, {})[line["name"]] = count
    for line in lines_of(bundle.file("slurm.conf").text):
        for name in NodeSet(line.get("nodename", "")) - NodeSet.fromlist(sorted(detected)):
            told = [part.split(":") for part in line.get("gres", "").split(",") if part]
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
