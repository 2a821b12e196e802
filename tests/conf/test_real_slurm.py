"""Rendered configurations and account syncs before the real slurmctld, slurmdbd and MariaDB."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from ClusterShell.NodeSet import NodeSet

from hpctools.sandbox.releases import find
from hpctools.sandbox.root import under
from hpctools.site import load
from hpctools.slurm.run import run

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
REFERENCE = ROOT / "slurm-conf/examples/university/site.yaml"
YEAR = ROOT / "tests/golden/busy-year"
# A topology of blocks needs a later release than this machine's own.
SITES = [
    REFERENCE,
    *sorted(p for p in (ROOT / "tests/golden").glob("*/site.yaml") if p.parent.name != "blocks"),
]

pytestmark = [pytest.mark.system, pytest.mark.releases]

# What a slurmctld says that has never run before, or that lacks programs which we do not need.
HARMLESS = (
    "MailProg",
    "mpi/pmix",
    "MPI: Cannot create context",
    "default partition not set",
    "state file",
    "state save file",
    "_shutdown_bu_thread",
    "High latency for 1000 calls to gettimeofday",  # a busy machine
    # From 24.11 on a partition's accounts are looked up when slurmctld starts; here they come afterwards.
    "accounts_list_build: No association",
)


@pytest.fixture(scope="module")
def seen(slurm_release: str) -> Any:
    """What real_slurm.py saw in its private namespaces."""
    program = (sys.executable, HERE / "real_slurm.py", YEAR / "before.yaml", YEAR / "after.yaml", *SITES)
    apart = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--net")
    done = run(
        [*apart, *under(find(slurm_release).root, [str(HERE / "private_slurm.sh"), *map(str, program)])],
        timeout=110,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.code == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def complaints(log: list[str]) -> list[str]:
    told = [line for line in log if "error:" in line or "fatal:" in line]
    return [line for line in told if not any(word in line for word in HARMLESS)]


@pytest.mark.slow
@pytest.mark.parametrize("path", SITES, ids=lambda path: path.parent.name)
def test_slurmctld_starts_and_sees_what_the_site_declares(path: Path, seen: Any) -> None:
    site, saw = load(path), seen["boots"][str(path)]
    present = {g.name: site.node_names(g.name) + site.cloud_node_names(g.name) for g in site.node_groups}
    compute = [group.name for group in site.node_groups if group.role == "compute"]
    assert complaints(saw["log"]) == []
    assert set(saw["nodes"]) == {name for group in compute for name in present[group]}
    own = {d.partition_name: d.partition for d in site.departments if d.partition}
    terms = {**own, **{shared.name: shared for shared in site.partitions}}
    wanted = {name: {node for g in each.node_groups for node in present[g]} for name, each in terms.items()}
    shown = {name: set(NodeSet(row["Nodes"])) for name, row in saw["partitions"].items()}
    assert shown == {name: nodes for name, nodes in wanted.items() if nodes}
    for department in site.departments:
        row = saw["partitions"].get(department.partition_name)
        # The QoS came before slurmctld's first start, so it knows them without a reconfigure.
        if department.partition and row:
            assert tuple(row["AllowQos"].split(",")) == site.allowed_tiers(department)


def boot_of(case: str, seen: Any) -> Any:
    return seen["boots"][str(ROOT / f"tests/golden/{case}/site.yaml")]


def partitions_of(name: str, seen: Any) -> dict[str, dict[str, str]]:
    """A site's partitions in the words that releases had before 26.05."""
    return {name: _in_old_words(row) for name, row in boot_of(name, seen)["partitions"].items()}


def _in_old_words(row: dict[str, str]) -> dict[str, str]:
    if "Exclusive" not in row:
        return row
    whole = {"OverSubscribe": "EXCLUSIVE"} if row["Exclusive"] == "NODE" else {}
    return {**row, "ExclusiveUser": "YES" if row["Exclusive"] == "USER" else "NO", **whole}


def test_shared_partitions_are_open_to_whom_the_site_says(seen: Any) -> None:
    partitions = partitions_of("shared-partitions", seen)
    keys = (
        "Default",
        "AllowAccounts",
        "AllowQos",
        "PriorityTier",
        "ExclusiveUser",
        "DefaultTime",
        "MaxNodes",
    )
    assert {name: tuple(row[key] for key in keys) for name, row in partitions.items()} == {
        "bio": ("NO", "bio", "normal,urgent,elastic", "10", "NO", "NONE", "UNLIMITED"),
        "debug": ("YES", "ALL", "ALL", "1", "NO", "00:10:00", "UNLIMITED"),
        "GPU": ("NO", "bio,art,art-a", "normal,elastic", "1", "NO", "NONE", "UNLIMITED"),
        "batch": ("NO", "ALL", "ALL", "1", "YES", "NONE", "2"),
    }


