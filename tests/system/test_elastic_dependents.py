"""Jobs that wait for a run on the real Slurm, while its baseline job is replaced by another one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hpctools.elastic.folder import RunFolder
from hpctools.elastic.recovery import EXIT_GOES_ON
from hpctools.sandbox.cluster import Sandbox
from hpctools.sandbox.fall import down
from hpctools.sandbox.rise import up
from hpctools.slurm import parse
from tests.system.harness import Cluster, until
from tests.system.test_elastic_takeover import ENDLESS, TRAIN, kill_job_on_its_node, submit, trains_on

PERSON = "nlp1"
PLAIN = ("--partition=nlp", "--nodes=1", "--time=5", "--wrap=true")
FINITE = [*ENDLESS[:2], "--steps=300", *ENDLESS[3:]]


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, site_file: Path, slurm_release: str
) -> Iterator[Cluster]:
    """A cluster of four nodes of this file's own: some of them are drained."""
    sandbox = Sandbox(tmp_path_factory.mktemp("dependents") / "state")
    try:
        up(sandbox, site_file, 4, lambda name, seconds: None, slurm=slurm_release)
        made = Cluster(sandbox)
        for source in TRAIN.glob("*.py"):
            made.give(PERSON, source.name, source.read_text())
        yield made
    finally:
        down(sandbox)


@pytest.fixture
def drained(cluster: Cluster) -> Iterator[list[str]]:
    """Nodes that a test has drained, which serve again after it; no job is left either."""
    nodes: list[str] = []
    yield nodes
    cluster.inside("scancel", f"--user={PERSON}", check=False)
    until(lambda: not [job for job in cluster.jobs(PERSON) if is_there(job.state)] or None, 90)
    for node in nodes:
        cluster.inside("scontrol", "update", f"nodename={node}", "state=resume")


def is_there(state: str) -> bool:
    return state in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING")


def replace_baseline(cluster: Cluster, folder: RunFolder, nodes: list[str]) -> tuple[int, int]:
    """Drain the baseline's node, and wait until another job has its place; both ids."""
    first = folder.jobs()[0].job_id
    nodes += cluster.job(first, PERSON).nodes
    cluster.inside("scontrol", "update", f"nodename={nodes[-1]}", "state=drain", "reason=fan")
    another = until(lambda: [each for each in folder.jobs() if each.role == "baseline"][1:] or None, 90)
    assert cluster.ended(first, PERSON, 90).state == "FAILED"
    asked = ["sacct", "-nXP", f"--jobs={first}", "--format=ExitCode"]
    until(lambda: cluster.inside(*asked).stdout.strip() == f"{EXIT_GOES_ON}:0" or None, 30)
    return first, another[0].job_id


def dependencies(cluster: Cluster) -> dict[int, str]:
    argv = ["squeue", "-h", "-t", "PENDING", f"--format={parse.DEPENDENCY_FORMAT}", "-u", PERSON]
    return parse.dependencies(cluster.inside(*argv).stdout)


@pytest.mark.timeout(500)
@pytest.mark.releases(all="long")
@pytest.mark.slow
def test_what_waits_for_a_run_begins_when_the_run_has_ended_and_not_its_first_job(
    cluster: Cluster, drained: list[str]
) -> None:
    folder = submit(cluster, "1:2", *FINITE)
    until(lambda: trains_on(folder, 2, 20), 120)
    first = folder.jobs()[0].job_id
    words = ["--parsable", f"--dependency=afterok:{folder.path.name}", *PLAIN]
    after = int(cluster.inside("hp-submit", *words, user=PERSON, timeout=60).stdout)
    any_end = cluster.submit(PERSON, f"--dependency=afterany:{first}", *PLAIN)
    bad_end = cluster.submit(PERSON, f"--dependency=afternotok:{first}?afternotok:{after}", *PLAIN)
    _, second = replace_baseline(cluster, folder, drained)
    assert dependencies(cluster) == {
        after: f"afterok:{second}",
        any_end: f"afterany:{second}",
        bad_end: f"afternotok:{second}?afternotok:{after}",
    }
    step = until(folder.status).step
    until(lambda: (now := folder.status()) and now.step > step and now.state == "running", 60)
    assert {cluster.job(each, PERSON).state for each in (after, any_end, bad_end)} == {"PENDING"}
    until(lambda: ((s := folder.status()) and s.state == "finished") or None, 200)
    assert {cluster.ended(each, PERSON, 60).state for each in (after, any_end)} == {"COMPLETED"}
    assert cluster.job(bad_end, PERSON).state == "PENDING"


@pytest.mark.timeout(500)
@pytest.mark.long
def test_the_next_run_of_an_array_begins_when_the_one_before_has_ended_whatever_job_it_has(
    cluster: Cluster, drained: list[str]
) -> None:
    words = ["--partition=nlp", "--exclusive", "--time=10", "--nodes=1:2", "--array=0-1%1", "--", *ENDLESS]
    done = cluster.inside("hp-submit", *words, user=PERSON, timeout=60)
    ids = [line.split()[2].rstrip(":") for line in done.stdout.splitlines() if "Elastic run" in line]
    one, next_one = (RunFolder(cluster.home(PERSON) / ".hpctools" / "runs" / each) for each in ids)
    until(lambda: trains_on(one, 2, 20), 120)
    waits = next_one.jobs()[0].job_id
    _, second = replace_baseline(cluster, one, drained)
    assert dependencies(cluster) == {waits: f"afterany:{second}"}
    step = until(one.status).step
    until(lambda: (now := one.status()) and now.step > step and now.state == "running", 60)
    assert cluster.job(waits, PERSON).state == "PENDING"
    assert next_one.status() is None
    cluster.inside("scancel", str(second), user=PERSON)
    until(lambda: ((s := next_one.status()) and s.step > 2) or None, 120)
    assert until(one.status).state == "cancelled"


@pytest.mark.timeout(500)
@pytest.mark.long
def test_what_waits_for_a_run_whose_baseline_s_node_dies_does_not_begin_when_slurm_notices(
    cluster: Cluster, drained: list[str]
) -> None:
    folder = submit(cluster, "1:2", *ENDLESS)
    until(lambda: trains_on(folder, 2, 20), 120)
    first = folder.jobs()[0].job_id
    any_end = cluster.submit(PERSON, f"--dependency=afterany:{first}", *PLAIN)
    node = cluster.job(first, PERSON).nodes[0]
    kill_job_on_its_node(cluster, first, node)
    replica = folder.jobs()[1].job_id
    until(lambda: dependencies(cluster) == {any_end: f"afterany:{replica}"} or None, 90)
    cluster.inside("scontrol", "update", f"nodename={node}", "state=down", "reason=no power")
    assert cluster.ended(first, PERSON, 60).state == "NODE_FAIL"
    another = until(lambda: [each for each in folder.jobs() if each.role == "baseline"][1:] or None, 60)
    until(lambda: dependencies(cluster) == {any_end: f"afterany:{another[0].job_id}"} or None, 60)
    assert cluster.job(any_end, PERSON).state == "PENDING"
    cluster.inside("scancel", str(another[0].job_id), user=PERSON)
    assert cluster.ended(any_end, PERSON, 90).state == "COMPLETED"
