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
ENDLESS = [*TRAINING[:2], "--steps=100000", *TRAINING[3:], "--delay=0.02"]


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
    tasks = [each for each in process_ids() if belongs(each, job_id, node, namespace)]
    victims = {*tasks, *(parent for each in tasks if is_step(parent := parent_of(each)))}
    assert victims > set(tasks)
    process.send(slurmd, signal.SIGKILL)
    for pid in victims:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # it has died with another one


def process_ids() -> list[int]:
    return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()]


def belongs(pid: int, job_id: int, node: str, namespace: Path) -> bool:
    try:
        if Path(f"/proc/{pid}/ns/pid").readlink() != namespace:
            return False
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return {f"SLURM_JOB_ID={job_id}".encode(), f"SLURMD_NODENAME={node}".encode()} <= set(environ)


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def is_step(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"slurmstepd: [")
    except OSError:
        return False


@pytest.mark.timeout(400)
@pytest.mark.long
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


@pytest.mark.releases(all="long")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("most", [3, pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.slow
def test_the_run_survives_one_of_several_nodes_of_its_baseline(four: Cluster, most: int) -> None:
    """Slurm ends the rest of the job, too; of two nodes without a replica only what is saved is left."""
    folder = submit(four, f"2:{most}", *ENDLESS)
    until(lambda: trains_on(folder, most, 20), 120)
    first = folder.jobs()[0].job_id
    node = four.job(first, "nlp1").nodes[1]
    if most == 3:
        kill_job_on_its_node(four, first, node)
        step = until(folder.status).step
        until(lambda: trains_on(folder, 2, step + 2), 60)
    before = until(folder.status).generation
    four.inside("scontrol", "update", f"nodename={node}", "state=down", "reason=no power")
    (another,) = until(lambda: [job for job in folder.jobs() if job.role == "baseline"][1:] or None, 60)
    assert four.ended(first, "nlp1", 60).state == "NODE_FAIL"
    until(lambda: ((s := folder.status()) and s.generation > before and s.world_size >= 2) or None, 150)
    step = until(folder.status).step
    until(lambda: until(folder.status).step > step + 2 or None, 60)
    cancelled(four, folder, another.job_id)
    assert "failed" not in [event.event for event in folder.events()]


@pytest.mark.timeout(400)
@pytest.mark.long
def test_a_drained_node_of_a_baseline_is_free_when_another_job_has_its_place(four: Cluster) -> None:
    """Slurm keeps all nodes of a job to its end: what is left of the old one has to go, too."""
    folder = submit(four, "2:2", *ENDLESS)
    until(lambda: trains_on(folder, 2, 20), 120)
    first = folder.jobs()[0].job_id
    nodes = four.job(first, "nlp1").nodes
    four.inside("scontrol", "update", f"nodename={nodes[1]}", "state=drain", "reason=fan")
    assert four.ended(first, "nlp1", 90).state == "FAILED"
    until(lambda: node_state(four, nodes[1]) == "drained", 60)
    step = until(folder.status).step
    until(lambda: trains_on(folder, 2, step + 2), 30)
    cancelled(four, folder, folder.jobs()[-1].job_id)
    assert "failed" not in [event.event for event in folder.events()]


def cancelled(cluster: Cluster, folder: RunFolder, baseline: int) -> None:
    """End a run by its present baseline job: it says so, and nothing is left."""
    cluster.inside("scancel", str(baseline), user="nlp1")
    until(lambda: ((s := folder.status()) and s.state == "cancelled") or None, 60)
    assert until(folder.status).message == f"baseline job {baseline} was cancelled (scancel)"
    until(lambda: not [j for j in cluster.jobs("nlp1") if j.state in ("PENDING", "RUNNING")] or None, 60)


def node_state(cluster: Cluster, node: str) -> str:
    return cluster.inside("sinfo", "-h", f"--nodes={node}", "--format=%T").stdout.split()[0]


def same_weights(one: Path, other: Path) -> None:
    first, second = (torch.load(path, weights_only=True) for path in (one, other))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
