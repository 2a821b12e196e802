"""The baseline's node dies under a real Slurm, with coordinator and rank 0: the same weights come out."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from hpctools.elastic.folder import RunFolder
from hpctools.sandbox import process
from hpctools.sandbox.cluster import Sandbox
from hpctools.sandbox.fall import down
from hpctools.sandbox.rise import up
from tests.system.harness import Cluster, until

TRAIN = Path(__file__).resolve().parents[2] / "slurm-conf" / "examples" / "university" / "train"
TRAINING = ["python", "train.py", "--steps=300", "--size=16", "--layers=1", "--context=8"]


@pytest.fixture
def four(tmp_path: Path, site_file: Path, slurm_release: str) -> Iterator[Cluster]:
    """A cluster of four nodes of the test's own: one of them is going to die."""
    sandbox = Sandbox(tmp_path / "state")
    try:
        up(sandbox, site_file, 4, lambda name, seconds: None, slurm=slurm_release)
        cluster = Cluster(sandbox)
        for source in TRAIN.glob("*.py"):
            cluster.give("nlp1", source.name, source.read_text())
        yield cluster
    finally:
        down(sandbox)


def submit(cluster: Cluster, nodes: str, *training: str) -> RunFolder:
    options = ("--partition=nlp", "--exclusive", "--time=10", f"--nodes={nodes}")
    done = cluster.inside("hp-submit", *options, "--", *training, user="nlp1", timeout=60)
    found = re.search(r"Elastic run (\S+):", done.stdout + done.stderr)
    assert found, done
    return RunFolder(cluster.home("nlp1") / ".hpctools" / "runs" / found.group(1))


def trains_on(folder: RunFolder, nodes: int, further: int) -> bool | None:
    status = folder.status()
    return (status is not None and status.world_size == nodes and status.step > further) or None


def kill_job_on_its_node(cluster: Cluster, job_id: int, node: str) -> None:
    """slurmd, the job's step daemons, agent and workers at once, as when the power fails."""
    slurmd = cluster.sandbox.running().processes[f"slurmd-{node}"]
    namespace = Path(f"/proc/{slurmd.pid}/ns/pid").readlink()
    victims = [each for each in process_ids() if belongs(each, job_id, namespace)]
    assert victims
    process.send(slurmd, signal.SIGKILL)
    for pid in victims:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # it has died with another one


def process_ids() -> list[int]:
    return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()]


def belongs(pid: int, job_id: int, namespace: Path) -> bool:
    try:
        if Path(f"/proc/{pid}/ns/pid").readlink() != namespace:
            return False
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return f"SLURM_JOB_ID={job_id}".encode() in environ or command.startswith(
        f"slurmstepd: [{job_id}.".encode()
    )


@pytest.mark.timeout(400)
def test_the_run_survives_the_node_of_its_baseline(four: Cluster) -> None:
    four.inside(*TRAINING, "--save=lone.pt", user="nlp1", timeout=120)
    folder = submit(four, "1:3", *TRAINING, "--delay=0.02", "--save=weights.pt")
    until(lambda: trains_on(folder, 3, 20), 90)
    first = folder.jobs()[0].job_id
    node = four.job(first, "nlp1").nodes[0]
    kill_job_on_its_node(four, first, node)
    step = until(folder.status).step
    until(lambda: trains_on(folder, 2, step + 2), 30)
    four.inside("scontrol", "update", f"nodename={node}", "state=down", "reason=no power")
    baselines = until(lambda: [job for job in folder.jobs() if job.role == "baseline"][1:] or None, 60)
    until(lambda: trains_on(folder, 3, step), 90)
    until(lambda: ((s := folder.status()) and s.state == "finished") or None, 120)
    assert four.ended(baselines[0].job_id, "nlp1", 60).state == "COMPLETED"
    kinds = [event.event for event in folder.events()]
    assert (kinds.count("takeover"), kinds.count("finished")) == (1, 1)
    same_weights(four.home("nlp1") / "lone.pt", four.home("nlp1") / "weights.pt")
    until(lambda: not [job for job in four.jobs("nlp1") if job.state in ("PENDING", "RUNNING")] or None, 60)


def same_weights(one: Path, other: Path) -> None:
    first, second = (torch.load(path, weights_only=True) for path in (one, other))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
