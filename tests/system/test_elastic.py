"""Elastic runs on the real Slurm: what goes wrong ends with one line that helps, and no orphaned jobs."""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpctools.elastic.folder import RunFolder
from hpctools.sandbox import process
from hpctools.sandbox.rise import up
from hpctools.slurm.run import Completed
from tests.system.harness import Cluster, until

TRAIN = Path(__file__).resolve().parents[2] / "slurm-conf" / "examples" / "university" / "train"
ACTIVE = ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING")
OPTIONS = ("--partition=nlp", "--exclusive", "--time=10")


def submit(cluster: Cluster, user: str, *words: str) -> Completed:
    return cluster.inside("hp-submit", *words, user=user, check=False, timeout=60)


def run_folder(cluster: Cluster, user: str, done: Completed) -> RunFolder:
    found = re.search(r"Elastic run (\S+):", done.stdout + done.stderr)
    assert found, done
    return RunFolder(cluster.home(user) / ".hpctools" / "runs" / found.group(1))


def active(cluster: Cluster, user: str) -> list[int]:
    return [job.id for job in cluster.jobs(user) if job.state in ACTIVE]


def runs(cluster: Cluster, user: str) -> list[str]:
    root = cluster.home(user) / ".hpctools" / "runs"
    return sorted(path.name for path in root.iterdir()) if root.exists() else []


@pytest.fixture
def person(cluster: Cluster) -> Iterator[str]:
    """Somebody of dl with the training in their home; leaves no jobs to the next test."""
    for source in TRAIN.glob("*.py"):
        cluster.give("dl1", source.name, source.read_text())
    yield "dl1"
    cluster.inside("scancel", "--user=dl1", check=False)
    until(lambda: not active(cluster, "dl1") or None, 60)


def options(*more: str) -> tuple[str, ...]:
    return ("--partition=dl", "--exclusive", "--time=10", *more)


def refused(done: Completed, words: str, codes: tuple[int, ...] = (1, 2)) -> None:
    """One line that says what is wrong, no traceback."""
    assert done.code in codes, done
    lines = [line for line in done.stderr.splitlines() if line]
    assert len(lines) == 1, done.stderr
    assert re.search(words, lines[0]), lines[0]


def test_it_shrinks_for_an_urgent_job_and_hp_cancel_ends_all_of_it(cluster: Cluster, person: str) -> None:
    # Three of the six nodes become free later, so that one of the replicas is younger than the others.
    taken = cluster.submit("cv2", "--partition=cv", "--exclusive", "--nodes=3", "--wrap", "sleep 300")
    until(lambda: cluster.job(taken, "cv2").state == "RUNNING" or None)
    words = ["--", "python", "train.py", "--steps", "5000", "--delay", "0.01"]
    folder = run_folder(cluster, person, submit(cluster, person, *options("--nodes=1:4"), *words))
    until(lambda: ((s := folder.status()) and s.world_size == 3) or None, 60)
    cluster.inside("scancel", str(taken))
    until(lambda: ((s := folder.status()) and s.world_size == 4) or None, 60)
    running = [job for job in cluster.jobs(person) if job.state == "RUNNING"]
    before, youngest = {job.id for job in running}, max(running, key=lambda job: job.started or 0)
    assert all((job.started or 0) < (youngest.started or 0) for job in running if job is not youngest)
    urgent = cluster.submit(
        "cv2", "--partition=cv", "--qos=high", "--exclusive", "--nodes=3", "--wrap", "sleep 30"
    )
    until(lambda: cluster.job(urgent, "cv2").state == "RUNNING" or None)
    until(lambda: ((s := folder.status()) and s.world_size == 3) or None)
    gone = before - {job.id for job in cluster.jobs(person) if job.state == "RUNNING"}
    assert gone == {youngest.id}  # two nodes were free; one more was needed
    assert folder.jobs()[0].job_id not in gone
    named = until(lambda: [each.detail for each in folder.events() if each.event == "preempted_by"] or None)
    assert [each["preempted_by"]["job_id"] for each in named] == [urgent]
    seen = json.loads(cluster.inside("hp-status", folder.path.name, "--json", user=person).stdout)
    assert seen["state"] == "running"
    cancelled = cluster.inside("hp-cancel", folder.path.name, user=person, timeout=60)
    assert cancelled.code == 0
    until(lambda: not active(cluster, person) or None, 60)
    assert (s := folder.status()) is not None
    assert s.state == "cancelled"
    assert cluster.inside("hp-cancel", folder.path.name, user=person, timeout=60).code == 0
    cluster.inside("scancel", str(urgent))


@pytest.mark.slow
def test_scancel_of_the_baseline_ends_the_replicas_too(cluster: Cluster, person: str) -> None:
    words = ["--", "python", "train.py", "--steps", "5000", "--delay", "0.01"]
    folder = run_folder(cluster, person, submit(cluster, person, *options("--nodes=1:3"), *words))
    until(lambda: ((s := folder.status()) and s.world_size == 3) or None, 60)
    cluster.inside("scancel", str(folder.jobs()[0].job_id), user=person)
    until(lambda: not active(cluster, person) or None, 60)
    until(lambda: ((s := folder.status()) and s.state == "cancelled") or None)
    assert {cluster.job(each.job_id, person).state for each in folder.jobs()} <= {"CANCELLED", "COMPLETED"}
    assert len(folder.jobs()) == 3


