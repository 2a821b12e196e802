"""Lifecycle scripts killed at every step, nodes that are replaced, and a world that does not work."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from hpctools.sandbox.hosts import image
from hpctools.slurm.run import Completed, Process
from tests.system.bootstrap_rig import ADMINISTRATOR, STEP_SECONDS, Bootstrap, bootstrap
from tests.system.harness import until

pytestmark = pytest.mark.long

CONTROLLER, LOGIN, WORKER = "controller-1", "login-1", "worker-1"
QUICK = ("--backoff", "0.05")
# What each role has to do on an empty node of this site; all else is there already.
STEPS = {
    CONTROLLER: {
        *(
            "03-closed",
            "10-mounts",
            "26-sssd",
            "30-accounting-database",
            "35-slurm-include",
            "45-slurm-daemons",
        ),
        *("47-agent-partitions", "50-associations", "55-follow-nodes"),
    },
    LOGIN: {"03-closed", "10-mounts", "26-sssd", "45-slurm-daemons", "65-ssh-keys", "80-pam"},
    WORKER: {"03-closed", "10-mounts", "26-sssd", "45-slurm-daemons", "65-ssh-keys", "80-pam"},
}
VISITOR = "visitor"
HOST_KEY = "/etc/ssh/ssh_host_ed25519_key.pub"
BROKEN_DATABASE = "/etc/systemd/system/mariadb.service.d/broken.conf"
LONG = {"26-sssd", "30-accounting-database", "45-slurm-daemons", "80-pam"}
FOLLOW = "/etc/systemd/system/hpctools-follow.service.d/quick.conf"
CHRONYC = """\
#!/bin/sh
[ -e /run/clock-is-right ] && offset=0.000012 || offset=612.5
echo "System time     : $offset seconds slow of NTP time"
echo "Leap status     : Normal"
"""


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bootstrap]:
    """A small cluster whose lifecycle scripts were killed at every step on their way."""
    with bootstrap(tmp_path_factory.mktemp("faults"), workers=1, logins=1) as made:
        image.write_slurm_conf(made[CONTROLLER], made.cluster.fleet)
        killed = {CONTROLLER: kill_at_every_step(made, CONTROLLER, signal.SIGKILL)}
        with ThreadPoolExecutor() as pool:
            login = pool.submit(kill_at_every_step, made, LOGIN, signal.SIGTERM)
            worker = pool.submit(kill_at_every_step, made, WORKER, signal.SIGKILL)
        made.__dict__["killed"] = {**killed, LOGIN: login.result(), WORKER: worker.result()}
        yield made


def kill_at_every_step(rig: Bootstrap, name: str, number: signal.Signals) -> list[str]:
    """Run the scripts again and again, ending each at a step: as it begins; long ones within, too."""
    chance, killed = random.Random(name), list[str]()
    while True:
        begun = len(_lines(rig, name))
        process = rig[name].start(rig.command(*QUICK), rig.cluster.rack.folder / f"{name}.out")
        step = _next_step(rig, name, begun, killed, process)
        if step is None:
            assert process.wait(STEP_SECONDS) == 0, _said(rig, name)
            return killed
        time.sleep(chance.uniform(0.05, 0.4) if step in killed else 0)
        _kill(process, number)
        process.wait(STEP_SECONDS)
        killed.append(step)


def _kill(process: Process, number: signal.Signals) -> None:
    """End the runner: the child of the process that entered the machine."""
    with suppress(ProcessLookupError, FileNotFoundError):
        for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            os.kill(int(child), number)


def _said(rig: Bootstrap, name: str) -> str:
    return (rig.cluster.rack.folder / f"{name}.out").read_text()[-4000:]


def _next_step(rig: Bootstrap, name: str, begun: int, killed: list[str], process: Process) -> str | None:
    """The first step that begins and was not killed enough yet; None when the run has ended."""
    while True:
        over = process.poll() is not None
        for line in _lines(rig, name)[begun:]:
            step = str(line["step"]) if line["event"] == "step-begins" else ""
            if step and killed.count(step) < (2 if step in LONG else 1):
                return step
        if over:
            return None
        time.sleep(0.01)


def _lines(rig: Bootstrap, name: str) -> list[dict[str, object]]:
    path = rig.log(name)
    whole = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in whole if line.endswith("\n")]


def works(rig: Bootstrap) -> None:
    """A job runs on the worker, and lets its owner in for as long."""
    until(lambda: rig[CONTROLLER].run(["sinfo", "-h", "-p", "nlp", "-t", "idle", "-o", "%D"]).stdout == "1\n")
    number = rig[LOGIN].ssh("nlp1", "sbatch --parsable -p nlp --wrap 'sleep 600'").stdout.strip()
    until(lambda: rig[CONTROLLER].run(["squeue", "-h", "-j", number, "-o", "%T"]).stdout == "RUNNING\n")
    assert f"/job_{number}/" in rig[WORKER].ssh("nlp1", "cat /proc/self/cgroup").stdout
    rig[CONTROLLER].run(["scancel", number])
    until(lambda: rig[WORKER].ssh("nlp1", "true", check=False).code == 255)


def test_killed_at_every_step_and_run_again(rig: Bootstrap) -> None:
    for name, killed in rig.__dict__["killed"].items():
        assert set(killed) >= STEPS[name]
    works(rig)
    for name in STEPS:
        assert rig.provision(name).code == 0
        assert rig.events(name, "run-done")[-1]["did"] == 0


def test_killed_runs_leave_nothing_half_written_and_nothing_twice(rig: Bootstrap) -> None:
    find = [
        "find",
        "/opt/slurm/",
        "/etc/pam.d",
        "/etc/sssd",
        "/etc/ssh",
        "-newer",
        "/etc/hostname",
        "-name",
        ".*",
    ]
    for name in STEPS:
        assert rig[name].run([*find, "!", "-name", ".agent"]).stdout == ""
        assert rig[name].read("/etc/fstab").count("fs-0123@tcp:/abcd") == 1
    assert rig[CONTROLLER].read("/opt/slurm/etc/slurm.conf").count("Include hpctools.conf") == 1
    assert rig[WORKER].read("/etc/pam.d/sshd").count("# hpctools: begin") == 1


@pytest.fixture(scope="module")
def failed(rig: Bootstrap) -> dict[str, Completed]:
    """All nodes replaced by empty ones of the same names, in a world where something is broken for each."""
    rig[LOGIN].ssh("nlp1", "echo kept >kept")
    keys = {name: rig[name].read(HOST_KEY) for name in (LOGIN, WORKER)}
    with ThreadPoolExecutor() as pool:
        list(pool.map(rig.replace, STEPS))
    rig.__dict__["keys"] = keys
    image.write_slurm_conf(rig[CONTROLLER], rig.cluster.fleet)
    rig[CONTROLLER].write(BROKEN_DATABASE, "[Service]\nExecStart=\nExecStart=/bin/false\n")
    rig[CONTROLLER].write(FOLLOW, "[Service]\nEnvironment=HPCTOOLS_FOLLOW_SECONDS=0.5\n")
    rig[LOGIN].write("/usr/bin/chronyc", CHRONYC, 0o755)
    rig.__dict__["unknown"] = _run_without_a_role(rig)
    rig.replace(WORKER)
    rig[WORKER].run(["touch", "/refuse-abcd"])
    _let_a_visitor_in(rig)
    with ThreadPoolExecutor() as pool:
        done = pool.map(lambda name: rig.provision(name, *QUICK, check=False), STEPS)
    return dict(zip(STEPS, done, strict=True))


def _let_a_visitor_in(rig: Bootstrap) -> None:
    """Somebody exists on the worker, which nothing has closed yet."""
    rig[WORKER].run(["useradd", "--create-home", VISITOR])
    assert rig[WORKER].ssh(VISITOR, "true").code == 0


def _who_gets_in(rig: Bootstrap) -> dict[str, bool]:
    return {name: rig[WORKER].ssh(name, "true", check=False).code == 0 for name in (VISITOR, ADMINISTRATOR)}


def _run_without_a_role(rig: Bootstrap) -> tuple[Completed, dict[str, bool]]:
    """On an empty worker whose resource_config.json is damaged: what was said, and who gets in afterwards."""
    whole = rig[WORKER].read(image.RESOURCE_CONFIG)
    _let_a_visitor_in(rig)
    rig[WORKER].write(image.RESOURCE_CONFIG, whole[: len(whole) // 2])
    done = rig.provision(WORKER, *QUICK, check=False)
    return done, _who_gets_in(rig)


def failed_step(rig: Bootstrap, name: str) -> object:
    return rig.events(name, "run-failed")[-1]["step"]


def test_an_empty_node_that_cannot_tell_its_role_is_for_administrators(
    rig: Bootstrap, failed: dict[str, Completed]
) -> None:
    done, gets_in = rig.__dict__["unknown"]
    assert (done.code, "resource_config.json" in done.stdout) == (3, True)
    assert "administrators only" in done.stdout
    assert gets_in == {VISITOR: False, ADMINISTRATOR: True}


def test_a_file_system_that_cannot_be_mounted(rig: Bootstrap, failed: dict[str, Completed]) -> None:
    """The node says which and why, and admits administrators alone."""
    assert (failed[WORKER].code, failed_step(rig, WORKER)) == (1, "10-mounts")
    assert "fs-0123@tcp:/abcd cannot be mounted at /fsx" in failed[WORKER].stdout
    assert _who_gets_in(rig) == {VISITOR: False, ADMINISTRATOR: True}


def test_a_clock_that_is_wrong(rig: Bootstrap, failed: dict[str, Completed]) -> None:
    """With it munge and AWS refuse everything, so nothing else is begun."""
    assert (failed[LOGIN].code, failed_step(rig, LOGIN)) == (1, "05-clock")
    assert "clock" in failed[LOGIN].stdout
    assert rig[LOGIN].ssh(ADMINISTRATOR, "true").code == 0


def test_a_database_that_does_not_come_up(rig: Bootstrap, failed: dict[str, Completed]) -> None:
    """slurmctld must not start before accounting knows the cluster: it would make up an id of its own."""
    assert (failed[CONTROLLER].code, failed_step(rig, CONTROLLER)) == (1, "30-accounting-database")
    assert rig[CONTROLLER].run(["systemctl", "is-active", "slurmctld"], check=False).stdout == "inactive\n"
    assert not rig[CONTROLLER].exists("/var/spool/slurmctld/clustername")


def test_replaced_nodes_go_on_where_they_failed_and_get_everything_back(
    rig: Bootstrap, failed: dict[str, Completed]
) -> None:
    rig[CONTROLLER].run(["rm", BROKEN_DATABASE])
    rig[LOGIN].write("/run/clock-is-right", "")
    rig[WORKER].run(["rm", "/refuse-abcd"])
    with ThreadPoolExecutor() as pool:
        done = dict(zip(STEPS, pool.map(rig.provision, STEPS), strict=True))
    assert {name: each.code for name, each in done.items()} == dict.fromkeys(failed, 0)
    works(rig)
    assert rig[LOGIN].ssh("nlp1", "cat kept").stdout == "kept\n"
    assert {name: rig[name].read(HOST_KEY) for name in (LOGIN, WORKER)} == rig.__dict__["keys"]


def test_a_replaced_worker_with_another_address_joins_its_partitions(
    rig: Bootstrap, failed: dict[str, Completed]
) -> None:
    """HyperPod runs nothing on the controller then; what watches there sees to it.

    First the agent writes slurm.conf without our Include; then it leaves that, with a node that is no more,
    and has slurmctld read it, which ends slurmctld (22.05).
    """
    assert failed
    for address, kept in (("10.77.0.60", ""), ("10.77.0.61", "Include hpctools.conf\n")):
        rig.replace(WORKER, address)
        image.write_slurm_conf(rig[CONTROLLER], rig.cluster.fleet, kept)
        if kept:
            rig[CONTROLLER].run(["scontrol", "reconfigure"], check=False)
        assert rig.provision(WORKER).code == 0
        name = rig[WORKER].machine.hostname
        until(lambda: rig[CONTROLLER].run(["sinfo", "-hN", "-p", "nlp"]).stdout.split()[:1] == [name])  # noqa: B023
        # A slurmctld that ended forgets its last seconds: a job that was cancelled then waits again.
        rig[CONTROLLER].run(["scancel", "-u", "nlp1"])
        until(lambda: not rig[CONTROLLER].run(["squeue", "-h"]).stdout)
        works(rig)
        assert rig[LOGIN].ssh("nlp1", "srun -p nlp hostname").stdout == f"{name}\n"
