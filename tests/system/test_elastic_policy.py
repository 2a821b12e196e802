"""Sizes, limits and arrays of elastic runs on the real Slurm: what is taken, what ends when, what is "
"refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from hpctools.elastic.folder import RunFolder
from hpctools.slurm.run import Completed
from hpctools.slurm.types import Job
from hpctools.slurm.versions import keeps_people_to_minutes_left, parse_release
from tests.system.harness import Cluster, until
from tests.system.test_elastic import TRAIN, active, refused, run_folder, submit

PERSON = "dl2"
WHOLE = ("--partition=dl", "--exclusive", "--time=10")
TRAINING = ("--", "python", "train.py", "--steps", "5000", "--delay", "0.01")


@pytest.fixture
def person(cluster: Cluster) -> Iterator[str]:
    """Somebody of dl with the training in their home; leaves no jobs to the next test."""
    for source in TRAIN.glob("*.py"):
        cluster.give(PERSON, source.name, source.read_text())
    yield PERSON
    for user in (PERSON, "cv2"):
        cluster.inside("scancel", f"--user={user}", check=False)
        until(lambda user=user: not active(cluster, user) or None, 60)  # type: ignore[misc]


def running(cluster: Cluster, person: str) -> dict[int, Job]:
    return {job.id: job for job in cluster.jobs(person) if job.state == "RUNNING"}


def has_workers(folder: RunFolder, count: int) -> bool | None:
    status = folder.status()
    return (status is not None and status.world_size == count) or None


@pytest.mark.releases
@pytest.mark.slow
def test_a_preemptor_takes_the_last_step_and_replicas_end_with_the_run(cluster: Cluster, person: str) -> None:
    """Of 6 nodes a run has 1, then 2, then 5; one is free. Who needs 3 takes the last step."""
    folder = run_folder(cluster, person, submit(cluster, person, *WHOLE, "--nodes=1,2,5", *TRAINING))
    until(lambda: has_workers(folder, 5), 60)
    jobs = running(cluster, person)
    baseline = folder.jobs()[0].job_id
    second, last = (
        next(job for job in jobs.values() if job.id != baseline and len(job.nodes) == n) for n in (1, 3)
    )
    cluster.inside("scontrol", "update", f"jobid={baseline}", "timelimit=6", user=person)
    until(lambda: all(job.time_limit == 6 for job in running(cluster, person).values()) or None, 40)
    urgent = cluster.submit(
        "cv2", "--partition=cv", "--qos=high", "--exclusive", "--nodes=3", "--wrap=sleep 60"
    )
    until(lambda: cluster.job(urgent, "cv2").state == "RUNNING" or None, 40)
    until(lambda: has_workers(folder, 2), 40)
    assert running(cluster, person).keys() == {baseline, second.id}
    assert cluster.job(last.id, person).state in ("COMPLETED", "PREEMPTED", "COMPLETING")
    # It waits for room again, and would not outlive the run.
    waiting = until(lambda: next((j for j in cluster.jobs(person) if j.state == "PENDING"), None), 40)
    assert waiting.time_limit is not None
    assert waiting.time_limit <= 6
    cluster.inside("hp-cancel", folder.path.name, user=person, timeout=60)


def test_an_array_is_a_run_for_each_index_one_at_a_time_and_others_wait_for_it(
    cluster: Cluster, person: str
) -> None:
    line = 'echo "$SLURM_ARRAY_JOB_ID: $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT" > index-'
    line += "$HPCTOOLS_ARRAY_INDEX; sleep 1"
    words = ["--partition=dl", "--time=5", "--output=/dev/null", "--nodes=1:1", "--array=3-4%1", "--parsable"]
    done = submit(cluster, person, *words, "--", "sh", "-c", line)
    first, second = (int(job) for job in done.stdout.split())
    runs = sorted((cluster.home(person) / ".hpctools" / "runs").glob("*_[34]"))
    assert [RunFolder(run).jobs()[0].job_id for run in runs] == [first, second]
    array = runs[0].name.removesuffix("_3")
    plain = [
        "--partition=dl",
        "--time=5",
        "--output=/dev/null",
        "--parsable",
        f"--dependency=afterok:{array}",
    ]
    after = int(submit(cluster, person, *plain, "--", "true").stdout)
    assert cluster.job(after, person).reason == "Dependency"
    ended = [cluster.ended(job, person, 60) for job in (first, second, after)]
    assert [job.state for job in ended] == ["COMPLETED"] * 3
    started = [job.started or 0 for job in ended]
    assert started[0] + 1 <= started[1] < started[2]
    home = cluster.home(person)
    assert [(home / f"index-{n}").read_text() for n in (3, 4)] == [f"{first}: {n} of 2\n" for n in (3, 4)]


def test_what_the_cluster_would_never_allow_is_refused_before_there_is_anything(cluster: Cluster) -> None:
    """The lab nlp-lab-b may have 2 nodes at a time and 16 GPUs; its people's jobs last a day at most."""
    person = lab_member(cluster)

    def asked(*words: str) -> Completed:
        return submit(cluster, person, "--partition=nlp", *words, "--", "true")

    refused(asked("--nodes=1:4"), r"takes up to 4 nodes and account nlp-lab-b may have 2 .* at most 2 nodes$")
    refused(asked("--nodes=1:2", "--gpus-per-node=9"), r"up to 18 GPUs and account nlp-lab-b may have 16")
    refused(asked("--nodes=1:2", "--time=1-12"), r"--time asks for 2160 minutes and .* allows 1440; give")
    policy = "elasticPolicy:\n  minReplicas: 1\n  maxReplicas: 2\n  gracefulShutdownTimeoutInSeconds: 600\n"
    cluster.give(person, "policy.yaml", policy)
    refused(asked("--elastic-policy=policy.yaml"), r"policy.yaml line 4: .* 600, and Slurm leaves .* 8 s")
    assert active(cluster, person) == []
    assert not list((cluster.home(person) / ".hpctools").glob("runs/*"))