def test_a_replica_that_a_person_cancels_is_not_shown_as_preempted(cluster: Cluster, person: str) -> None:
    words = ["--", "python", "train.py", "--steps", "5000", "--delay", "0.01"]
    folder = run_folder(cluster, person, submit(cluster, person, *options("--nodes=1:2"), *words))
    until(lambda: ((s := folder.status()) and s.world_size == 2) or None, 60)
    replica = folder.jobs()[-1].job_id
    cluster.inside("scancel", str(replica), user=person)
    told = until(lambda: [each.detail for each in folder.events() if each.event == "not_preempted"] or None)
    assert told == [{"job_id": replica, "why": "was cancelled (scancel)"}]
    seen = json.loads(cluster.inside("hp-status", folder.path.name, "--json", user=person).stdout)
    assert seen["preemptions"] == []
    assert cluster.inside("hp-cancel", folder.path.name, user=person, timeout=60).code == 0
    until(lambda: not active(cluster, person) or None, 60)


def test_a_training_that_raises_at_import_fails_the_run_and_leaves_no_jobs(
    cluster: Cluster, person: str
) -> None:
    cluster.give(person, "broken.py", "import no_such_module\n")
    done = submit(
        cluster, person, *options("--nodes=1:3", "--output=broken.log"), "--", "python", "broken.py"
    )
    folder = run_folder(cluster, person, done)
    until(lambda: ((s := folder.status()) and s.state == "failed") or None, 60)
    until(lambda: not active(cluster, person) or None, 60)
    assert cluster.ended(folder.jobs()[0].job_id, person).state == "FAILED"
    text = cluster.inside("hp-status", folder.path.name, user=person).stdout
    assert "ModuleNotFoundError: No module named 'no_such_module'" in text


def test_what_cannot_be_submitted_is_refused_in_one_line(cluster: Cluster, person: str) -> None:
    before = runs(cluster, person)
    cluster.give(person, "job.sh", "#!/bin/bash\npython train.py\n")
    refused(submit(cluster, person, *options(), "nowhere.sh"), r"nowhere\.sh")
    refused(submit(cluster, person, *options("--nodes=1:2"), "nowhere.sh"), r"nowhere\.sh")
    refused(submit(cluster, person, *options("--nodes=6:2"), "job.sh"), r"6:2")
    refused(submit(cluster, person, *options("--nodes=0:2"), "job.sh"), r"0:2")
    refused(submit(cluster, person, *options("--nodes=2:7"), "job.sh"), r"partition dl has 6 nodes|6 nodes")
    refused(submit(cluster, person, *options("--nodes=1:2", "--qos=critical"), "job.sh"), "QoS critical")
    refused(submit(cluster, person, "--partition=nonsense", "--nodes=1:2", "job.sh"), "nonsense")
    assert runs(cluster, person) == before
    assert active(cluster, person) == []


def test_dry_run_touches_nothing(cluster: Cluster, person: str) -> None:
    before = runs(cluster, person)
    done = submit(cluster, person, "--dry-run", *options("--nodes=1:4"), "--", "python", "train.py")
    assert done.code == 0
    assert "#!/bin/bash" in done.stdout
    assert done.stderr == ""
    low = submit(cluster, person, "--dry-run", *options("--nodes=1:4", "--qos=low"), "--", "true")
    assert "its QoS low yields to critical; give it one that nobody takes: --qos=" in low.stderr
    assert runs(cluster, person) == before
    assert active(cluster, person) == []


def test_a_full_disk_leaves_no_folder_and_no_job(cluster: Cluster, person: str) -> None:
    full = cluster.home(person) / ".hpctools"
    shutil.rmtree(full, ignore_errors=True)
    cluster.inside("mkdir", f"/home/{person}/.hpctools", user=person)
    cluster.inside("mount", "-t", "tmpfs", "-o", "size=16k,mode=777", "full", f"/home/{person}/.hpctools")
    try:
        cluster.inside("sh", "-c", f"yes > /home/{person}/.hpctools/fill", check=False)
        done = submit(cluster, person, *options("--nodes=1:2"), "--", "python", "train.py")
        refused(done, "No space left on device")
        left = cluster.inside("find", f"/home/{person}/.hpctools", "-name", "train*").stdout
        assert left == ""
        assert active(cluster, person) == []
    finally:
        cluster.inside("umount", f"/home/{person}/.hpctools")


@pytest.mark.slow
def test_a_controller_that_is_down_is_named_and_training_goes_on_without_it(
    small: Cluster, site_file: Path
) -> None:
    for source in TRAIN.glob("*.py"):
        small.give("nlp1", source.name, source.read_text())
    words = ["--", "python", "train.py", "--steps", "3000", "--delay", "0.002"]
    folder = run_folder(small, "nlp1", submit(small, "nlp1", *OPTIONS, "--nodes=1:2", *words))
    until(lambda: ((s := folder.status()) and s.world_size == 2) or None, 60)
    controller = small.sandbox.running().processes["slurmctld"]
    process.send(controller, signal.SIGKILL)
    assert process.wait_gone(controller, 10)
    step = until(folder.status).step
    refused(submit(small, "nlp1", *OPTIONS, "--nodes=1:2", *words), "scontrol ping", codes=(3,))
    until(lambda: ((s := folder.status()) and s.step > step + 10) or None)
    up(small.sandbox, site_file, 2, lambda name, seconds: None)
    assert len(runs(small, "nlp1")) == 1
    small.inside("hp-cancel", folder.path.name, user="nlp1", timeout=60)
    until(lambda: not active(small, "nlp1") or None, 60)
