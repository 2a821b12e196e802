"""From empty nodes to a job that lets its owner in: scripts, Slurm, sshd, PAM and sssd, all of them real."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from hpctools.sandbox.hosts import Host, agent, image
from hpctools.slurm.run import Completed
from tests.system.bootstrap_rig import ADMINISTRATOR, CV, NLP, STRANGER, Bootstrap, bootstrap
from tests.system.harness import until

WORKERS = ("worker-1", "worker-2", "worker-3")
LOGGED_OUT_SECONDS = 2.0
SHARED = "ip-10-77-0-[51-53]"


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bootstrap]:
    """A cluster all of whose nodes came at once, as HyperPod brings them."""
    with bootstrap(tmp_path_factory.mktemp("bootstrap")) as made:
        done = made.provision_all()
        assert {name: each.code for name, each in done.items()} == dict.fromkeys(done, 0), _tails(done)
        until(
            lambda: (
                made["controller-1"].run(["sinfo", "-h", "-p", "nlp", "-t", "idle", "-o", "%D"]).stdout
                == "3\n"
            )
        )
        yield made


def _tails(done: dict[str, Completed]) -> str:
    return "\n".join(f"{name}: {each.stdout[-600:]}" for name, each in done.items() if each.code)


@contextmanager
def job(rig: Bootstrap, user: str, worker: str, command: str = "sleep 600") -> Iterator[int]:
    """A job of somebody's that runs on a worker, submitted through a login node's sshd."""
    where = f"-p {user.rstrip('0123456789')} -w {rig[worker].machine.hostname}"
    words = f"sbatch --parsable {where} --wrap {shlex.quote(command)}"
    number = rig["login-1"].ssh(user, words).stdout.strip()
    controller = rig["controller-1"]
    until(lambda: controller.run(["squeue", "-h", "-j", number, "-o", "%T"]).stdout == "RUNNING\n")
    try:
        yield int(number)
    finally:
        controller.run(["scancel", "-f", number], check=False)
        until(lambda: not controller.run(["squeue", "-h", "-j", number], check=False).stdout)


@contextmanager
def session(host: Host, user: str) -> Iterator[subprocess.Popen[str]]:
    """Somebody logged in, who has been heard of."""
    argv = host.ssh_command(user, "echo in; exec sleep 600")
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "in\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def refused(host: Host, user: str) -> bool:
    return host.ssh(user, "true", check=False).code == 255


def test_a_job_from_a_login_node_runs_on_two_workers_with_their_gpus(rig: Bootstrap) -> None:
    words = "srun -p nlp -N2 --gpus-per-node=4 sh -c 'hostname; echo $CUDA_VISIBLE_DEVICES; id -un; pwd'"
    said = rig["login-2"].ssh("nlp1", words).stdout.split()
    assert sorted(said) == sorted(["ip-10-77-0-51", "ip-10-77-0-52", *["0,1,2,3", "nlp1", "/home/nlp1"] * 2])
    ask = ["sacct", "-nXP", "-u", "nlp1", "-o", "Account,Partition,State"]
    until(lambda: "nlp-lab|nlp|COMPLETED" in rig["controller-1"].run(ask).stdout)


def test_the_agents_keys_stay_the_agents(rig: Bootstrap) -> None:
    """Its slurm.conf has one more line, and types of GPU that its gres.conf does not know are not claimed."""
    conf = rig["controller-1"].read("/opt/slurm/etc/slurm.conf")
    assert conf == agent.slurm_conf(rig.cluster.fleet) + "Include hpctools.conf\n"
    ours = rig["controller-1"].read("/opt/slurm/etc/hpctools.conf").lower()
    owned = {line.partition("=")[0].lower() for line in conf.splitlines() if "=" in line}
    written = {line.partition("=")[0] for line in ours.splitlines() if "=" in line and line[0] != "#"}
    assert written & owned <= {"partitionname", "grestypes", "returntoservice"}


def test_who_gets_in_where_without_a_job(rig: Bootstrap) -> None:
    for name in (*WORKERS, "controller-1"):
        assert refused(rig[name], "nlp2")
    for host in rig.nodes:
        assert refused(host, STRANGER)
        assert host.ssh(ADMINISTRATOR, "whoami").stdout == "ubuntu\n"
    assert rig["login-1"].ssh("nlp2", "whoami; pwd").stdout == "nlp2\n/home/nlp2\n"


def test_with_a_job_its_owner_and_nobody_else_is_in_it(rig: Bootstrap) -> None:
    with job(rig, "nlp1", "worker-1") as number:
        groups = rig["worker-1"].ssh("nlp1", "cat /proc/self/cgroup").stdout
        assert f":freezer:/slurm_ip-10-77-0-51/uid_20001/job_{number}/step_extern" in groups
        assert refused(rig["worker-1"], "nlp2")
        assert refused(rig["worker-2"], "nlp1")


def test_ten_people_at_once_are_each_in_their_own_job(rig: Bootstrap) -> None:
    people = dict(zip((*NLP, *CV), WORKERS * 4, strict=False))
    submit = [
        [
            "login-1",
            user,
            f"sbatch --parsable -p {user[:-1]} -w {rig[worker].machine.hostname} --wrap 'sleep 600'",
        ]
        for user, worker in people.items()
    ]
    with ThreadPoolExecutor(10) as pool:
        jobs = dict(
            zip(people, pool.map(lambda each: int(rig[each[0]].ssh(*each[1:]).stdout), submit), strict=True)
        )
        until(
            lambda: rig["controller-1"].run(["squeue", "-h", "-t", "R", "-o", "%i"]).stdout.count("\n") == 10
        )
        said = pool.map(lambda user: rig[people[user]].ssh(user, "cat /proc/self/cgroup").stdout, people)
        found = dict(zip(people, said, strict=True))
    rig["controller-1"].run(["scancel", *map(str, jobs.values())])
    until(lambda: not rig["controller-1"].run(["squeue", "-h"]).stdout)
    assert [user for user in people if f"/job_{jobs[user]}/step_extern" not in found[user]] == []


def test_scancel_logs_out(rig: Bootstrap) -> None:
    with job(rig, "nlp1", "worker-1") as number, session(rig["worker-1"], "nlp1") as process:
        begin = time.monotonic()
        rig["login-1"].ssh("nlp1", f"scancel {number}")
        process.wait(10)
        assert time.monotonic() - begin < LOGGED_OUT_SECONDS
    assert refused(rig["worker-1"], "nlp1")


def test_the_end_of_a_job_logs_out(rig: Bootstrap) -> None:
    release = "until [ -e /home/nlp1/done ]; do sleep 0.05; done"
    with job(rig, "nlp1", "worker-2", release), session(rig["worker-2"], "nlp1") as process:
        begin = time.monotonic()
        rig["login-1"].ssh("nlp1", "touch done")
        process.wait(10)
        assert time.monotonic() - begin < LOGGED_OUT_SECONDS
    rig["login-1"].ssh("nlp1", "rm done")
    assert refused(rig["worker-2"], "nlp1")


def test_without_slurmd_a_worker_is_closed_but_for_administrators(rig: Bootstrap) -> None:
    worker = rig["worker-3"]
    with job(rig, "cv1", "worker-3"):
        worker.ssh("cv1", "true")
        worker.run(["systemctl", "stop", "slurmd"])
        assert refused(worker, "cv1")
        assert worker.ssh(ADMINISTRATOR, "true").code == 0
        assert rig.provision("worker-3").code == 0
        assert worker.ssh("cv1", "true").code == 0


def test_without_a_readable_slurm_conf_a_worker_is_closed_but_for_administrators(rig: Bootstrap) -> None:
    worker, conf = rig["worker-3"], "/var/spool/slurmd/conf-cache/slurm.conf"
    with job(rig, "cv1", "worker-3"):
        worker.ssh("cv1", "true")  # the job has begun there, and needs the file no more
        for damage in ("truncate -s 0", "rm"):
            worker.run(["cp", "-p", conf, "/root/slurm.conf"])
            worker.run([*damage.split(), conf])
            assert refused(worker, "cv1")
            assert worker.ssh(ADMINISTRATOR, "true").code == 0
            worker.run(["cp", "-p", "/root/slurm.conf", conf])
        assert worker.ssh("cv1", "true").code == 0


@pytest.mark.parametrize("text", ["", "{", "[]", '{"InstanceGroups": null}'])
@pytest.mark.slow
def test_with_a_damaged_resource_config_a_configured_worker_stays_as_it_is(rig: Bootstrap, text: str) -> None:
    worker = rig["worker-3"]
    whole = worker.read(image.RESOURCE_CONFIG)
    with job(rig, "cv1", "worker-3") as number:
        worker.write(image.RESOURCE_CONFIG, text)
        done = rig.provision("worker-3", check=False)
        assert done.code == 3
        assert "resource_config.json" in done.stdout
        assert f"/job_{number}/" in worker.ssh("cv1", "cat /proc/self/cgroup").stdout
        assert refused(worker, "cv2")
        assert worker.ssh(ADMINISTRATOR, "true").code == 0
        worker.write(image.RESOURCE_CONFIG, whole)


def test_an_old_copy_of_resource_config_is_enough_for_the_node_itself(rig: Bootstrap) -> None:
    """It lacks nodes that came later, and groups have null where no instance was."""
    worker = rig["worker-3"]
    whole = worker.read(image.RESOURCE_CONFIG)
    old = json.loads(agent.resource_config(rig.cluster.fleet, empty=("login",)))
    groups = {group["Name"]: group for group in old["InstanceGroups"]}
    groups["worker"]["Instances"] = groups["worker"]["Instances"][2:]
    worker.write(image.RESOURCE_CONFIG, json.dumps(old))
    assert rig.provision("worker-3").code == 0
    worker.write(image.RESOURCE_CONFIG, whole)


def test_a_second_run_does_nothing(rig: Bootstrap) -> None:
    marks = ("/opt/slurm/etc/slurm.conf", "/opt/slurm/etc/hpctools.conf", "/etc/pam.d/sshd", "/etc/fstab")
    for name in ("controller-1", "login-1", "worker-1"):
        stat = [
            "sh",
            "-c",
            f"stat -L -c '%n %i %Y %Z' {' '.join(marks)} 2>/dev/null; cat /run/stand-in/*.pid",
        ]
        before = rig[name].run(stat, check=False).stdout
        done = rig.provision(name)
        assert rig.events(name, "run-done")[-1]["did"] == 0, done.stdout
        assert rig[name].run(stat, check=False).stdout == before


def test_what_the_agent_writes_anew_is_completed_again_and_jobs_live_on(rig: Bootstrap) -> None:
    controller = rig["controller-1"]
    with job(rig, "nlp1", "worker-1") as number:
        image.write_slurm_conf(controller, rig.cluster.fleet)
        assert rig.provision("controller-1").code == 0
        assert controller.read("/opt/slurm/etc/slurm.conf").endswith("\nInclude hpctools.conf\n")
        assert controller.run(["squeue", "-h", "-j", str(number), "-o", "%T"]).stdout == "RUNNING\n"
        assert rig["worker-1"].ssh("nlp1", "true").code == 0


def test_what_slurmctld_has_read_without_our_include_it_reads_again(rig: Bootstrap) -> None:
    """No partition of ours, no limits, no extern steps: putting the line back would not be enough."""
    controller = rig["controller-1"]
    partitions = ["sinfo", "-h", "-o", "%R"]
    image.write_slurm_conf(controller, rig.cluster.fleet)
    controller.run(["scontrol", "reconfigure"], check=False)
    until(lambda: "nlp" not in controller.run(partitions).stdout.split())
    assert rig.provision("controller-1").code == 0
    assert {"nlp", "cv", "dev", "worker"} == set(controller.run(partitions).stdout.split())
    said = dict(re.findall(r"^(\w+)\s*= (.*)$", controller.run(["scontrol", "show", "config"]).stdout, re.M))
    assert "Contain" in said["PrologFlags"]
    assert "associations,limits,qos" in said["AccountingStorageEnforce"]
    with job(rig, "nlp1", "worker-1"):
        assert rig["worker-1"].ssh("nlp1", "true").code == 0


def test_nobody_goes_past_the_departments_by_hyperpods_partitions(rig: Bootstrap) -> None:
    """Also not after slurmctld has forgotten it: when it was started again, and nothing else happened."""
    controller = rig["controller-1"]

    def answers() -> set[str]:
        tried = [
            rig["login-1"].ssh("nlp1", f"srun -p {name} true", check=False) for name in ("dev", "worker")
        ]
        return {each.stderr.strip().rpartition(": ")[2] if each.code else "in" for each in tried}

    def closed() -> bool:
        said = controller.run(["scontrol", "show", "partition", "-o"], check=False).stdout
        return set(re.findall(r"PartitionName=(\S+) AllowGroups=root", said)) == {"dev", "worker"}

    until(closed)
    assert answers() == {"User's group not permitted to use this partition"}
    assert controller.run(["srun", "-p", "dev", "hostname"]).code == 0, "root may look whether nodes work"
    controller.run(["systemctl", "restart", "slurmctld"])
    until(closed, 60)
    assert answers() == {"User's group not permitted to use this partition"}
