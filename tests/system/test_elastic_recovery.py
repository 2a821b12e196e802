"""Elastic runs on the real Slurm: who is drained or taken back is left in time, rules end a run their way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpctools.elastic.folder import RunFolder
from hpctools.elastic.notices import SPOT_PATH
from hpctools.elastic.recovery import EXIT_CODES
from tests.elastic.metadata_service import serving, spot_at
from tests.system.harness import Cluster, until

TRAIN = Path(__file__).resolve().parents[2] / "slurm-conf" / "examples" / "university" / "train"
ACTIVE = ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING")
PERSON = "dl2"
POLICY = r"""
preload: [torch.nn]
runPolicy: {mode: enforce}
metrics: {crash: true, hang: {seconds: 60}}
logMonitoringConfiguration:
  - {name: TenthStep, logPattern: 'epoch \d+ step 10 loss', faultOnMatch: true, do: [fail]}
"""


@pytest.fixture
def person(cluster: Cluster) -> Iterator[str]:
    """Somebody with the training in their home; leaves no jobs and no drained nodes to the next test."""
    for source in TRAIN.glob("*.py"):
        cluster.give(PERSON, source.name, source.read_text())
    yield PERSON
    cluster.inside("scancel", f"--user={PERSON}", check=False)
    until(lambda: not active(cluster) or None, 60)


def active(cluster: Cluster) -> list[int]:
    return [job.id for job in cluster.jobs(PERSON) if job.state in ACTIVE]


def submitted(cluster: Cluster, *words: str, environ: str = "") -> RunFolder:
    options = ("--partition=dl", "--exclusive", "--time=10")
    before = ("env", environ) if environ else ()
    done = cluster.inside(*before, "hp-submit", *options, *words, user=PERSON, timeout=60)
    found = re.search(r"Elastic run (\S+):", done.stdout + done.stderr)
    assert found, done
    return RunFolder(cluster.home(PERSON) / ".hpctools" / "runs" / found.group(1))


def world(folder: RunFolder) -> int:
    status = folder.status()
    return status.world_size if status is not None else 0


@pytest.mark.slow
def test_a_drained_node_is_left_without_a_lost_step_and_not_taken_again(
    cluster: Cluster, person: str
) -> None:
    train = ["--", "python", "train.py", "--steps", "5000", "--delay", "0.01"]
    folder = submitted(cluster, "--nodes=1:3", *train)
    until(lambda: world(folder) == 3 or None, 90)
    before = folder.status()
    assert before is not None
    drained = before.nodes[-1]
    cluster.inside("scontrol", "update", f"nodename={drained}", "state=drain", "reason=fan")
    try:
        until(lambda: [e for e in folder.events() if e.event == "left"] or None, 60)
        until(lambda: ((s := folder.status()) and s.world_size == 3 and drained not in s.nodes) or None, 90)
    finally:
        cluster.inside("scontrol", "update", f"nodename={drained}", "state=resume")
    events = folder.events()
    (depart,) = [each.detail for each in events if each.event == "action"]
    assert (depart["action"], depart["node"], depart["reason"]) == ("Depart", drained, "it is drained: fan")
    (left,) = [each.detail for each in events if each.event == "left"]
    assert (left["node"], left["reason"]) == (drained, "departed")
    assert not any(each.detail["recovered"] for each in events if each.event == "resize")
    after = folder.status()
    assert after is not None
    assert after.step > before.step
    cluster.inside("hp-cancel", folder.path.name, user=person, timeout=60)


@pytest.mark.slow
def test_a_spot_instance_is_left_before_it_is_gone_and_not_asked_for_again(
    cluster: Cluster, person: str
) -> None:
    """The last agent that has come is the replica's: the notice is for its node alone."""
    train = ["--", "python", "train.py", "--steps", "5000", "--delay", "0.01"]
    with serving() as service:
        endpoint = f"AWS_EC2_METADATA_SERVICE_ENDPOINT={service.endpoint}"
        folder = submitted(cluster, "--nodes=1:2", *train, environ=endpoint)
        until(lambda: world(folder) == 2 or None, 90)
        before = folder.status()
        assert before is not None
        node = before.nodes[-1]
        service.concerned = {list(service.tokens)[-1]}
        service.documents[SPOT_PATH] = spot_at(120)
        until(lambda: [e for e in folder.events() if e.event == "left"] or None, 60)
        until(lambda: ((s := folder.status()) and s.world_size == 2 and node not in s.nodes) or None, 90)
    details = [(each.event, each.detail) for each in folder.events()]
    (depart,) = [detail for event, detail in details if event == "action"]
    assert (depart["action"], depart["node"]) == ("Depart", node)
    assert 90 < depart["seconds"] <= 120
    assert [(d["node"], d["reason"]) for event, d in details if event == "left"] == [(node, "departed")]
    assert not any(detail["recovered"] for event, detail in details if event == "resize")
    replica = cluster.inside("scontrol", "show", "job", str(folder.jobs()[-1].job_id)).stdout
    assert f"ExcNodeList={node}" in replica
    assert cluster.inside("hp-cancel", folder.path.name, user=person, timeout=60).code == 0


@pytest.mark.slow
def test_an_enforced_rule_ends_the_run_with_its_own_exit_code(cluster: Cluster, person: str) -> None:
    cluster.give(person, "policy.yaml", POLICY)
    train = ["--", "python", "train.py", "--steps", "5000", "--delay", "0.01"]
    folder = submitted(cluster, "--nodes=1:2", "--elastic-policy=policy.yaml", *train)
    until(lambda: ((s := folder.status()) and s.state == "failed") or None, 90)
    until(lambda: not active(cluster) or None, 60)
    baseline = folder.jobs()[0].job_id
    shown = cluster.inside("scontrol", "show", "job", str(baseline), user=person).stdout
    assert f"ExitCode={EXIT_CODES['log']}:0" in shown
    (finding,) = [each.detail for each in folder.events() if each.event == "finding"]
    assert (finding["name"], finding["rung"], finding["mode"]) == ("TenthStep", "fail", "enforce")
    assert finding["why"].startswith("a worker printed: epoch 0 step 10 loss")
    assert folder.spec().preload == ("torch.nn",)
    assert [each.detail for each in folder.events() if "preload" in str(each.detail)] == [], "it was forked"
    told = cluster.inside("hp-status", folder.path.name, user=person).stdout
    assert "TenthStep" in told