@pytest.fixture
def limited(cluster: Cluster) -> Iterator[Callable[[str], None]]:
    """Sets a limit of the QoS `high`; it is lifted afterwards."""
    names: list[str] = []

    def limit(setting: str) -> None:
        names.append(setting.partition("=")[0])
        cluster.inside("sacctmgr", "-i", "modify", "qos", "high", "set", setting)

    yield limit
    for name in names:
        none = {"GrpWall": "-1", "MinTRES": "gres/gpu=-1,cpu=-1,mem=-1"}.get(name, "node=-1")
        cluster.inside("sacctmgr", "-i", "modify", "qos", "high", "set", f"{name}={none}")


@pytest.mark.releases
@pytest.mark.parametrize(
    ("limit", "slurms", "ours"),
    [
        (
            "GrpTRESRunMins=node=20",
            r"QOSGrpNode\w*Run\w*",
            r"allows jobs that run 0.3333 until .* --time 20 or less",
        ),
        ("GrpTRESMins=node=20", r"QOSGrpNode\w*Min\w*", r"left \(GrpTRESMins node\); .* take another QoS"),
        ("MaxTRESRunMinsPU=node=20", r"MaxNodeRunMinsPerUser", r"jobs of one user .*MaxTRESRunMinsPU node"),
        ("MaxTRESRunMinsPA=node=20", r"MaxNodeRunMinsPerAccount", r"of one account .*MaxTRESRunMinsPA node"),
        ("GrpWall=20", r"QOSGrpWall\w*", r"use at least 0.5 hours .* left \(GrpWall\); .* take another QoS"),
    ],
)
def test_minutes_that_a_qos_has_not_are_waited_for_in_slurm_and_refused_by_us(
    cluster: Cluster, person: str, limited: Callable[[str], None], limit: str, slurms: str, ours: str
) -> None:
    high = ("--partition=dl", "--qos=high")
    limited(limit)
    if limit.startswith("MaxTRESRunMinsP") and not keeps_people_to_minutes_left(
        parse_release(cluster.sandbox.running().slurm)
    ):
        done = submit(cluster, person, *high, "--nodes=1:1", "--time=30", "--parsable", "--", "true")
        assert cluster.ended(int(done.stdout.split()[0]), person, 60).state == "COMPLETED"
        return
    waits = cluster.submit(person, *high, "--nodes=1", "--time=30", "--wrap=true")
    until(lambda: re.fullmatch(slurms, cluster.job(waits, person).reason or ""), 40)
    cluster.inside("scancel", str(waits))
    refused(submit(cluster, person, *high, "--nodes=1:2", "--time=30", "--", "true"), ours)


@pytest.mark.releases
def test_gpus_that_a_qos_wants_are_waited_for_in_slurm_and_refused_by_us(
    cluster: Cluster, person: str, limited: Callable[[str], None]
) -> None:
    high = ("--partition=dl", "--qos=high")
    limited("MinTRES=gres/gpu=1")
    waits = cluster.submit(person, *high, "--nodes=1", "--wrap=true")
    until(lambda: re.fullmatch(r"QOSMinGRES", cluster.job(waits, person).reason or ""), 40)
    cluster.inside("scancel", str(waits))
    wanted = r"at least 1 GPUs \(MinTRES gres/gpu\), and the baseline job of this run 0; ask for GPUs"
    refused(submit(cluster, person, *high, "--nodes=1:2", "--", "true"), wanted)
    whole = submit(cluster, person, *high, "--nodes=1:1", "--exclusive", "--parsable", "--", "true")
    assert cluster.ended(int(whole.stdout.split()[0]), person, 60).state == "COMPLETED"


@pytest.mark.releases
@pytest.mark.parametrize(
    ("least", "slurms", "ours"),
    [
        ("cpu=9999", "QOSMinCpuNotSatisfied", r"at least 9999 CPUs \(MinTRES cpu\), and .* run at most \d+;"),
        ("mem=9T", "QOSMinMemory", r"at least 9437184 MiB of memory \(MinTRES mem\), and .* at most \d+;"),
    ],
)
def test_what_no_node_has_is_waited_for_in_slurm_and_refused_by_us(
    cluster: Cluster, person: str, limited: Callable[[str], None], least: str, slurms: str, ours: str
) -> None:
    high = ("--partition=dl", "--qos=high")
    limited(f"MinTRES={least}")
    waits = cluster.submit(person, *high, "--nodes=1", "--exclusive", "--wrap=true")
    until(lambda: cluster.job(waits, person).reason == slurms, 40)
    cluster.inside("scancel", str(waits))
    refused(submit(cluster, person, *high, "--nodes=1:2", "--exclusive", "--", "true"), ours)


def lab_member(cluster: Cluster) -> str:
    said = cluster.inside("sacctmgr", "-nP", "show", "assoc", "account=nlp-lab-b", "format=user").stdout
    return next(user for user in said.split() if re.fullmatch(r"nlp\d+", user))
