"""Restart mode on the real Slurm: what torchrun starts, preempted and grown, from its own checkpoints."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import pytest

from hpctools.elastic.folder import RunFolder
from tests.system.harness import Cluster, until

ROOT = Path(__file__).resolve().parents[2]
TRAIN = ROOT / "slurm-conf" / "examples" / "university" / "train"
RANKS = ROOT / "tests" / "elastic" / "programs" / "ranks.py"
ACTIVE = ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING")
LIMIT = 60.0


@pytest.fixture
def person(cluster: Cluster) -> Iterator[str]:
    """Somebody of dl with the scripts in their home; leaves no jobs to the next test."""
    for source in (TRAIN / "charlm.py", TRAIN / "restart_train.py", RANKS):
        cluster.give("dl1", source.name, source.read_text())
    cluster.inside("mkdir", "-p", "out", user="dl1")
    yield "dl1"
    for user in ("dl1", "cv2"):
        cluster.inside("scancel", f"--user={user}", check=False)
        until(lambda user=user: not active(cluster, user) or None, LIMIT)


def active(cluster: Cluster, user: str) -> list[int]:
    return [job.id for job in cluster.jobs(user) if job.state in ACTIVE]


def submitted(cluster: Cluster, user: str, *words: str) -> RunFolder:
    """An elastic run of a script for torchrun, on its way."""
    options = ["--partition=dl", "--exclusive", "--time=10", "--output=train.log"]
    done = cluster.inside("hp-submit", *options, *words, user=user, timeout=60)
    found = re.search(r"Elastic run (\S+):", done.stdout)
    assert found, done
    return RunFolder(cluster.home(user) / ".hpctools" / "runs" / found[1])


def wait_for_size(folder: RunFolder, size: int) -> None:
    """Until a generation of so many ranks has done some steps; else all that the run says."""
    deadline = time.monotonic() + LIMIT
    while not ((status := folder.status()) and status.world_size == size and stepped(folder, 20)):
        if time.monotonic() > deadline:
            events = "\n".join(f"{event.time} {event.event} {event.detail}" for event in folder.events())
            raise AssertionError(f"no {size} ranks: {status}\n{events}")
        time.sleep(0.1)


def stepped(folder: RunFolder, steps: int) -> bool:
    """Whether the present generation has done so many."""
    status = folder.status()
    began = [event.detail["step"] for event in folder.events() if event.event == "resize"]
    return status is not None and status.step > max(began, default=0) + steps


def test_it_shrinks_for_an_urgent_job_and_grows_again(cluster: Cluster, person: str) -> None:
    """The SIGTERM of a preemption reaches ranks too, and they have their grace time all the same."""
    script = ["--steps=1000000", "--delay=0.01", "--every=1000000", "--out=out", "--hyperpod"]
    folder = submitted(cluster, person, "--nodes=1:4", "--", "torchrun", "ranks.py", *script)
    wait_for_size(folder, 4)
    # Two of the six nodes are free, so the urgent job takes one of ours.
    urgent = cluster.submit(
        "cv2", "--partition=cv", "--qos=high", "--exclusive", "--nodes=3", "--wrap", "sleep 600"
    )
    until(lambda: cluster.job(urgent, "cv2").state == "RUNNING" or None)
    wait_for_size(folder, 3)
    cluster.inside("scancel", str(urgent))
    wait_for_size(folder, 4)
    assert cluster.inside("hp-cancel", folder.path.name, user=person, timeout=60).code == 0
    until(lambda: not active(cluster, person) or None, LIMIT)
    resizes = [event.detail for event in folder.events() if event.event == "resize"]
    assert [each["to"] for each in resizes][-2:] == [3, 4]
    assert not any(each["recovered"] for each in resizes)
    assert [event.detail for event in folder.events() if event.event == "crashed"] == []
    assert_no_step_was_lost(cluster.home(person) / "out")


@pytest.mark.parametrize("command", ["hp-cancel", "scancel"])
def test_who_cancels_it_loses_no_step(cluster: Cluster, person: str, command: str) -> None:
    """Slurm's SIGTERM reaches the ranks of all its jobs; they are told of an event all the same."""
    script = ["--steps=1000000", "--delay=0.01", "--every=1000000", "--out=out"]
    folder = submitted(cluster, person, "--nodes=1:2", "--", "torchrun", "ranks.py", *script)
    wait_for_size(folder, 2)
    (baseline,) = [job.job_id for job in folder.jobs() if job.role == "baseline"]
    asked = folder.path.name if command == "hp-cancel" else str(baseline)
    assert cluster.inside(command, asked, user=person, timeout=60).code == 0
    until(lambda: not active(cluster, person) or None, LIMIT)
    out = cluster.home(person) / "out"
    lines = [json.loads(line) for path in out.glob("*.jsonl") for line in path.read_text().splitlines()]
    last = max(line["step"] for line in lines if "step" in line)
    events = "\n".join(f"{event.time} {event.event} {event.detail}" for event in folder.events())
    assert sorted(line["rank"] for line in lines if line.get("told") == last) == [0, 1], events
    assert (out / "checkpoint").read_text() == str(last)
    assert (status := folder.status()) is not None
    assert status.state == "cancelled", events


