"""What every SlurmAdministration keeps, on the real daemons of the release that is installed here.

pyslurm must be built for that release, and is skipped where it is not; docs/decisions/0065 says where it was
run, and how.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import pytest

from hpctools.errors import CommandError, NotAllowedError, ReleaseError, UnreachableError, UsageError
from hpctools.slurm.accounting import JobRecord, read_jobs
from hpctools.slurm.choose import choose
from hpctools.slurm.cli import CommandClient
from hpctools.slurm.client import SlurmAdministration
from hpctools.slurm.native import NativeClient
from hpctools.slurm.parse import unfold
from hpctools.slurm.run import run
from hpctools.slurm.types import Job, Node, Partition, PastJob
from tests.slurm.private_cluster import PrivateCluster, private_cluster, until

pytestmark = [pytest.mark.system, pytest.mark.timeout(110)]

NOBODY = 65534
ODD = "a=b [x@y] Reason=not: 100%, 'q' \"d\" \\ é"


@pytest.fixture(scope="module")
def cluster() -> Iterator[PrivateCluster]:
    """One cluster for all; in a folder that other users may enter."""
    folder = Path(tempfile.mkdtemp(prefix="hpctools-contract-"))
    folder.chmod(0o755)
    try:
        with private_cluster(folder) as running, pytest.MonkeyPatch.context() as patch:
            for name, value in running.environment().items():
                patch.setenv(name, value)
            yield running
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module", params=["commands", "pyslurm"])
def client(request: pytest.FixtureRequest, cluster: PrivateCluster) -> SlurmAdministration:
    try:
        return choose(request.param, {"SLURM_CONF": str(cluster.conf)}).client
    except ReleaseError as error:
        pytest.skip(error.message)


@pytest.fixture
def script(cluster: PrivateCluster) -> Path:
    path = cluster.folder / "job.sh"
    path.write_text("#!/bin/sh\nexec sleep 600\n")
    return path


@contextmanager
def queued(client: SlurmAdministration, script: Path, *options: str) -> Iterator[int]:
    """A job that is cancelled, and gone from its nodes, afterwards."""
    job_id = client.submit([f"--output={os.devnull}", *options], script)
    try:
        yield job_id
    finally:
        client.cancel([job_id])
        until(lambda: states(client, job_id) == ["CANCELLED"], "end of the job")


def reason(client: SlurmAdministration, job_id: int) -> str:
    return next(job.reason for job in client.jobs(ids=[job_id]))


def states(client: SlurmAdministration, job_id: int) -> list[str]:
    return [job.state for job in client.jobs(ids=[job_id])]


def until_state(client: SlurmAdministration, job_id: int, state: str) -> Job:
    until(lambda: states(client, job_id) == [state], state)
    return client.jobs(ids=[job_id])[0]


def test_a_running_job_is_known_in_every_detail(client: SlurmAdministration, script: Path) -> None:
    before = int(time.time())
    options = ["--nodelist=n1", "--gres=gpu:1", "--job-name=odd|na me", f"--comment={ODD}", "--time=90"]
    with queued(client, script, *options) as job_id:
        job = until_state(client, job_id, "RUNNING")
    assert job.submitted is not None
    assert job.started is not None
    assert before <= job.submitted <= job.started <= time.time()
    assert job == Job(
        id=job_id,
        name="odd|na me",
        user="root",
        account="root",
        partition="all",
        qos="normal",
        state="RUNNING",
        reason="None",
        nodes=("n1",),
        comment=ODD,
        submitted=job.submitted,
        started=job.started,
        time_limit=90,
    )


def test_a_pending_job_has_a_reason_and_neither_start_nor_nodes(
    client: SlurmAdministration, script: Path
) -> None:
    with queued(client, script, "--hold") as job_id:
        job = until_state(client, job_id, "PENDING")
    assert (job.reason, job.started, job.nodes) == ("JobHeldUser", None, ())
    assert (job.comment, job.time_limit) == ("", 24 * 60)


def test_jobs_are_found_by_id_user_and_node(client: SlurmAdministration, script: Path) -> None:
    with queued(client, script, "--nodelist=n2") as running, queued(client, script, "--hold") as held:
        until_state(client, running, "RUNNING")
        both = [job.id for job in client.jobs(ids=[held, running, 999_999])]
        on_n2 = [job.id for job in client.jobs(nodes=["n2"]) if job.state == "RUNNING"]
        assert both == [running, held]
        assert on_n2 == [running]
        assert [job.id for job in client.jobs(nodes=["n1"]) if job.state == "RUNNING"] == []
        assert {running, held} <= {job.id for job in client.jobs(user="root")}
    assert client.jobs(ids=[999_999]) == []
    assert client.jobs(user="nobody") == []


def test_a_job_can_be_cancelled_twice_and_a_bad_one_is_refused(
    client: SlurmAdministration, script: Path
) -> None:
    with queued(client, script) as job_id:
        client.cancel([job_id])
        client.cancel([job_id])
        client.cancel([])
    with pytest.raises(CommandError, match=r"(?i)invalid partition"):
        client.submit(["--partition=none"], script)


def test_a_jobs_limit_is_lowered_and_one_that_has_ended_is_no_error(
    client: SlurmAdministration, script: Path
) -> None:
    assert isinstance(client, CommandClient | NativeClient)
    with queued(client, script, "--time=60") as job_id:
        client.shorten(job_id, 7)
        assert [job.time_limit for job in client.jobs(ids=[job_id])] == [7]
        client.cancel([job_id])
        until(lambda: states(client, job_id) == ["CANCELLED"], "end of the job")
        client.shorten(job_id, 5)
    client.shorten(99_999, 5)


def test_what_jobs_wait_for_is_told_and_changed_and_a_job_that_has_begun_is_no_error(
    client: SlurmAdministration, script: Path
) -> None:
    assert isinstance(client, CommandClient | NativeClient)
    with queued(client, script, "--hold") as old, queued(client, script, "--hold") as new:
        waits = f"afterok:{old},after:{old}+5,afterany:{old}:{new}"
        with queued(client, script, f"--dependency={waits}") as job_id:
            told = client.dependencies("root")
            assert told.keys() == {job_id}
            # Slurm writes each job by itself, and the other way round is the same.
            assert set(told[job_id].split(",")) == {
                f"afterok:{old}",
                f"after:{old}+5",
                f"afterany:{old}",
                f"afterany:{new}",
            }
            client.depend(job_id, f"afterok:{new}")
            assert client.dependencies("root") == {job_id: f"afterok:{new}"}
            client.depend(job_id, "")
            assert client.dependencies("root") == {}
        assert client.dependencies("nobody") == {}
    client.depend(job_id, f"afterok:{new}")
    client.depend(99_999, "")


def test_a_job_that_can_never_begin_begins_when_it_waits_for_another(
    client: SlurmAdministration, script: Path
) -> None:
    """What a lost baseline job leaves behind: `DependencyNeverSatisfied`, until the next one is named."""
    assert isinstance(client, CommandClient | NativeClient)
    with (
        queued(client, script, "--hold") as old,
        queued(client, script, "--hold") as new,
        queued(client, script, f"--dependency=afterok:{old}") as job_id,
    ):
        client.cancel([old])
        until(lambda: reason(client, job_id) == "DependencyNeverSatisfied", "the old one's end")
        assert client.dependencies("root") == {job_id: f"afterok:{old}"}
        client.depend(job_id, f"afterok:{new}")
        until(lambda: reason(client, job_id) == "Dependency", "another reason")
        client.depend(job_id, "")
        until_state(client, job_id, "RUNNING")


def test_a_job_that_waits_is_kept_off_nodes_and_one_that_has_its_nodes_is_no_error(
    client: SlurmAdministration, script: Path
) -> None:
    assert isinstance(client, CommandClient | NativeClient)
    with queued(client, script, "--hold", "--exclude=n1") as job_id:
        client.exclude(job_id, ["n2"])
        client.exclude(job_id, ["n1", "n2"])
        said = run(["scontrol", "--oneliner", "show", "job", str(job_id)], timeout=30).stdout
        assert [unfold(each) for each in re.findall(r" ExcNodeList=(\S+)", said)] == [("n1", "n2")]
        client.exclude(job_id, [])
        said = run(["scontrol", "--oneliner", "show", "job", str(job_id)], timeout=30).stdout
        assert re.findall(r" ExcNodeList=(\S+)", said) in ([], ["(null)"])
    client.exclude(job_id, ["n1"])
    with queued(client, script, "--nodelist=n2") as job_id:
        until_state(client, job_id, "RUNNING")
        client.exclude(job_id, ["n2"])
        assert states(client, job_id) == ["RUNNING"]
    client.exclude(99_999, ["n1"])
    with queued(client, script, "--hold") as job_id, pytest.raises(CommandError, match=r"(?i)invalid node"):
        client.exclude(job_id, ["nowhere"])


def test_partitions(client: SlurmAdministration) -> None:
    assert client.partitions() == [
        Partition("all", 2, None, True, "UP", ("n1", "n2")),
        Partition(
            *("small", 1, 1, False, "DRAIN", ("n2",), ("root",), ("normal",)),
            exclusive=True,
            submit_hosts=("login-1", "login-2"),
        ),
    ]


def test_nodes(client: SlurmAdministration, cluster: PrivateCluster) -> None:
    release = cluster.ask("scontrol", "--version").stdout.split()[-1]
    until(lambda: {node.state for node in client.nodes()} == {"IDLE"}, "idle nodes")
    common = {"cpus": 4, "memory_mb": 1000, "address": "127.0.0.1", "version": release}
    assert client.nodes() == [
        Node("n1", "IDLE", gres={"gpu:a100": 2}, features=("fast",), partitions=("all",), **common),
        Node("n2", "IDLE", partitions=("all", "small"), **common),
    ]


def test_some_nodes(client: SlurmAdministration) -> None:
    assert sorted(node.name for node in client.nodes(["n2", "n1"])) == ["n1", "n2"]
    assert [node.name for node in client.nodes(["n2"])] == ["n2"]
    assert [node.name for node in client.nodes(["n9", "n1"])] == ["n1"], "n9 is none"
    assert client.nodes(["n9"]) == []


def test_the_state_of_a_node_follows_its_jobs(client: SlurmAdministration, script: Path) -> None:
    with queued(client, script, "--nodelist=n1") as job_id:
        until_state(client, job_id, "RUNNING")
        assert by_name(client)["n1"].state == "MIXED"
    with queued(client, script, "--nodelist=n1", "--exclusive") as job_id:
        until_state(client, job_id, "RUNNING")
        assert by_name(client)["n1"].state == "ALLOCATED"


def test_nodes_are_drained_with_a_reason_and_resumed(client: SlurmAdministration) -> None:
    client.update_nodes(["n1", "n2"], "drain", ODD)
    found = client.nodes()
    assert [(node.state, node.flags, node.reason) for node in found] == [("IDLE", ("DRAIN",), ODD)] * 2
    client.update_nodes(["n1"], "resume")
    client.update_nodes(["n2"], "undrain")
    until(lambda: [(node.state, node.flags) for node in client.nodes()] == [("IDLE", ())] * 2, "idle nodes")
    client.update_nodes([], "down", "nobody")
    client.update_nodes(["n2"], "down", "for a test")
    assert (by_name(client)["n2"].state, by_name(client)["n1"].state) == ("DOWN", "IDLE")
    client.update_nodes(["n2"], "resume")
    until(lambda: (by_name(client)["n2"].state, by_name(client)["n2"].flags) == ("IDLE", ()), "idle node")


def by_name(client: SlurmAdministration) -> dict[str, Node]:
    return {node.name: node for node in client.nodes()}


@pytest.mark.parametrize(
    ("state", "reason", "words"),
    [
        ("drain", "", "drain needs a reason"),
        ("down", "two\nlines", "is not one line"),
        ("happy", "why not", "use one of: drain, resume"),
        ("resume reason=x", "", "use one of"),
    ],
)
def test_what_is_no_change_of_a_node_is_a_mistake_of_the_caller(
    client: SlurmAdministration, state: str, reason: str, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        client.update_nodes(["n1"], state, reason)


def test_a_node_that_does_not_exist_is_refused(client: SlurmAdministration) -> None:
    with pytest.raises(CommandError, match=r"(?i)invalid node name"):
        client.update_nodes(["n9"], "drain", "no such node")


def test_who_is_no_operator_may_look_and_not_touch(client: SlurmAdministration) -> None:
    os.seteuid(NOBODY)
    try:
        assert len(client.nodes()) == 2
        assert [partition.name for partition in client.partitions()] == ["all", "small"]
        with pytest.raises(NotAllowedError, match="does not allow"):
            client.update_nodes(["n1"], "drain", "mine")
    finally:
        os.seteuid(0)


def test_configuration(client: SlurmAdministration, cluster: PrivateCluster) -> None:
    found = client.config()
    assert found["ClusterName"] == "contract"
    assert found["SLURM_CONF"] == str(cluster.conf)
    assert found["AccountingStoreFlags"] == "job_comment"
    assert found["SLURM_VERSION"] == cluster.ask("scontrol", "--version").stdout.split()[-1]


def test_slurmdbd_remembers_a_job(client: SlurmAdministration, script: Path) -> None:
    with queued(client, script, "--nodelist=n1") as job_id:
        until_state(client, job_id, "RUNNING")
        running = remembered(client, job_id, lambda job: job.start is not None)
    ended = remembered(client, job_id, lambda job: job.end is not None)
    assert (running.state, running.end) == ("RUNNING", None)
    assert ended == PastJob(
        cluster="contract",
        dbindex=running.dbindex,
        id=job_id,
        user="root",
        account="root",
        partition="all",
        qos="normal",
        state="CANCELLED",
        submitted=running.submitted,
        start=running.start,
        end=ended.end,
        nodes=("n1",),
    )
    assert ended.start is not None
    assert ended.end is not None
    assert ended.submitted <= ended.start <= ended.end <= time.time()


def test_what_never_ran_is_remembered_without_nodes(client: SlurmAdministration, script: Path) -> None:
    # A held job is never eligible to run, and slurmdbd's spans are of eligible jobs.
    with queued(client, script, "--exclusive", "--nodes=2") as first:
        until_state(client, first, "RUNNING")
        with queued(client, script) as job_id:
            until_state(client, job_id, "PENDING")
    job = remembered(client, job_id, lambda job: job.end is not None)
    assert (job.state, job.start, job.nodes) == ("CANCELLED", None, ())


def remembered(client, job_id, enough) -> PastJob:
    today = datetime.now(timezone.utc).date()
    found: list[PastJob] = []

    def there() -> bool:
        found[:] = [job for job in span(client, today) if job.id == job_id and enough(job)]
        return bool(found)

    until(there, f"job {job_id} in slurmdbd")
    return found[0]


def span(client: SlurmAdministration, today: date, **only) -> list[PastJob]:
    return client.past_jobs(today - timedelta(days=1), today + timedelta(days=1), **only)


def test_only_the_asked_for_people_and_days(client: SlurmAdministration, script: Path) -> None:
    with queued(client, script) as job_id:
        remembered(client, job_id, lambda job: True)
    today = datetime.now(timezone.utc).date()
    everybody = span(client, today)
    assert everybody == sorted(everybody, key=lambda job: (job.cluster, job.dbindex))
    assert span(client, today, users=["root"]) == everybody != []
    assert span(client, today, users=["nobody"]) == []
    assert client.past_jobs(today - timedelta(days=9), today - timedelta(days=5)) == []


def test_silence_is_told_apart_from_a_refusal(client: SlurmAdministration, cluster: PrivateCluster) -> None:
    """Each of the two daemons in turn; afterwards both are back."""
    today = datetime.now(timezone.utc).date()
    cluster.stop("slurmctld")
    try:
        for ask in (client.jobs, client.nodes):
            with pytest.raises(UnreachableError, match="controller does not answer") as caught:
                ask()
            assert "scontrol ping" in caught.value.remedy
    finally:
        cluster.start("slurmctld", "slurmctld", "-D")
        cluster.answers("slurmctld", "scontrol", "ping")
    cluster.stop("slurmdbd")
    try:
        with pytest.raises(UnreachableError, match="slurmdbd does not answer"):
            client.past_jobs(today, today + timedelta(days=1))
    finally:
        cluster.start("slurmdbd", "slurmdbd", "-D")
        cluster.answers("slurmdbd", "sacctmgr", "-n", "show", "cluster")


def test_the_budget_reads_names_and_runs_and_no_line_that_a_user_wrote(
    cluster: PrivateCluster, script: Path
) -> None:
    """Two tasks of an array, a job of an elastic run, and one whose comment looks like another's job."""
    times = "2026-11-21T12:00:00|2026-11-21T12:00:05|Unknown|00:00"
    record = f"999|contract|77|root|root|all|normal|{times}|RUNNING|||"
    options = {"array": "--array=0-1", "run": "--comment=hp-run:train-1a", "forged": f"--comment=x\n{record}"}
    ids = {name: int(submit(cluster, script, option)) for name, option in options.items()}
    until(lambda: len(kept(lambda job: job.start is not None)) == 4, "four jobs in slurmdbd")
    cluster.ask("scancel", *map(str, ids.values()))
    until(lambda: len(kept(lambda job: job.end is not None)) == 4, "the end of four jobs in slurmdbd")
    jobs = kept(lambda job: True)
    array = ids["array"]
    told = sorted((job.name, job.run) for job in jobs)
    assert told == [("", ""), ("", "train-1a"), (f"{array}_0", ""), (f"{array}_1", "")]
    assert 999 not in {job.job_id for job in jobs}


def kept(wanted: Callable[[JobRecord], bool]) -> list[JobRecord]:
    """What slurmdbd has of jobs of 10 MB, as the budget reads it."""
    today = datetime.now(timezone.utc).date()
    jobs = read_jobs(today - timedelta(days=1), today + timedelta(days=1))
    return [job for job in jobs if job.memory_mb == 10 and wanted(job)]


def submit(cluster: PrivateCluster, script: Path, option: str) -> str:
    words = ("sbatch", "--parsable", f"--output={os.devnull}", "--mem=10", option, str(script))
    return cluster.ask(*words).stdout
