"""Restart mode on the real Slurm: torch's DDP as torchrun starts it, preempted and grown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpctools.elastic.folder import RunFolder
from tests.system.harness import Cluster, until

TRAIN = Path(__file__).resolve().parents[2] / "slurm-conf" / "examples" / "university" / "train"
ACTIVE = ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING")
SLOW = 70.0


@pytest.fixture
def person(cluster: Cluster) -> Iterator[str]:
    """Somebody of dl with the training in their home; leaves no jobs to the next test."""
    for name in ("charlm.py", "restart_train.py"):
        cluster.give("dl1", name, (TRAIN / name).read_text())
    yield "dl1"
    cluster.inside("scancel", "--user=dl1", check=False)
    until(lambda: not active(cluster, "dl1") or None, 60)


def active(cluster: Cluster, user: str) -> list[int]:
    return [job.id for job in cluster.jobs(user) if job.state in ACTIVE]


def test_a_torchrun_script_shrinks_for_an_urgent_job_and_grows_again(cluster: Cluster, person: str) -> None:
    options = ["--partition=dl", "--exclusive", "--time=10", "--nodes=1:3", "--output=train.log"]
    script = ["torchrun", "restart_train.py", "--steps=1000000", "--delay=0.002", "--size=16", "--layers=1"]
    done = cluster.inside("hp-submit", *options, "--", *script, user=person, timeout=60)
    found = re.search(r"Elastic run (\S+):", done.stdout)
    assert found
    folder = RunFolder(cluster.home(person) / ".hpctools" / "runs" / found[1])
    until(lambda: (size(folder) == 3 and stepped(folder, 20)) or None, SLOW)
    # Three of the six nodes are free, so the urgent job takes one of ours, which has its grace time.
    urgent = cluster.submit(
        "cv2", "--partition=cv", "--qos=high", "--exclusive", "--nodes=4", "--wrap", "sleep 600"
    )
    until(lambda: cluster.job(urgent, "cv2").state == "RUNNING" or None)
    until(lambda: (size(folder) == 2 and stepped(folder, 20)) or None, SLOW)
    cluster.inside("scancel", str(urgent))
    until(lambda: (size(folder) == 3 and stepped(folder, 20)) or None, SLOW)
    assert cluster.inside("hp-cancel", found[1], user=person, timeout=60).code == 0
    until(lambda: not active(cluster, person) or None, 60)
    assert [event.detail for event in folder.events() if event.event == "crashed"] == []
    planned = [event.detail for event in folder.events() if event.event == "resize"]
    assert not any(each["recovered"] for each in planned)
    assert_went_on(cluster.home(person) / "train.log", [each["to"] for each in planned])


def size(folder: RunFolder) -> int:
    status = folder.status()
    return status.world_size if status is not None else 0


def stepped(folder: RunFolder, steps: int) -> bool:
    """Whether the present generation has done so many."""
    status = folder.status()
    began = [event.detail["step"] for event in folder.events() if event.event == "resize"]
    return status is not None and status.step > max(began, default=0) + steps


def assert_went_on(log: Path, sizes: list[int]) -> None:
    """Each generation began with the step after the last one's last, as rank 0 says."""
    lines = re.findall(r"^(\d+) ranks go on after step (\d+) \(restarts: 0\)", log.read_text(), re.MULTILINE)
    assert [int(world) for world, _ in lines][1:] == sizes
    steps = [int(step) for _, step in lines]
    assert steps == sorted(set(steps)), "every generation did new steps, none was done twice"


def test_hyperpods_script_is_planned_as_it_is_written(cluster: Cluster, person: str) -> None:
    words = ["--dry-run", "--json", "--partition=dl", "--nodes=1:4", "--"]
    command = ["hyperpodrun", "--nnodes=4", "--nproc-per-node=2", "restart_train.py", "--steps", "5"]
    done = cluster.inside("hp-submit", *words, *command, user=person, timeout=60)
    assert '"mode": "restart"' in done.stdout
    assert '"workers_per_node": 2' in done.stdout