def test_sharing_of_cpus_is_what_the_site_says(seen: Any) -> None:
    partitions = partitions_of("over-subscribe", seen)
    assert {name: row["OverSubscribe"] for name, row in partitions.items()} == {
        "bio": "NO",
        "polite": "YES:4",
        "usual": "YES:4",
        "forced": "FORCE:2",
        "whole": "EXCLUSIVE",
    }


def test_nodes_that_come_and_go_are_seen_while_they_are_gone(seen: Any) -> None:
    saw = boot_of("power-saving", seen)
    clouds = {name for name, state in saw["states"].items() if "CLOUD" in state}
    assert clouds == {*NodeSet("mixed-[2-4]"), *NodeSet("spot-[1-20]")}
    assert saw["settings"]["SuspendExcNodes"] == "base-[1-2],mixed-1"
    assert (saw["settings"]["ResumeTimeout"], saw["settings"]["SuspendTime"]) == ("1200 sec", "300 sec")


def test_each_node_has_its_address(seen: Any) -> None:
    addresses = boot_of("host-lists", seen)["addresses"]
    many = {f"m{number}": f"10.0.2.{100 + number}" for number in range(1, 6)}
    gpus = {f"gpu{number:02}": f"10.0.0.{number}" for number in range(8, 12)} | {"Big7": "10.0.1.7"}
    assert {name: addresses[name] for name in many | gpus} == many | gpus


def test_switches_are_those_of_the_site(seen: Any) -> None:
    switches = {row["SwitchName"]: row for row in boot_of("tree", seen)["switches"]}
    assert {name: row["Nodes"] for name, row in switches.items()} == {
        "core": "fat-[1-4],gpu-1,thin-[1-3]",
        "rack-a": "thin-[1-3]",
        "rack-b": "fat-[1-2]",
        "rack-c": "fat-[3-4],gpu-1",
    }
    assert switches["core"]["Switches"] == "rack-a,rack-b,rack-c"


def test_settings_in_slurms_own_words_arrive(seen: Any) -> None:
    told = boot_of("several-controllers", seen)["settings"]
    assert (told["SlurmctldTimeout"], told["SlurmdTimeout"]) == ("60 sec", "300 sec")
    assert (told["Licenses"], told["MailDomain"]) == ("matlab:30,stata:5", "example.org")
    assert told["StateSaveLocation"] == "/var/spool/shared/slurmctld"
    assert told["SlurmctldHost[2]"] == "ctl"


def test_programs_and_private_folders_arrive(seen: Any) -> None:
    settings = boot_of("containers-and-scripts", seen)["settings"]
    # From 24.11 on there may be several of some: `Prolog[0]`.
    told = {key.removesuffix("[0]"): value for key, value in settings.items()}
    assert (told.get("JobContainerType"), told.get("NamespaceType")) in (
        ("job_container/tmpfs", None),
        (None, "namespace/tmpfs"),  # its name since 25.11
    )
    assert {key: told[key] for key in ("Prolog", "Epilog", "PrologSlurmctld", "TaskEpilog")} == {
        "Prolog": "/etc/slurm/prolog",
        "Epilog": "/etc/slurm/epilog",
        "PrologSlurmctld": "/etc/slurm/prolog-slurmctld",
        "TaskEpilog": "/etc/slurm/task-epilog",
    }
    assert (told["HealthCheckInterval"], told["HealthCheckNodeState"]) == ("600 sec", "CYCLE,ANY")


def test_gpus_and_shards_are_counted(seen: Any) -> None:
    nodes = seen["boots"][str(REFERENCE)]["nodes"]
    assert nodes["reserved-1"] == "gpu:a100:8"
    assert nodes["shared-2"].split("(")[0] == "gpu:a10g:4,shard:16"


def test_accounts_converge(seen: Any) -> None:
    """First sync, then a year of changes: each time the next look finds nothing to do."""
    first, changed = seen["syncs"]
    assert [first["left"], changed["left"]] == [[], []]
    # New accounts and people all go in the load, tiers in a command each.
    assert first["loaded"] > 20
    assert [command.split()[:2] for command in first["commands"]] == [["modify", "qos"]] * 6
    assert first["accounts"] == {
        "root": "root",
        "nlp": "root",
        "nlp-lab-a": "nlp",
        "nlp-lab-b": "nlp",
        "cv": "root",
        "cv-lab-a": "cv",
        "dl": "root",
        "dl-lab-a": "dl",
    }
    assert changed["accounts"]["cv-lab-a"] == "nlp"
    assert (first["defaults"]["nlp-cv1"], changed["defaults"]["nlp-cv1"]) == ("nlp-lab-b", "cv-lab-a")
    assert (first["defaults"]["cv1"], changed["defaults"]["cv1"]) == ("cv-lab-a", "dl-lab-a")
    assert changed["loaded"] == 6