@pytest.mark.parametrize("command", ["hp-cancel", "scancel"])
@pytest.mark.slow
def test_who_cancels_it_again_does_not_wait_for_its_checkpoint(
    cluster: Cluster, person: str, command: str
) -> None:
    """It would have KillWait, 30 s. The first hp-cancel waits for that, also after scancel."""
    script = ["--steps=1000000", "--delay=0.01", "--every=1000000", "--out=out", "--slow=slow"]
    folder = submitted(cluster, person, "--nodes=1:2", "--", "torchrun", "ranks.py", *script)
    wait_for_size(folder, 2)
    cluster.inside("touch", "slow", user=person)
    (baseline,) = [job.job_id for job in folder.jobs() if job.role == "baseline"]
    asked = folder.path.name if command == "hp-cancel" else str(baseline)
    with ThreadPoolExecutor(1) as pool:
        if command == "scancel":
            cluster.inside(command, asked, user=person, timeout=60)
        first = pool.submit(cluster.inside, "hp-cancel", folder.path.name, user=person, timeout=60)
        until(lambda: at(folder, "told_to_end", "why"), LIMIT)
        until(folder.asked, LIMIT)
        assert not folder.was_asked_again()
        assert (at(folder, "cancelled", "step"), first.done()) == (None, False)
        second = cluster.inside("hp-cancel", folder.path.name, user=person, timeout=60)
        ended = until(lambda: at(folder, "cancelled", "step"), LIMIT)
        assert first.result().code == 0
    cluster.inside("rm", "slow", user=person)
    (told,) = [each for each in folder.events() if each.event == "told_to_end"]
    took = (ended - datetime.fromisoformat(told.time)).total_seconds()
    assert took < told.detail["seconds"] - 1, "it did not use up what it had"
    assert "saving" in first.result().stderr
    assert "what it saves is not waited for any more" in second.stderr


def at(folder: RunFolder, event: str, field: str) -> datetime | None:
    """When the coordinator noted something; hp-cancel notes, too, that the run is cancelled."""
    found = [each.time for each in folder.events() if each.event == event and field in each.detail]
    return datetime.fromisoformat(found[0]) if found else None


def assert_no_step_was_lost(out: Path) -> None:
    """All ranks of a generation were told at the same step, and the next one began with it.

    The last generation may have been told, too: of its nodes that hp-cancel took, before it was ended.
    """
    lines = [json.loads(line) for path in out.glob("*.jsonl") for line in path.read_text().splitlines()]
    told = {line["told"] for line in lines if "told" in line}
    begun = {line["begins"] for line in lines if "begins" in line}
    assert sorted(begun) == [0, *sorted(told)[: len(begun) - 1]]
    assert len(told) <= len(begun)
    assert {line["environ"]["TORCHELASTIC_RESTART_COUNT"] for line in lines if "begins" in line} == {"0"}


@pytest.mark.slow
def test_torchs_ddp_trains_to_its_end(cluster: Cluster, person: str) -> None:
    script = ["restart_train.py", "--steps=30", "--size=16", "--layers=1"]
    folder = submitted(
        cluster, person, "--nodes=2:2", "--", "torchrun", "--nnodes=2", "--rdzv-backend=c10d", *script
    )
    until(lambda: ((s := folder.status()) and s.state == "finished") or None, LIMIT)
    log = (cluster.home(person) / "train.log").read_text()
    assert "2 ranks go on after step 0 (restarts: 0)" in log
    assert "done after 30 steps" in log
    assert (status := folder.status()) is not None
    assert (status.step, status.world_size) == (30, 2)
