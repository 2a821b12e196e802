"""The sandbox on the real daemons: several at once, healed, and gone without a trace."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpctools import site
from hpctools.errors import CommandTimeout, SandboxError
from hpctools.sandbox import blueprint, cgroups, files, namespace, ports, process, record, unix
from hpctools.sandbox.cluster import Sandbox
from hpctools.sandbox.fall import down
from hpctools.sandbox.rise import up
from hpctools.sandbox.status import status
from hpctools.slurm import run
from tests.system.harness import Cluster, cluster_of, until


def heal(cluster: Cluster, site_file: Path, nodes: int) -> list[str]:
    """`up` again; what it had to do."""
    done: list[str] = []
    up(cluster.sandbox, site_file, nodes, lambda name, seconds: done.append(name))
    return sorted(done)


@pytest.fixture(scope="module")
def broken(
    tmp_path_factory: pytest.TempPathFactory, site_file: Path, slurm_release: str
) -> Iterator[Cluster]:
    """Two nodes, to break and heal again."""
    with cluster_of(tmp_path_factory.mktemp("broken"), site_file, 2, slurm_release) as cluster:
        yield cluster


@pytest.mark.releases
def test_up_twice_does_nothing_twice(cluster: Cluster, site_file: Path) -> None:
    before = cluster.sandbox.running()
    assert heal(cluster, site_file, 6) == []
    assert cluster.sandbox.running() == before


@pytest.mark.releases
def test_status_names_every_daemon(cluster: Cluster) -> None:
    found = status(cluster.sandbox)
    assert found.state == "running"
    assert [d.name for d in found.daemons] == [
        *("munged", "mariadb", "slurmdbd", "slurmctld"),
        *(f"slurmd-reserved-{n}" for n in range(1, 5)),
        *("slurmd-shared-1", "slurmd-shared-2", "sshd-login-1", "sshd-login-2", "moto", "api"),
    ]
    assert all(d.since and d.pid for d in found.daemons)
    assert {name for name, _ in found.nodes} == {
        *(f"reserved-{n}" for n in range(1, 5)),
        "shared-1",
        "shared-2",
    }


@pytest.mark.releases
def test_jobs_run_under_the_uid_of_their_owner_on_hosts_of_their_own(cluster: Cluster) -> None:
    job = cluster.submit(
        "nlp1", "-pnlp", "-N2", "--output=/home/nlp1/who.txt", "--wrap", "srun sh -c 'id -un; hostname'"
    )
    nodes = cluster.ended(job, "nlp1").nodes
    assert sorted((cluster.home("nlp1") / "who.txt").read_text().split()) == sorted(["nlp1", "nlp1", *nodes])


@pytest.mark.releases
def test_a_job_reaches_its_own_gpus_and_no_others(cluster: Cluster) -> None:
    opened = '(: <"/dev/nvidia$i") 2>&1 | grep -o "No such device\\|not permitted"'
    script = f'for i in 0 1 2 3; do {opened}; done; echo "$CUDA_VISIBLE_DEVICES"'
    words = ["-pcv", "--gpus=2", "--constraint=reserved", "--output=/home/cv1/gpus.txt", "--wrap", script]
    cluster.ended(cluster.submit("cv1", *words), "cv1")
    assert (cluster.home("cv1") / "gpus.txt").read_text().splitlines() == [
        *("No such device", "No such device"),  # the device node may be opened; no driver answers
        *("not permitted", "not permitted"),
        "0,1",
    ]


@pytest.mark.releases
def test_people_log_in_over_ssh_and_see_the_cluster(cluster: Cluster) -> None:
    port = cluster.sandbox.running().ports["sshd-login-2"]
    options = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
    argv = ["ssh", "-i", str(cluster.sandbox.layout.key), "-p", str(port), *options, "dl1@127.0.0.1"]
    seen = run.run(
        [*argv, "hostname; id -un; sinfo -h -o %P | sort; which hp-submit"], timeout=30
    ).stdout.split()
    assert seen[:5] == ["login-2", "dl1", "cv", "dl", "nlp"]
    assert seen[5].endswith("/hp-submit")


@pytest.mark.releases
def test_accounts_of_the_site_are_in_slurmdbd(cluster: Cluster) -> None:
    text = cluster.inside("sacctmgr", "-nP", "show", "assoc", "format=account,parentname").stdout
    parents = {account: parent for account, parent in (line.split("|") for line in text.split()) if parent}
    assert parents == {
        "nlp": "root",
        "cv": "root",
        "dl": "root",
        "nlp-lab-a": "nlp",
        "nlp-lab-b": "nlp",
        "cv-lab-a": "cv",
        "dl-lab-a": "dl",
    }


@pytest.mark.releases
def test_nothing_of_the_machine_is_touched(cluster: Cluster) -> None:
    assert "nlp1" not in Path("/etc/passwd").read_text()
    assert not Path("/home/nlp1").exists()
    assert not Path("/etc/slurm/slurm.conf").exists()
    assert not Path("/run/munge/munge.socket.2").exists()


def test_what_root_writes_at_home_stays_inside(cluster: Cluster) -> None:
    """A shell's history, and the token of the demo's login node, stayed on the machine after `down`."""
    cluster.inside("sh", "-c", "echo secret >~/.hpctools-kept && echo secret >/root/hpctools-kept")
    assert cluster.inside("pwd").stdout == "/\n"
    assert not [place for place in ("/.hpctools-kept", "/root/hpctools-kept") if Path(place).exists()]
    assert sorted(path.name for path in (cluster.sandbox.layout.tree / "root").glob("*kept")) == [
        *(".hpctools-kept", "hpctools-kept")
    ]


def test_an_unknown_account_or_host_is_named(cluster: Cluster) -> None:
    with pytest.raises(SandboxError, match=r"no Unix account 'nobody1'; its people are: .*nlp1"):
        cluster.inside("true", user="nobody1")
    with pytest.raises(SandboxError, match=r"host 'gpu-9' does not run .* login-1"):
        cluster.inside("true", host="gpu-9")


def test_another_site_or_size_is_refused(cluster: Cluster, site_file: Path) -> None:
    with pytest.raises(SandboxError, match="another site file or number of nodes"):
        heal(cluster, site_file, 3)


def test_a_folder_with_strangers_is_not_taken(tmp_path: Path, site_file: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(SandboxError, match="not empty and not a sandbox"):
        up(Sandbox(tmp_path), site_file, 1, lambda name, seconds: None)
    assert down(Sandbox(tmp_path)) is False
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


@pytest.mark.releases(all="long")
@pytest.mark.slow
def test_up_heals_whatever_daemon_was_killed(broken: Cluster, site_file: Path) -> None:
    for name in [d.name for d in status(broken.sandbox).daemons]:
        identity = broken.sandbox.running().processes[name]
        assert process.send(identity, signal.SIGKILL)
        assert process.wait_gone(identity, 10)
        assert status(broken.sandbox).state == "damaged"
        assert name in heal(broken, site_file, 2), name
        assert status(broken.sandbox).state == "running", name
    job = broken.submit("nlp1", "-pnlp", "--wrap", "true")
    assert broken.ended(job, "nlp1").state == "COMPLETED"


@pytest.mark.releases(all="long")
@pytest.mark.slow
def test_up_heals_when_everything_was_killed_and_accounting_survives(
    broken: Cluster, site_file: Path
) -> None:
    job = broken.submit("nlp1", "-pnlp", "--job-name=before", "--wrap", "true")
    broken.ended(job, "nlp1")
    before = until(lambda: _whole_record(broken, job))
    holder = broken.sandbox.running().holder
    assert holder is not None
    process.send(holder, signal.SIGKILL)
    assert process.wait_gone(holder, 10)
    heal(broken, site_file, 2)
    assert _accounted(broken, job) == before


def _whole_record(cluster: Cluster, job: int) -> str | None:
    """What is known of a job once its end is; its state may come a moment before."""
    seen = _accounted(cluster, job)
    return seen if "before|COMPLETED" in seen and "Unknown" not in seen else None


def _accounted(cluster: Cluster, job: int) -> str:
    fields = "jobid,user,account,jobname,state,start,end,alloctres"
    return cluster.inside("sacct", "-nPXj", str(job), f"--format={fields}").stdout


@pytest.mark.releases(all="long")
@pytest.mark.slow
def test_two_sandboxes_do_not_meet_and_down_leaves_nothing(
    broken: Cluster, tmp_path: Path, site_file: Path, request: pytest.FixtureRequest
) -> None:
    other = Sandbox(tmp_path / "other")
    request.addfinalizer(lambda: down(other))
    up(other, site_file, 1, lambda name, seconds: None)
    mine, theirs = broken.sandbox.running(), other.running()
    assert not set(mine.ports.values()) & set(theirs.ports.values())
    sleeper = broken.submit("nlp1", "-pnlp", "--wrap", "sleep 300")
    until(lambda: broken.job(sleeper, "nlp1").state == "RUNNING" or None)
    members = _members(theirs.holder)
    assert down(other) is True
    assert [pid for pid in members if process.identify(pid)] == []
    assert not (tmp_path / "other").exists()
    assert not (tmp_path / "other.lock").exists()
    assert not list(cgroups.ROOT.glob(f"*/{theirs.id}"))
    assert status(broken.sandbox).state == "running"
    assert broken.job(sleeper, "nlp1").state == "RUNNING"
    assert down(other) is False


def _members(holder: process.Identity | None) -> list[int]:
    """Every process of the holder's pid namespace, by the machine's pids."""
    assert holder is not None
    space = Path(f"/proc/{holder.pid}/ns/pid").readlink()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "ns" / "pid").readlink() == space:
                    found.append(int(entry.name))
            except OSError:  # it has ended, or may not be looked at
                continue
    assert len(found) > 10
    return found


def test_the_command_line(cluster: Cluster) -> None:
    here = [sys.executable, "-m", "hpctools.cli.main", "sandbox", "--state", str(cluster.sandbox.layout.root)]
    seen = json.loads(run.run([*here, "status", "--json"], timeout=30).stdout)
    assert (seen["state"], len(seen["daemons"])) == ("running", 14)
    assert run.run([*here, "exec", "--user", "cv1", "--", "id", "-un"], timeout=30).stdout == "cv1\n"
    assert run.run([*here, "exec", "--", "sh", "-c", "exit 7"], timeout=30, check=False).code == 7
    assert "slurmctld" in run.run([*here, "logs", "slurmctld"], timeout=30).stdout
    wrong = run.run([*here, "logs", "nonsense"], timeout=30, check=False)
    assert (wrong.code, wrong.stderr.count("\n")) == (2, 1)
    nothing = run.run([*here[:4], "--state", "/nonexistent/x", "exec", "true"], timeout=30, check=False)
    assert (nothing.code, nothing.stderr.count("\n")) == (1, 1)


@pytest.mark.long
def test_an_up_that_is_killed_anywhere_is_made_good_by_the_next(tmp_path: Path, site_file: Path) -> None:
    sandbox = Sandbox(tmp_path / "state")
    command = [sys.executable, "-m", "hpctools.cli.main", "sandbox", "--state", str(sandbox.layout.root)]
    command += ["up", "--nodes", "1", "--site", str(site_file)]
    try:
        for seconds in (0.3, 0.6, 0.9, 1.3, 1.8, 2.6, 3.5):
            with pytest.raises(CommandTimeout):
                run.run(command, timeout=seconds)  # ends it with SIGKILL
        up(sandbox, site_file, 1, lambda name, seconds: None)
        assert status(sandbox).state == "running"
        once = dict.fromkeys(("munged", "mariadbd", "slurmdbd", "slurmctld", "slurmd"), 1)

        def running() -> dict[str, int]:
            programs = _programs(sandbox.running().holder)
            return {name: programs.count(name) for name in once}

        until(lambda: running() == once or None)  # an interrupted making of tables may still end
        cluster = Cluster(sandbox)
        assert cluster.ended(cluster.submit("nlp1", "-pnlp", "--wrap", "true"), "nlp1").state == "COMPLETED"
    finally:
        down(sandbox)


def _programs(holder: process.Identity | None) -> list[str]:
    found = []
    for pid in _members(holder):
        with contextlib.suppress(OSError):
            found.append(Path(f"/proc/{pid}/comm").read_text().strip())
    return found


@pytest.mark.releases
@pytest.mark.slow
def test_it_does_without_cgroups_as_on_a_machine_with_cgroup_v2(
    tmp_path: Path, site_file: Path, slurm_release: str
) -> None:
    sandbox = Sandbox(tmp_path / "state")
    try:
        up(sandbox, site_file, 2, lambda name, seconds: None, cgroup="none", slurm=slurm_release)
        cluster = Cluster(sandbox)
        words = ["-pnlp", "-N2", "--gpus-per-node=1", "--output=/home/nlp1/out.txt"]
        job = cluster.submit("nlp1", *words, "--wrap", "srun printenv CUDA_VISIBLE_DEVICES")
        assert cluster.ended(job, "nlp1").state == "COMPLETED"
        assert (cluster.home("nlp1") / "out.txt").read_text() == "0\n0\n"
        sleeper = cluster.submit("nlp1", "-pnlp", "--wrap", "sleep 300")
        until(lambda: "sleep" in _programs(sandbox.running().holder) or None)
        cluster.inside("scancel", str(sleeper))
        assert cluster.ended(sleeper, "nlp1").state == "CANCELLED"
        until(lambda: "sleep" not in _programs(sandbox.running().holder) or None)
    finally:
        down(sandbox)


def prepared(folder: Path, site_file: Path) -> Sandbox:
    """A sandbox of which there are only files."""
    sandbox = Sandbox(folder / "state")
    drawn = blueprint.draw(site.load(site_file), 1)
    sandbox.layout.root.mkdir()
    noted = record.Record("hpctools-forgotten", "", 1, "none", ports.choose(drawn.port_names()))
    record.save(sandbox.layout.record, noted)
    files.prepare(sandbox.layout, drawn, site_file.read_text())
    return sandbox


def test_namespaces_that_a_killed_up_did_not_note_are_ended(tmp_path: Path, site_file: Path) -> None:
    sandbox = prepared(tmp_path, site_file)
    holder = namespace.create(sandbox.layout, "hpctools-forgotten", "none", unix.daemon_accounts())
    assert process.alive(holder)
    assert down(sandbox) is True
    assert process.wait_gone(holder, 5)
    assert not sandbox.layout.root.exists()


def test_what_tests_bring_up_ends_with_them_when_they_are_killed(tmp_path: Path, site_file: Path) -> None:
    sandbox = prepared(tmp_path, site_file)
    told = tmp_path / "holder"
    tests = os.fork()
    if tests == 0:
        with contextlib.suppress(BaseException):
            made = namespace.create(sandbox.layout, "hpctools-forgotten", "none", unix.daemon_accounts())
            told.with_suffix(".new").write_text(str(made.pid))
            told.with_suffix(".new").rename(told)
            signal.pause()
        os._exit(1)
    until(lambda: told.exists() or None)
    holder = process.identify(int(told.read_text()))
    assert holder is not None
    os.kill(tests, signal.SIGKILL)
    os.waitpid(tests, 0)
    try:
        assert process.wait_gone(holder, 5)
    finally:
        down(sandbox)


@pytest.mark.releases
def test_what_runs_inside_ends_with_the_command_that_started_it(cluster: Cluster) -> None:
    holder = cluster.sandbox.running().holder
    started = run.start(cluster.sandbox.command(["tail", "--follow", "/dev/null"]))
    try:
        until(lambda: "tail" in _programs(holder) or None)
    finally:
        started.kill()
        started.wait(10)
    until(lambda: "tail" not in _programs(holder) or None, 5)
