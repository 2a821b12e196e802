"""Jobs that plans name before real daemons: what is foretold comes true, and nothing else happens."""

from __future__ import annotations

from contextlib import suppress

import pytest

from tests.system.applied import Applied
from tests.system.harness import Cluster, until

pytestmark = pytest.mark.releases

NLP = "limits: {gpus: 48, cpus: 640, gpus_per_user: 48"
CV = "limits: {gpus: 48, gpus_per_user: 32"
CRITICAL = "    gpus_per_user: 16\n    jobs_per_user: 4\n"
HIGH = "    description: Before others\n"
MANY_CPUS = ("--gpus=2", "-N1", "--cpus-per-gpu=16")
LOW = "    description: When nobody else needs it\n"


def lowered(text: str) -> str:
    """Limits of a department, of its jobs, and of people in tiers, each lower."""
    for before, after in (
        (NLP, NLP.replace("gpus: 48", "gpus: 4", 1)),
        (CV, f"{CV}, gpus_per_job: 2"),
        (CRITICAL, f"{CRITICAL}    cpus_per_user: 30\n"),
        (HIGH, f"{HIGH}    gpus_per_user: 2\n"),
        (LOW, f"{LOW}    jobs_per_user: 1\n"),
    ):
        assert before in text
        text = text.replace(before, after)
    return text


def submit(box: Cluster, user: str, *words: str, tier: str = "medium") -> int:
    partition = user[:2] if user.startswith(("cv", "dl")) else "nlp"
    options = (f"--partition={partition}", f"--qos={tier}", "--mem=1", "--time=10", *words)
    return box.submit(user, *options, "--wrap=sleep 600")


def started(box: Cluster, user: str, *words: str, tier: str = "medium") -> int:
    job = submit(box, user, *words, tier=tier)
    until(lambda: box.job(job, user).state == "RUNNING")
    return job


def cancel(box: Cluster, *users: str) -> None:
    for user in users:
        box.inside("scancel", f"--user={user}")
    waiting = ("PENDING", "RUNNING", "COMPLETING")
    until(lambda: all(job.state not in waiting for user in users for job in box.jobs(user)))


@pytest.mark.slow
def test_lowered_limits_keep_jobs_from_starting_just_as_foretold(box: Applied) -> None:
    """dl1 holds what nlp1 and cv2 leave of the nodes, so that all others wait; then there is room for all."""
    cluster = box.cluster
    runs = [started(cluster, "nlp1", "--gpus=1", "--cpus-per-gpu=1"), started(cluster, "cv2", tier="low")]
    for cpus in (96, 92):  # jobs get whole cores of two CPUs
        started(cluster, "dl1", f"-n{cpus}", "-N1")
    never = {
        submit(cluster, "nlp2", "--gres=gpu:8"): ("nlp2", "AssocGrpGRES"),
        submit(cluster, "cv1", "--gres=gpu:4"): ("cv1", "AssocMaxGRESPerJob"),
        submit(cluster, "cv1", *MANY_CPUS, tier="critical"): ("cv1", "QOSMaxCpuPerUserLimit"),
        submit(cluster, "cv-lead-a", "--gres=gpu:4", tier="high"): ("cv-lead-a", "QOSMaxGRESPerUser"),
    }  # fmt: skip
    later = {
        submit(cluster, "nlp1", "--gres=gpu:4"): ("nlp1", "AssocGrpGRES"),
        submit(cluster, "cv2", "-c2", tier="low"): ("cv2", "QOSMaxJobsPerUserLimit"),
    }
    fits = submit(cluster, "cv1", "-c2")
    plan = box.plan(lowered(box.base))
    assert {row["id"]: row["waits"] for row in plan["jobs"]} == {
        **dict.fromkeys(never, False),
        **dict.fromkeys(later, True),
    }
    assert {job for change in plan["changes"] for job in change["jobs"]} == {*never, *later}

    unseen = box.apply(lowered(box.base), check=False)
    assert (unseen.code, f"jobs are disturbed: {len(never)}" in unseen.stderr) == (2, True)
    box.apply(lowered(box.base), "--yes")
    cancel(cluster, "dl1")
    until(lambda: cluster.job(fits, "cv1").state == "RUNNING")
    for job, (user, reason) in {**never, **later}.items():
        until(lambda job=job, user=user, reason=reason: cluster.job(job, user).reason == reason)
    assert [cluster.job(job, user).state for job, user in zip(runs, ("nlp1", "cv2"), strict=True)] == [
        "RUNNING"
    ] * 2
    cluster.inside("scancel", *map(str, runs))
    for job, (user, _) in later.items():
        until(lambda job=job, user=user: cluster.job(job, user).state == "RUNNING")
    for job, (user, _) in never.items():
        assert cluster.job(job, user).state == "PENDING"
    cancel(cluster, "nlp1", "nlp2", "cv1", "cv2", "cv-lead-a")


