"""What hp-status tells of a real run: why it is not larger, a drawing, and hours that slurmdbd confirms."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.system.harness import Cluster, until
from tests.system.test_elastic import active, options, run_folder, submit

TRAIN = Path(__file__).resolve().parents[2] / "slurm-conf" / "examples" / "university" / "train"
ENDED = ("COMPLETED", "CANCELLED", "FAILED")


@pytest.fixture
def person(cluster: Cluster) -> Iterator[str]:
    """Somebody of dl with the training in their home; leaves no jobs to the next test."""
    for source in TRAIN.glob("*.py"):
        cluster.give("dl1", source.name, source.read_text())
    yield "dl1"
    cluster.inside("scancel", "--user=dl1", check=False)
    until(lambda: not active(cluster, "dl1") or None, 60)


@pytest.mark.slow
def test_a_run_explains_itself_is_drawn_and_its_hours_are_those_of_slurmdbd(
    cluster: Cluster, person: str
) -> None:
    taken = cluster.submit(
        "cv2", "--partition=cv", "--qos=high", "--exclusive", "--nodes=4", "--wrap", "sleep 300"
    )
    until(lambda: cluster.job(taken, "cv2").state == "RUNNING" or None)
    # The last but one node becomes free when the run trains: it shall have grown, and not begun with two.
    beside = cluster.submit(person, "--partition=dl", "--exclusive", "--nodes=1", "--wrap", "sleep 300")
    until(lambda: cluster.job(beside, person).state == "RUNNING" or None)
    words = ["--", "python", "train.py", "--steps", "5000", "--delay", "0.01"]
    folder = run_folder(cluster, person, submit(cluster, person, *options("--nodes=1:3"), *words))
    until(lambda: ((s := folder.status()) and s.world_size == 1) or None, 60)
    cluster.inside("scancel", str(beside))
    until(lambda: ((s := folder.status()) and s.world_size == 2) or None, 60)

    def status(*words: str) -> str:
        return cluster.inside("hp-status", folder.path.name, *words, user=person, timeout=60).stdout

    waiting = until(
        lambda: (found := json.loads(status("--json"))["not_larger"]) and "waits" in str(found) and found
    )
    assert any("Resources" in clause or "Priority" in clause for clause in waiting), waiting
    until(lambda: len(folder.history()) >= 3 or None)
    cluster.inside("hp-cancel", folder.path.name, user=person, timeout=60)
    until(lambda: not active(cluster, person) or None, 60)
    cluster.inside("scancel", str(taken))
    ids = ",".join(str(record.job_id) for record in folder.jobs())
    columns = "--format=JobIDRaw,State,ElapsedRaw,AllocTRES,Comment"
    asked = ["sacct", "-n", "-X", "-P", "-D", f"--jobs={ids}", columns]

    def accounted() -> list[list[str]] | None:
        lines = [line.split("|") for line in cluster.inside(*asked, user=person).stdout.splitlines()]
        return (
            lines if len(lines) == len(folder.jobs()) and all(x[1].startswith(ENDED) for x in lines) else None
        )

    lines = until(accounted)
    expected = {int(job): int(elapsed) * _gpus(tres) for job, _, elapsed, tres, _ in lines}
    # By their comment a site's own reports find all jobs of a run, also when slurmctld has forgotten them.
    assert {comment for *_, comment in lines} == {f"hp-run:{folder.path.name}"}
    bill = json.loads(status("--accounting", "--json"))
    assert {job["job_id"]: job["gpu_seconds"] for job in bill["jobs"]} == expected
    assert bill["gpu_seconds"] == sum(expected.values()) == sum(part["gpu_seconds"] for part in bill["parts"])
    assert bill["gpu_seconds"] > 0
    assert bill["unknown"] == []
    assert {part["role"] for part in bill["parts"]} == {"baseline", "replica"}
    assert "total" in status("--accounting")

    if find_spec("matplotlib"):
        status("--plot", f"/home/{person}/run.svg")
        drawn = (cluster.home(person) / "run.svg").read_text()
        assert f"{folder.path.name}: cancelled" in drawn
        assert ">grew (" in drawn


def _gpus(tres: str) -> int:
    counts = dict(entry.split("=") for entry in tres.split(",") if entry)
    return int(counts.get("gres/gpu", 0))
