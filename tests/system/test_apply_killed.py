"""kill -9 at dozens of points of an apply (hundreds with --long), slurmctld live: old or new, never half."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.system.harness import Cluster, until

ROOT = Path(__file__).parents[2]
FULL = 170, 200, 6  # points, random ones, whole applies: on this machine's own release
ELSEWHERE = 60, 60, 3  # what differs there is slurmctld, not the applying; each kill takes 0.6 s
SHORT = 40, 10, 2  # without --long
SEED = 7


@pytest.fixture
def sites(small: Cluster, site_file: Path) -> dict[str, str]:
    """Three site files inside: one with a topology, one with other files, and one with other people as well.

    The files differ in slurm.conf and in topology.conf, so that a mixture of two sets would be seen.
    """
    base = site_file.read_text().replace(
        "  accounting:\n",
        "  topology: {kind: tree, switches: [{name: old, node_groups: [GROUPS]}]}\n  accounting:\n",
        1,
    )
    base = base.replace("GROUPS", "reserved, shared, spot")
    files = base.replace("max_time: 2-00:00:00", "max_time: 1-12:00:00", 1).replace("name: old", "name: new")
    people = files.replace("members: [nlp1, nlp2]", "members: [nlp1, nlp2, nlp9]")
    assert len({base, files, people}) == 3
    for name, text in {"base": base, "files": files, "people": people}.items():
        (small.sandbox.layout.tree / "home" / f"{name}.yaml").write_text(text)
    return {name: f"/home/{name}.yaml" for name in ("base", "files", "people")}


def kill(cluster: Cluster, one: str, other: str, points: int, at_random: int, *words: str) -> dict[str, Any]:
    program = str(Path(__file__).with_name("killed_apply.py"))
    argv = ["env", f"PYTHONPATH={ROOT}", sys.executable, program, one, other]
    numbers = map(str, (points, at_random, SEED))
    done = cluster.inside(*argv, *numbers, *words, timeout=1500)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def judge(row: dict[str, Any]) -> None:
    """What must be so after every kill."""
    assert row["files"] in (0, 1), row  # all files of one set
    assert row["runs"], row  # slurmctld lives, and runs one of both
    done = row["files_new"] and row["runs_new"] and not row.get("missing")
    assert row["plan_empty"] == done or not row["settled"], row
    assert row["changed"] or not row["owed"], row  # what is written and not loaded is loaded next
    assert (row["completed"], row["closed"], row["left"]) == (True, True, False), row


@pytest.mark.releases(all="long")
@pytest.mark.timeout(1800)
@pytest.mark.slow
def test_killed_anywhere_the_cluster_is_old_or_new_and_the_next_apply_completes(
    small: Cluster, sites: dict[str, str], thorough: bool, slurm_release: str
) -> None:
    points, at_random, whole_points = (ELSEWHERE if slurm_release else FULL) if thorough else SHORT
    job = small.submit("nlp1", "-p", "nlp", "--wrap", "sleep 3000")
    until(lambda: small.job(job, "nlp1").state == "RUNNING")
    began = small.job(job, "nlp1").started
    accounts = small.inside("sacctmgr", "-nP", "show", "assoc", "format=Account,User").stdout

    found = kill(small, sites["base"], sites["files"], points, at_random)
    assert len(found["rows"]) >= points + at_random
    for row in found["rows"]:
        judge(row)
    # Kills hit before the switch, between switch and load, and after it.
    states = {(row["files_new"], row["runs_new"]) for row in found["rows"]}
    assert states == {(False, False), (True, False), (True, True)}
    assert sum(row["killed"] for row in found["rows"]) >= (points + at_random) * 0.95
    assert sum(row["settled"] for row in found["rows"]) >= (points + at_random) * 0.9
    assert small.inside("sacctmgr", "-nP", "show", "assoc", "format=Account,User").stdout == accounts

    # The same with everything that an apply does: preflight, people who come and go.
    whole = kill(small, sites["base"], sites["people"], whole_points, 0, "whole")
    for row in whole["rows"]:
        assert row.pop("people"), row
        assert row.pop("missing") == [], row
        assert row["files"] in (0, 1), row
        assert (row["completed"], row["closed"], row["left"]) == (True, True, False), row

    after = small.job(job, "nlp1")
    assert (after.state, after.started) == ("RUNNING", began)
    assert "Restarts=0" in small.inside("scontrol", "show", "job", str(job)).stdout
