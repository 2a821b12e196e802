"""Rendered configurations and account syncs before the real slurmctld, slurmdbd and MariaDB."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from ClusterShell.NodeSet import NodeSet

from hpctools.site import load
from hpctools.slurm.run import run

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
REFERENCE = ROOT / "slurm-conf/examples/university/site.yaml"
YEAR = ROOT / "tests/golden/busy-year"
SITES = [REFERENCE, *sorted((ROOT / "tests/golden").glob("*/site.yaml"))]

pytestmark = pytest.mark.system

# What a slurmctld says that has never run before, or that lacks programs which we do not need.
HARMLESS = (
    "MailProg",
    "mpi/pmix",
    "MPI: Cannot create context",
    "default partition not set",
    "state file",
    "state save file",
    "_shutdown_bu_thread",
)


@pytest.fixture(scope="module")
def seen() -> Any:
    """What real_slurm.py saw in its private namespaces."""
    program = (sys.executable, HERE / "real_slurm.py", YEAR / "before.yaml", YEAR / "after.yaml", *SITES)
    apart = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--net")
    done = run(
        [*apart, str(HERE / "private_slurm.sh"), *map(str, program)],
        timeout=110,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.code == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def complaints(log: list[str]) -> list[str]:
    told = [line for line in log if "error:" in line or "fatal:" in line]
    return [line for line in told if not any(word in line for word in HARMLESS)]


@pytest.mark.parametrize("path", SITES, ids=lambda path: path.parent.name)
def test_slurmctld_starts_and_sees_what_the_site_declares(path: Path, seen: Any) -> None:
    site, saw = load(path), seen["boots"][str(path)]
    groups = [group.name for group in site.node_groups if group.role == "compute"]
    assert complaints(saw["log"]) == []
    assert set(saw["nodes"]) == {name for group in groups for name in site.node_names(group)}
    for department in site.departments:
        names = [name for group in department.partition.node_groups for name in site.node_names(group)]
        row = saw["partitions"].get(department.partition_name, {"Nodes": ""})
        assert set(NodeSet(row["Nodes"])) == set(names)
        # The QoS came before slurmctld's first start, so it knows them without a reconfigure.
        assert not names or tuple(row["AllowQos"].split(",")) == site.allowed_tiers(department)


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
