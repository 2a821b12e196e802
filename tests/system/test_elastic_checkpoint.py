"""A run on the real Slurm that is cancelled saves its last step, and another one goes on from there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpctools.elastic.folder import RunFolder
from hpctools.slurm.run import Completed
from tests.system.harness import Cluster, until

TRAIN = Path(__file__).resolve().parents[2] / "slurm-conf" / "examples" / "university" / "train"
OPTIONS = ("--partition=dl", "--exclusive", "--time=10")
STEPS = 60
PROGRAM = ("--", "python", "train.py", "--steps", str(STEPS), "--delay", "0.004")


@pytest.fixture
def person(cluster: Cluster) -> Iterator[str]:
    """Somebody of dl with the training in their home; leaves no jobs to the next test."""
    for source in TRAIN.glob("*.py"):
        cluster.give("dl1", source.name, source.read_text())
    yield "dl1"
    cluster.inside("scancel", "--user=dl1", check=False)


def submitted(cluster: Cluster, *words: str) -> RunFolder:
    done: Completed = cluster.inside("hp-submit", *OPTIONS, *words, user="dl1", check=False, timeout=60)
    found = re.search(r"Elastic run (\S+):", done.stdout + done.stderr)
    assert found, done
    return RunFolder(cluster.home("dl1") / ".hpctools" / "runs" / found.group(1))


def events(folder: RunFolder, kind: str) -> list[dict[str, object]]:
    return [event.detail for event in folder.events() if event.event == kind]


def state_is(folder: RunFolder, state: str) -> bool | None:
    return ((status := folder.status()) is not None and status.state == state) or None


@pytest.mark.slow
def test_a_cancelled_run_saves_its_last_step_and_another_one_resumes(cluster: Cluster, person: str) -> None:
    """scancel on two nodes; `--resume` on one to three; every step is done once."""
    first = submitted(cluster, "--nodes=2:2", "--output=first.log", *PROGRAM)
    until(lambda: ((status := first.status()) and status.step >= 5) or None, 90)
    cluster.inside("scancel", str(first.jobs()[0].job_id), user=person)
    until(lambda: state_is(first, "cancelled"), 60)
    (saved,) = events(first, "saved")
    last = saved["step"]
    second = submitted(cluster, "--nodes=1:3", "--output=second.log", "--resume", first.path.name, *PROGRAM)
    until(lambda: state_is(second, "finished"), 120)
    assert [each["step"] for each in events(second, "resumed")] == [last]
    steps = [
        int(number)
        for log in ("first.log", "second.log")
        for number in re.findall(r"^epoch 0 step (\d+) ", (cluster.home(person) / log).read_text(), re.M)
    ]
    assert steps == list(range(1, STEPS + 1))