def test_jobs_that_only_a_boot_finds_are_no_part_of_a_plan_that_was_agreed_to(box: Applied) -> None:
    """A running job does not tell which partitions it once named; some releases end it with any of them."""
    quick = "partitions:\n  - {name: quick, node_groups: [reserved], departments: all, priority_tier: 0}\n"
    box.apply(box.base.replace("\ntiers:\n", f"\n{quick}\ntiers:\n"), "--yes")
    cluster = box.cluster
    job = cluster.submit("nlp1", "-pnlp,quick", "--time=10", "--wrap=sleep 600")
    until(lambda: cluster.job(job, "nlp1").state == "RUNNING")
    assert cluster.job(job, "nlp1").partition == "nlp"
    box.written_down(job)  # a boot knows what slurmctld wrote down
    site = box.give("site.yaml", box.base)
    assert "disturbed" not in box.hpctools("plan", site, "--out", "/home/plan.json").stdout
    done = box.hpctools("apply", site, "--plan", "/home/plan.json", check=False)
    if cluster.sandbox.running().slurm >= "26":
        assert (done.code, cluster.job(job, "nlp1").state) == (0, "RUNNING")
    else:
        told = (
            f"would lose jobs that the plan does not name, found by booting the new files: {job}; nothing has"
        )
        assert (done.code, told in " ".join(done.stderr.split())) == (1, True)
        assert "PartitionName=quick" in box.read("/etc/slurm/slurm.conf")
        assert cluster.job(job, "nlp1").state == "RUNNING"
    cancel(cluster, "nlp1")


CV_LIMITS = "limits: {gpus: 48, gpus_per_user: 32"
DL_PARTITION = "partition: {node_groups: [reserved, shared], max_time: 1-00:00:00"
DOOR = "  door: {description: For all who come in, priority: 1, cpus_per_user: 4}\n"


def narrower(text: str) -> str:
    """A partition's QoS, its groups and the fewest of its nodes; and a limit that whole nodes are above."""
    for before, after in (
        ("\n  high:\n", f"\n{DOOR}  high:\n"),
        ("      default_time: 04:00:00\n", "      default_time: 04:00:00\n      parameters: {QOS: door}\n"),
        (CV_LIMITS, f"{CV_LIMITS}, cpus_per_job: 48"),
        (
            "      max_time: 3-00:00:00\n",
            "      max_time: 3-00:00:00\n      parameters: {AllowGroups: cv2}\n",
        ),
        (DL_PARTITION, f"{DL_PARTITION}, parameters: {{MinNodes: '2'}}"),
    ):
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    return text


