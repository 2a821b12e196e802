"""Preflight beside a cluster that lives: it sees its nodes, jobs and accounts, and leaves it alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.system.harness import Cluster, until

pytestmark = pytest.mark.releases


def preflight(cluster: Cluster, *words: str) -> dict[str, Any]:
    done = cluster.inside("hpctools", "preflight", "--json", *words, check=False)
    assert done.code in (0, 1), done.stderr
    verdict: dict[str, Any] = json.loads(done.stdout)
    return verdict


def edited(cluster: Cluster, name: str, before: str, after: str) -> str:
    """A copy of the live folder with another text in slurm.conf; its path inside."""
    cluster.inside("rm", "-rf", f"/tmp/{name}")
    cluster.inside("cp", "-rL", "/etc/slurm", f"/tmp/{name}")
    path = cluster.sandbox.layout.tree / "tmp" / name / "slurm.conf"
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))
    return f"/tmp/{name}"


def around(cluster: Cluster) -> tuple[str, ...]:
    """What a second slurmctld would change if it reached anybody: slurmdbd's record, slurmds' logs."""
    asked = (
        ("pidof", "slurmctld", "slurmdbd"),
        ("sacctmgr", "-nP", "show", "cluster", "format=cluster,controlhost,controlport"),
        ("sinfo", "-hN", "-o", "%N %T"),
        ("mount",),
    )
    logs = sorted(cluster.sandbox.layout.logs.glob("slurmd*"))
    return (*(cluster.inside(*argv).stdout for argv in asked), *(log.read_text() for log in logs))


def test_the_live_configuration_boots_with_its_accounts_and_leaves_everybody_alone(cluster: Cluster) -> None:
    before = around(cluster)
    verdict = preflight(cluster)
    assert (verdict["ok"], verdict["problems"], verdict["lost_jobs"]) == (True, [], [])
    assert (verdict["nodes"], verdict["partitions"]) == (6, 3)
    # With the live state accounts and QoS are checked, too.
    assert [line for line in verdict["not_checked"] if "slurmdbd.conf" not in line] == []
    assert around(cluster) == before


def state_files(cluster: Cluster) -> str:
    """When slurmctld wrote down what, and what time it is there."""
    said = cluster.inside("scontrol", "show", "config").stdout
    folder = next(line.split()[-1] for line in said.splitlines() if line.startswith("StateSaveLocation"))
    return cluster.inside("sh", "-c", f"date; ls -l --full-time {folder}").stdout


def lost(cluster: Cluster, folder: str, jobs: list[int]) -> None:
    """Wait until the verdict names these jobs; slurmctld writes what it took down a moment later."""
    verdicts: list[dict[str, Any]] = []

    def look() -> bool:
        verdicts.append(preflight(cluster, folder))
        return verdicts[-1]["lost_jobs"] == jobs

    try:
        until(look, 60)
    except AssertionError as error:
        states = {job.id: job.state for job in cluster.jobs("nlp1")}
        files = state_files(cluster)
        raise AssertionError(
            f"{error}: not {jobs}, the last of {len(verdicts)} verdicts is {verdicts[-1]}; {states}; {files}"
        ) from None


def test_jobs_that_a_configuration_would_lose_are_named_and_run_on(cluster: Cluster) -> None:
    """One that runs and one that waits: from 25.11 on slurmctld has other words for the two."""
    running = cluster.submit("nlp1", "-p", "nlp", "--wrap", "sleep 600")
    held = cluster.submit("nlp1", "-p", "nlp", "--hold", "--array=1-2", "--wrap", "sleep 600")
    try:
        cluster.until(lambda: cluster.job(running, "nlp1").state == "RUNNING")
        folder = edited(cluster, "lost", "PartitionName=nlp ", "PartitionName=gone ")
        lost(cluster, folder, [running, held])
        assert cluster.job(running, "nlp1").state == "RUNNING"
        assert {job.state for job in cluster.jobs("nlp1") if job.id > running} == {"PENDING"}
    finally:
        cluster.inside("scancel", str(running), str(held))
        cluster.ended(running, "nlp1")
    # slurmctld remembers them for minutes, and complains of their partition; there is nothing to lose now.
    lost(cluster, folder, [])


def test_fewer_gpus_than_slurmctld_remembers_are_no_fault(cluster: Cluster) -> None:
    verdict = preflight(cluster, edited(cluster, "fewer", "gpu:a100:8", "gpu:a100:4"))
    assert (verdict["ok"], verdict["problems"]) == (True, [])


def test_a_configuration_that_would_kill_the_live_slurmctld_does_not(cluster: Cluster) -> None:
    folder = edited(cluster, "deadly", "PartitionName=nlp Nodes=", "PartitionName=nlp Nodes=nowhere-1,")
    verdict = preflight(cluster, folder)
    assert [problem["said"] for problem in verdict["problems"] if "fatal" in problem["said"]] == [
        "fatal: Invalid node names in partition nlp"
    ]
    assert "UP" in cluster.inside("scontrol", "ping").stdout


def test_another_cluster_name_is_refused_as_slurmctld_would(cluster: Cluster) -> None:
    verdict = preflight(cluster, edited(cluster, "renamed", "ClusterName=", "ClusterName=new-"))
    assert "CLUSTER NAME MISMATCH" in " ".join(problem["said"] for problem in verdict["problems"])


def test_wrong_use_is_told_with_exit_code_2(cluster: Cluster, tmp_path: Path) -> None:
    for words in (["--state", "/nowhere"], ["--state", "/tmp", "--no-state"], ["/tmp"]):
        done = cluster.inside("hpctools", "preflight", *words, check=False)
        assert (done.code, done.stdout) == (2, ""), words
        assert done.stderr.startswith("hpctools: ")
