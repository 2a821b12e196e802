"""`hpctools doctor` on a real cluster: healthy, with illnesses that were really provoked, and half dead."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from hpctools.sandbox import namespace, process
from tests.system.harness import Cluster, cluster_of, until

pytestmark = pytest.mark.releases


@pytest.fixture(scope="module")
def ill(tmp_path_factory: pytest.TempPathFactory, site_file: Path, slurm_release: str) -> Iterator[Cluster]:
    """A cluster to make ill: four nodes with whole GPUs and one with shards."""
    with cluster_of(tmp_path_factory.mktemp("doctor"), site_file, 5, slurm_release) as cluster:
        yield cluster


def examine(cluster: Cluster, code: int, **more: Any) -> dict[str, Any]:
    done = cluster.inside("hpctools", "doctor", "--json", check=False, **more)
    assert done.code == code, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def told(report: dict[str, Any]) -> set[tuple[str, str]]:
    return {(finding["check"], finding["subject"]) for finding in report["findings"]}


def missed(report: dict[str, Any]) -> set[str]:
    return {each["check"] for each in report["not_checked"]}


def test_a_healthy_cluster_has_no_findings_and_every_check_was_made(ill: Cluster) -> None:
    report = examine(ill, 0)
    assert report["findings"] == report["not_checked"] == []
    assert "nodes-are-valid" in report["passed"]
    done = ill.inside("hpctools", "doctor")
    assert done.stdout == f"0 findings, {len(report['passed'])} checks made\n"


def test_who_is_not_root_learns_what_could_not_be_looked_at(ill: Cluster) -> None:
    report = examine(ill, 0, user="nlp1")
    assert report["findings"] == []
    assert missed(report) >= {"secrets-are-closed", "slurmctld-does-not-give-up", "usage-is-summed-up"}
    others = [
        each
        for each in report["not_checked"]
        if "denied" not in each["reason"] and "privilege" not in each["reason"]
    ]
    assert others == []
    assert "not checked: secrets-are-closed" in ill.inside("hpctools", "doctor", user="nlp1").stdout


def test_real_illnesses_are_told_and_nothing_else(ill: Cluster) -> None:
    """All at once: each is told under its own name, and when they are healed nothing is left."""
    with ExitStack() as stack:
        for provoke in (shared_exclusively, misspelled, ghost, open_doors, runaway, drained, fewer_gpus):
            stack.enter_context(provoke(ill))
        report = examine(ill, 1)
    assert told(report) == {
        ("shared-gpus-are-not-exclusive", "partition dl"),
        ("partitions-name-known-accounts", "partition nlp"),
        ("people-have-a-unix-account", "users"),
        ("secrets-are-closed", "/etc/munge/munge.key"),
        ("slurmdbd-conf-is-closed", "slurmdbd.conf"),
        ("state-is-slurms-alone", "/var/spool/slurmctld"),
        ("no-job-runs-away", "slurmdbd"),
        ("nodes-are-drained-by-people", "reserved-1"),
        ("nodes-are-valid", "reserved-2"),
        ("files-are-what-slurmctld-read", "gres.conf"),
    }
    assert missed(report) == set()
    seen = {finding["check"]: finding["seen"] for finding in report["findings"]}
    assert "count reported lower than configured (4 < 8)" in seen["nodes-are-valid"]
    assert "typo" in seen["partitions-name-known-accounts"]
    until(lambda: not examine_any(ill)["findings"], 30)


def examine_any(cluster: Cluster) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(cluster.inside("hpctools", "doctor", "--json", check=False).stdout)
    return report


@contextmanager
def shared_exclusively(cluster: Cluster) -> Iterator[None]:
    cluster.inside("scontrol", "update", "partitionname=dl", "oversubscribe=exclusive")
    yield
    cluster.inside("scontrol", "update", "partitionname=dl", "oversubscribe=no")


@contextmanager
def misspelled(cluster: Cluster) -> Iterator[None]:
    before = partition(cluster, "nlp")["AllowAccounts"]
    cluster.inside("scontrol", "update", "partitionname=nlp", f"allowaccounts={before},typo")
    yield
    cluster.inside("scontrol", "update", "partitionname=nlp", f"allowaccounts={before}")


def partition(cluster: Cluster, name: str) -> dict[str, str]:
    line = cluster.inside("scontrol", "--oneliner", "show", "partition", name).stdout
    return dict(word.partition("=")[::2] for word in line.split())


@contextmanager
def ghost(cluster: Cluster) -> Iterator[None]:
    cluster.inside("sacctmgr", "--immediate", "add", "user", "ghost", "account=nlp")
    yield
    cluster.inside("sacctmgr", "--immediate", "delete", "user", "ghost")


@contextmanager
def open_doors(cluster: Cluster) -> Iterator[None]:
    doors = {"etc/munge/munge.key": 0o444, "etc/slurm/slurmdbd.conf": 0o644, "var/spool/slurmctld": 0o755}
    before = {name: (cluster.sandbox.layout.tree / name).stat().st_mode & 0o7777 for name in doors}
    for name, mode in doors.items():
        (cluster.sandbox.layout.tree / name).chmod(mode)
    yield
    for name, mode in before.items():
        (cluster.sandbox.layout.tree / name).chmod(mode)


@contextmanager
def runaway(cluster: Cluster) -> Iterator[None]:
    """A job whose end slurmdbd never heard of, and whom the controller does not know."""
    ended = cluster.submit("cv1", "--partition=cv", "--output=/dev/null", "--wrap=true")
    cluster.ended(ended, "cv1")
    until(lambda: "COMPLETED" in sacct(cluster, ended), 30)
    table = "`slurm_acct_db`.`uni-gpu_job_table`"
    change = f"update {table} set id_job=900, state=1, time_end=0 where id_job={ended}"
    cluster.inside("mariadb", "--no-defaults", "--execute", change)
    yield
    # Not given its old number back: slurmdbd may have been told of the job anew meanwhile.
    cluster.inside("mariadb", "--no-defaults", "--execute", f"delete from {table} where id_job=900")


def sacct(cluster: Cluster, job_id: int) -> str:
    return cluster.inside("sacct", "-nXPj", str(job_id), "-o", "State").stdout


@contextmanager
def drained(cluster: Cluster) -> Iterator[None]:
    cluster.inside("scontrol", "update", "nodename=reserved-1", "state=drain", "reason=Kill task failed")
    yield
    cluster.inside("scontrol", "update", "nodename=reserved-1", "state=resume")


@contextmanager
def fewer_gpus(cluster: Cluster) -> Iterator[None]:
    """slurmd finds four of its eight GPUs when it starts."""
    conf = cluster.sandbox.layout.slurm_conf / "gres.conf"
    before = conf.with_suffix(".before")
    shutil.copy2(conf, before)
    lines = conf.read_text()
    assert "[0-7]" in lines
    conf.write_text(lines.replace("[0-7]", "[0-3]"))
    restart(cluster, "slurmd-reserved-2")
    until(lambda: "INVALID_REG" in node(cluster, "reserved-2"), 30)
    yield
    before.replace(conf)
    restart(cluster, "slurmd-reserved-2")
    until(lambda: "INVALID_REG" not in node(cluster, "reserved-2"), 30)
    cluster.inside("scontrol", "update", "nodename=reserved-2", "state=resume", check=False)


def node(cluster: Cluster, name: str) -> str:
    return cluster.inside("scontrol", "--oneliner", "show", "node", name).stdout


def end(cluster: Cluster, daemon: str) -> None:
    identity = cluster.sandbox.running().processes[daemon]
    process.send(identity, signal.SIGTERM)
    assert process.wait_gone(identity, 20)


def restart(cluster: Cluster, name: str) -> None:
    """End a daemon if it runs, and start it with the files as they are."""
    sandbox, record = cluster.sandbox, cluster.sandbox.running()
    if process.alive(record.processes[name]):
        end(cluster, name)
    daemon = next(each for each in sandbox.blueprint().daemons(record.ports) if each.name == name)
    assert record.holder is not None
    log = sandbox.layout.logs / f"{name}.log"
    sandbox.remember(name, namespace.start(record.holder, daemon.host, daemon.argv, log))


def test_a_controller_that_is_silent_is_no_healthy_one(ill: Cluster) -> None:
    end(ill, "slurmctld")
    try:
        report = examine(ill, 3)
        assert ("controllers-answer", "slurmctld on ctl-1") in told(report)
        assert {"nodes-are-up", "limits-are-enforced", "no-job-runs-away"} <= missed(report)
        # What slurmdbd, munge and the files say is looked at all the same.
        assert {"usage-is-summed-up", "people-have-a-default-account", "secrets-are-closed"} <= set(
            report["passed"]
        )
    finally:
        restart(ill, "slurmctld")
    until(lambda: not examine_any(ill)["findings"], 30)


def test_a_dead_munge_is_named_and_no_command_waits_for_it(ill: Cluster) -> None:
    end(ill, "munged")
    try:
        began = time.monotonic()
        report = examine(ill, 3)
        took = time.monotonic() - began
    finally:
        restart(ill, "munged")
    assert ("munge-accepts-its-own-credentials", "munge") in told(report)
    reasons = {each["check"]: each["reason"] for each in report["not_checked"]}
    assert reasons["nodes-are-up"].startswith("no Slurm command works here: munge says munge: Error: Failed")
    assert "secrets-are-closed" in report["passed"]
    assert took < 15
    until(lambda: not examine_any(ill)["findings"], 30)


def test_an_include_that_is_gone_is_named_though_no_command_works(ill: Cluster) -> None:
    conf = ill.sandbox.layout.slurm_conf / "slurm.conf"
    before = conf.with_suffix(".before")
    shutil.copy2(conf, before)
    try:
        with conf.open("a") as file:
            file.write("Include accounting.conf\n")
        done = ill.inside("hpctools", "doctor", check=False)
    finally:
        before.replace(conf)
    assert done.code == 3
    assert "slurm.conf: it includes accounting.conf, which is not there" in done.stdout
    assert "Traceback" not in done.stderr


def test_the_folder_that_is_named_is_looked_at(ill: Cluster) -> None:
    done = ill.inside("hpctools", "doctor", "--folder", "/nowhere", check=False)
    assert (done.code, done.stdout) == (2, "")
    assert "/nowhere is no folder" in done.stderr
    assert ill.inside("hpctools", "doctor", "--folder", "/etc/slurm").stdout.startswith("0 findings")