@pytest.mark.long
def test_partitions_that_let_fewer_jobs_in_keep_them_just_as_foretold(box: Applied) -> None:
    """All wait for the nodes, which are drained until the new configuration runs."""
    cluster = box.cluster
    nodes = ",".join(f"reserved-{number}" for number in (1, 2))
    cluster.inside("scontrol", "update", f"node={nodes}", "state=drain", "reason=test")
    never = {
        submit(cluster, "nlp1", "-c8"): ("nlp1", "QOSMaxCpuPerUserLimit"),
        submit(cluster, "cv1", "-c2"): ("cv1", "PartitionConfig"),
        submit(cluster, "cv2", "-n1", "--exclusive"): ("cv2", "AssocMaxCpuPerJobLimit"),
        submit(cluster, "dl1", "-N1"): ("dl1", "PartitionNodeLimit"),
    }
    fits = {
        submit(cluster, "nlp1", "-c2"): "nlp1",
        submit(cluster, "cv2", "-c2"): "cv2",
        submit(cluster, "dl2", "-N2"): "dl2",
    }
    try:
        comes_as_foretold(box, narrower(box.base), nodes, never, fits)
    finally:
        cluster.inside("scontrol", "update", f"node={nodes}", "state=resume", check=False)
        cancel(cluster, "nlp1", "cv1", "cv2", "dl1", "dl2")


def comes_as_foretold(
    box: Applied,
    site: str,
    nodes: str,
    never: dict[int, tuple[str, str]],
    fits: dict[int, str],
    may: dict[int, str] | None = None,
    elsewhere: dict[int, tuple[str, str]] | None = None,
) -> None:
    """Plan and apply name the jobs of `never` (whose, Slurm's reason), which stay; those of `fits` start.

    Those of `may` (whose) are named with an `if`, since no command tells what they are, and start. Those of
    `elsewhere` (whose, partition) are told to start only there, and do.
    """
    cluster, may, elsewhere = box.cluster, may or {}, elsewhere or {}
    plan = box.plan(site)
    named = never.keys() | may.keys()
    fates = {**dict.fromkeys(named, False), **dict.fromkeys(elsewhere, True)}
    assert {row["id"]: row["waits"] for row in plan["jobs"]} == fates
    assert all("(if it " in row["why"] for row in plan["jobs"] if row["id"] in may)
    whys = {row["id"]: row["why"] for row in plan["jobs"]}
    assert all(whys[job].startswith(f"only in {name} then; ") for job, (_, name) in elsewhere.items())
    assert {job for change in plan["changes"] for job in change["jobs"]} == fates.keys()
    unseen = box.apply(site, check=False)
    assert (unseen.code, f"jobs are disturbed: {len(named)}" in unseen.stderr) == (2, True)
    box.apply(site, "--yes")
    for held in (job for job in cluster.jobs("dl2") if job.reason == "JobHeldUser"):
        cluster.inside("scontrol", "release", str(held.id))
    cluster.inside("scontrol", "update", f"node={nodes}", "state=resume")
    starting = {**fits, **may, **{job: user for job, (user, _) in elsewhere.items()}}
    until(lambda: all(cluster.job(job, user).state == "RUNNING" for job, user in starting.items()), 60)
    found = {job: cluster.job(job, user).partition for job, (user, _) in elsewhere.items()}
    assert found == {job: partition for job, (_, partition) in elsewhere.items()}
    foretold = {job: reason for job, (_, reason) in never.items()}
    seen: dict[int, str] = {}

    def told() -> bool:
        seen.update({job: cluster.job(job, user).reason for job, (user, _) in never.items()})
        return seen == foretold

    with suppress(AssertionError):  # what differs tells more
        until(told)
    assert seen == foretold


def tighter(text: str) -> str:
    """A limit on a department's memory, one on a job's memory on a node, and nodes with less of it."""
    for before, after in (
        ("    capacity: reserved\n", "    capacity: reserved\n    parameters: {RealMemory: '5000'}\n"),
        (CV_LIMITS, f"{CV_LIMITS}, memory_mib: 150"),
        (
            "      default_time: 04:00:00\n",
            "      default_time: 04:00:00\n      parameters: {MaxMemPerNode: '500'}\n",
        ),
    ):
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    return text


@pytest.mark.slow
def test_jobs_above_a_lower_limit_on_memory_are_named_however_they_ask_for_it(box: Applied) -> None:
    """Cores have two CPUs: squeue shows a job of one alike, whether it takes 100 MiB there or 200."""
    cluster = box.cluster
    nodes = ",".join(f"reserved-{number}" for number in (1, 2))
    cluster.inside("scontrol", "update", f"node={nodes}", "state=drain", "reason=test")

    def waiting(user: str, *words: str) -> int:
        partition = user.rstrip("12")
        options = (f"--partition={partition}", "--qos=medium", "--time=10", *words)
        return cluster.submit(user, *options, "--wrap=sleep 600")

    never = {
        waiting("cv2", "-n1", "--mem-per-cpu=100"): ("cv2", "AssocGrpMemLimit"),
        waiting("cv2", "-n1", "--mem-per-cpu=10", "--exclusive"): ("cv2", "AssocGrpMemLimit"),
        waiting("cv2", "--gpus=1", "--cpus-per-gpu=12", "--mem-per-cpu=20"): ("cv2", "AssocGrpMemLimit"),
        waiting("cv2", "--gpus=1", "--mem-per-gpu=20", "--exclusive"): ("cv2", "AssocGrpMemLimit"),
        waiting("cv2", "-n2", "--mem=200"): ("cv2", "AssocGrpMemLimit"),
        waiting("nlp1", "-n1", "--mem=501"): ("nlp1", "MaxMemPerLimit"),
        waiting("dl1", "-n1", "--mem=5001"): ("dl1", "BadConstraints"),
    }
    if cluster.sandbox.running().slurm >= "24":  # 22.05 starts it
        never[waiting("dl1", "-n1", "--mem-per-cpu=2501")] = ("dl1", "BadConstraints")
    fits = {
        waiting("cv1", "-n1", "--mem=100"): "cv1",
        waiting("cv1", "-n1", "--mem-per-cpu=50", "--hint=nomultithread"): "cv1",
        waiting("nlp2", "-n1", "--mem=500"): "nlp2",
        waiting("dl2", "-n1", "--mem=4300"): "dl2",
    }
    try:
        comes_as_foretold(box, tighter(box.base), nodes, never, fits)
    finally:
        cluster.inside("scontrol", "update", f"node={nodes}", "state=resume", check=False)
        cancel(cluster, "nlp1", "nlp2", "cv1", "cv2", "dl1", "dl2")


def other_terms(text: str) -> str:
    """Less memory on a node, less with each CPU, more by default; and limits on the CPUs of a job."""
    for before, after in (
        (
            "      default_time: 04:00:00\n",
            "      default_time: 04:00:00\n      parameters: {MaxMemPerNode: '12000'}\n",
        ),
        (
            "      max_time: 3-00:00:00\n",
            "      max_time: 3-00:00:00\n      parameters: {MaxMemPerCPU: '1000'}\n",
        ),
        (CV_LIMITS, f"{CV_LIMITS}, cpus_per_job: 130"),
        (DL_PARTITION, f"{DL_PARTITION}, memory_mib_per_cpu: 100000"),
        ("    fair_share: 25\n", "    fair_share: 25\n    limits: {cpus_per_job: 20}\n"),
    ):
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    return text


@pytest.mark.long
def test_jobs_to_which_their_partition_gives_more_are_named(box: Applied) -> None:
    """Whole nodes and CPUs by their memory, CPUs for memory, defaults that change, CPUs of held jobs."""
    cluster = box.cluster
    nodes = ",".join(f"reserved-{number}" for number in (1, 2))
    cluster.inside("scontrol", "update", f"node={nodes}", "state=drain", "reason=test")

    def waiting(user: str, *words: str) -> int:
        options = (f"--partition={user.rstrip('12')}", "--qos=medium", "--time=10", *words)
        return cluster.submit(user, *options, "--wrap=sleep 600")

    never = {
        waiting("nlp1", "-n1", "-c8", "--mem-per-cpu=2000"): ("nlp1", "MaxMemPerLimit"),
        waiting("nlp1", "-n1", "--exclusive", "--mem-per-cpu=1000"): ("nlp1", "MaxMemPerLimit"),
        waiting("nlp1", "-N1", "-n8", "--mem-per-cpu=2000"): ("nlp1", "MaxMemPerLimit"),
        waiting("cv1", "-N2", "-n2", "--mem-per-cpu=70000"): ("cv1", "AssocMaxCpuPerJobLimit"),
        waiting("cv1", "-n1", "-c30", "--mem-per-cpu=4000"): ("cv1", "BadConstraints"),
        waiting("dl1", "-N1", "-n12"): ("dl1", "BadConstraints"),
        waiting("dl2", "-H", "--gpus=2", "--mem=100"): ("dl2", "AssocMaxCpuPerJobLimit"),
    }
    fits = {
        waiting("nlp2", "-n1", "-c4", "--mem-per-cpu=2000"): "nlp2",
        waiting("cv2", "-n1", "--mem-per-cpu=4000"): "cv2",
        waiting("dl2", "-n12", "--mem-per-cpu=100"): "dl2",
    }
    may = {
        waiting("nlp2", "-n8", "--mem-per-cpu=2000"): "nlp2",  # as -N1 -n8 in every column
        waiting("dl2", "-H", "--gpus=2", "-c1", "--mem=100"): "dl2",  # as without -c1
        waiting("dl1", "-n12"): "dl1",
    }
    try:
        comes_as_foretold(box, other_terms(box.base), nodes, never, fits, may)
    finally:
        cluster.inside("scontrol", "update", f"node={nodes}", "state=resume", check=False)
        cancel(cluster, "nlp1", "nlp2", "cv1", "cv2", "dl1", "dl2")


def with_quick(text: str, of_quick: str, of_nlp: str = "") -> str:
    """A partition for all beside the departments' own ones, each with its terms."""
    quick = f"  - {{name: quick, node_groups: [reserved], departments: all{of_quick}}}\n"
    for before, after in (
        ("\ntiers:\n", f"\npartitions:\n{quick}\ntiers:\n"),
        ("      default_time: 04:00:00\n", f"      default_time: 04:00:00\n{of_nlp}"),
        (CV_LIMITS, f"{CV_LIMITS}, cpus_per_job: 6"),
    ):
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    return text


@pytest.mark.long
def test_jobs_that_named_several_partitions_start_where_it_was_foretold(box: Applied) -> None:
    """One partition's default grows beyond its nodes, and it gives CPUs for memory: the other one is left."""
    cluster = box.cluster
    box.apply(with_quick(box.base, ", memory_mib_per_cpu: 2000"), "--yes")
    nodes = ",".join(f"reserved-{number}" for number in (1, 2))
    cluster.inside("scontrol", "update", f"node={nodes}", "state=drain", "reason=test")

    def waiting(user: str, partitions: str, *words: str) -> int:
        options = (f"--partition={partitions}", "--qos=medium", "--time=10", *words)
        return cluster.submit(user, *options, "--wrap=sleep 600")

    huge = "memory_mib_per_cpu: 2000000"
    never = {
        waiting("nlp1", "nlp,quick", "-c2"): ("nlp1", "BadConstraints"),
        waiting("cv1", "quick", "-n1", "--mem-per-cpu=8000"): ("cv1", "AssocMaxCpuPerJobLimit"),
        waiting("dl1", "quick", "-c2"): ("dl1", "BadConstraints"),
    }
    elsewhere = {
        waiting("cv1", "cv,quick", "-n1", "--mem-per-cpu=8000"): ("cv1", "cv"),
        waiting("cv2", "quick,cv", "-n1", "--mem=8000"): ("cv2", "cv"),
        waiting("dl1", "quick,dl", "-c2"): ("dl1", "dl"),
        waiting("dl2", "dl,quick", "--gpus=1"): ("dl2", "dl"),
    }
    fits = {waiting("nlp2", "nlp,quick", "-n1", "--mem=100"): "nlp2"}
    tight = with_quick(box.base, f", {huge}, parameters: {{MaxMemPerCPU: '1000'}}", f"      {huge}\n")
    try:
        comes_as_foretold(box, tight, nodes, never, fits, elsewhere=elsewhere)
    finally:
        cluster.inside("scontrol", "update", f"node={nodes}", "state=resume", check=False)
        cancel(cluster, "nlp1", "nlp2", "cv1", "cv2", "dl1", "dl2")
