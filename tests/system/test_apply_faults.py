"""`hpctools apply` when daemons die, people interrupt, and two come at once: on a real cluster."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

import pytest

from tests.system.applied import Applied, anew, shorter, with_member
from tests.system.harness import Cluster, until

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.releases


def failing_once(box: Applied, what: str) -> str:
    """Facts whose restart of slurmctld does `what` and fails, the first time; afterwards it is as always."""
    box.cluster.inside("rm", "-f", "/home/once")
    script = (
        f"#!/bin/sh\n[ -e /home/once ] && exec sandbox-restart slurmctld\ntouch /home/once\n{what}\nexit 1\n"
    )
    program = box.give("restart", script)
    return box.facts.replace("- sandbox-restart\n  - slurmctld\n", f"- {program}\n", 1)


def test_a_slurmctld_killed_during_the_action_comes_back_with_the_old_files(box: Applied) -> None:
    job = box.running_job()
    old = box.read("/etc/slurm/slurm.conf")
    facts = failing_once(box, "kill -9 $(pidof slurmctld)")
    failed = box.apply(anew(box.base), "--yes", facts=facts, check=False)
    assert failed.code == 1
    assert "restart slurmctld failed" in failed.stderr
    assert "everything is as before" in failed.stderr
    assert box.read("/etc/slurm/slurm.conf") == old
    assert "is UP" in box.cluster.inside("scontrol", "ping").stdout
    assert box.history()[-1]["result"] == "rolled back"
    assert box.plan(box.base)["changes"] == []
    assert box.cluster.job(job, "nlp1").state == "RUNNING"
    box.cluster.inside("scancel", str(job))


@pytest.mark.releases(all="long")  # ours alone, whatever Slurm is
def test_ctrl_c_in_the_middle_rolls_back_and_says_so(box: Applied, tmp_path: Path) -> None:
    old = box.read("/etc/slurm/slurm.conf")
    program = box.give("restart", "#!/bin/sh\ntouch /home/begun\nsleep 2\nexec sandbox-restart slurmctld\n")
    facts = box.facts.replace("- sandbox-restart\n  - slurmctld\n", f"- {program}\n", 1)
    box.cluster.inside("rm", "-f", "/home/begun")
    running = box.starting(anew(box.base), "--yes", facts=facts, log=tmp_path / "log")
    until(lambda: (box.folder / "begun").exists())
    holder = json.loads(box.read("/var/spool/hpctools/lock"))
    assert holder["command"].startswith("hpctools apply")
    box.cluster.inside("kill", "-INT", str(holder["pid"]))
    assert running.wait(60) == 130
    log = (tmp_path / "log").read_text()
    assert "what has begun is rolled back once this step has ended" in log
    assert "interrupted; everything is as before" in log
    assert box.read("/etc/slurm/slurm.conf") == old
    assert box.plan(box.base)["changes"] == []


@pytest.mark.releases(all="long")  # ours alone, whatever Slurm is
def test_two_applies_at_once(box: Applied, tmp_path: Path) -> None:
    """The second is told who holds the lock, or waits."""
    waits = "timeout 60 sh -c 'until [ -e /home/refused ]; do sleep 0.1; done'"
    program = box.give("restart", f"#!/bin/sh\ntouch /home/begun\n{waits}\nexec sandbox-restart slurmctld\n")
    facts = box.facts.replace("- sandbox-restart\n  - slurmctld\n", f"- {program}\n", 1)
    box.cluster.inside("rm", "-f", "/home/begun", "/home/refused")
    first = box.starting(anew(box.base), "--yes", facts=facts, log=tmp_path / "log")
    until(lambda: (box.folder / "begun").exists())
    refused = box.apply(shorter(box.base), "--yes", check=False)
    box.cluster.inside("touch", "/home/refused")
    assert refused.code == 1
    assert re.search(
        r"another change is under way: hpctools apply .* by root since .*\(pid \d+\)", refused.stderr
    )
    box.apply(shorter(box.base), "--yes", "--wait", "60")
    assert first.wait(60) == 0
    assert box.max_time() == "1-12:00:00"


@pytest.mark.releases(all="long")  # ours alone, whatever Slurm is
@pytest.mark.parametrize("lines", [1, 17, 20])
@pytest.mark.slow
def test_output_that_nobody_reads_to_its_end(lines: int, box: Applied) -> None:
    """`| head`: what has not begun does not begin, what has is done to its end, or taken back."""
    before = box.applies()
    argv = " ".join(box.command(shorter(with_member(box.base)), "--yes"))
    box.cluster.inside("bash", "-c", f"{argv} 2>&1 | head -n {lines}", timeout=90)
    box.cluster.inside("flock", "/var/spool/hpctools/lock", "true", timeout=60)
    new = box.applies()[len(before) :]
    assert new in ([], ["applied"])
    done = bool(new)
    assert (box.max_time(), "nlp9" in box.members()) == (
        ("1-12:00:00", True) if done else ("2-00:00:00", False)
    )
    assert done or lines == 1


def test_slurmdbd_that_goes_down_in_mid_sync(box: Applied) -> None:
    """The files are as before, what could not be taken back is told, and the next apply completes."""
    old = box.read("/etc/slurm/slurm.conf")
    kills = "[ \"$1 $2\" = '--immediate load' ] && kill -9 $(pidof slurmdbd)"
    wrapper = f'#!/bin/sh\n{kills}\nexec /usr/bin/sacctmgr "$@"\n'
    box.give("sacctmgr", wrapper)
    argv = box.command(shorter(with_member(box.base)), "--yes")
    failed = box.cluster.inside("env", f"PATH=/home:{path(box)}", *argv, timeout=110, check=False)
    try:
        assert failed.code == 1
        assert "slurmdbd does not answer" in failed.stderr
        assert "Traceback" not in failed.stderr
        assert box.read("/etc/slurm/slurm.conf") == old
        assert box.max_time() == "2-00:00:00"
        assert "slurmdbd does not answer" in box.history()[-1]["reason"]
    finally:
        box.cluster.inside("sandbox-restart", "slurmdbd")
        until(lambda: box.cluster.inside("sacctmgr", "-n", "show", "cluster", check=False).code == 0)
    box.apply(shorter(with_member(box.base)), "--yes")
    assert (box.max_time(), "nlp9" in box.members()) == ("1-12:00:00", True)


def path(box: Applied) -> str:
    return box.cluster.inside("printenv", "PATH").stdout.strip()


@pytest.mark.releases(all="long")  # ours alone, whatever Slurm is
def test_a_dead_munge_is_named_at_once(box: Applied) -> None:
    """Each of Slurm's commands would try for 50 s: neither a plan nor an apply runs any."""
    old = box.read("/etc/slurm/slurm.conf")
    site = box.give("site.yaml", shorter(box.base))
    box.cluster.inside("sh", "-c", "kill -9 $(pidof munged slurmctld)")
    began = time.monotonic()
    try:
        plan = box.hpctools("plan", site, check=False)
        apply = box.hpctools("apply", site, "--yes", check=False)
        drift = box.hpctools("drift", site, check=False)
        took = time.monotonic() - began
    finally:
        box.cluster.inside("sandbox-restart", "munged")
        until(lambda: box.cluster.inside("munge", "-n", check=False).code == 0)
        box.cluster.inside("sandbox-restart", "slurmctld")
        until(lambda: "is UP" in box.cluster.inside("scontrol", "ping", check=False).stdout)
    words = "munge does not work on this host"
    assert (plan.code, apply.code, drift.code) == (3, 3, 3)
    assert words in " ".join(plan.stdout.split())
    assert f"hpctools: {words}" in apply.stderr
    assert "systemctl status munge" in apply.stderr
    assert words in drift.stdout + drift.stderr
    assert took < 45
    assert box.read("/etc/slurm/slurm.conf") == old


WRONG_PLAN = """
import sys
from dataclasses import replace
from pathlib import Path

from hpctools import conf
from hpctools.conf.apply import Boot, Cluster, Generations, History, Request, change
from hpctools.conf.apply.live_planner import LivePlanner
from hpctools.conf.slurmdbd import Slurmdbd
from hpctools.conf.apply.slurm_daemons import SlurmDaemons
from hpctools.conf.apply.who import me
from hpctools.conf.facts_file import load_facts
from hpctools.conf.plan.model import Need
from hpctools.errors import ApplyError
from hpctools.site import load


class Wrong(LivePlanner):
    def preflight(self, wanted):
        return Boot()

    def plan(self, wanted, *, prune):
        plan = super().plan(wanted, prune=prune)
        return replace(plan, changes=tuple(replace(each, needs=Need.RECONFIGURE) for each in plan.changes))


folder = Path("/etc/slurm")
facts = load_facts(folder / "facts.yaml")
bundle = conf.compile(load(folder / "site.yaml"), facts)
LINE = sys.argv[1] + "\\n"
files = [replace(file, text=file.text + LINE * (file.path == "slurm.conf")) for file in bundle.files]
cluster = Cluster(Wrong(folder, None), Slurmdbd("uni-gpu"), SlurmDaemons(facts.daemons, 2))
request = Request(replace(bundle, files=tuple(files)), 2, "slurm", me(), "a wrong plan")
try:
    change(
        request, Generations(folder), History(Path("/var/spool/hpctools")), cluster,
        agree=lambda _: None, tell=print,
    )
except ApplyError as error:
    print(error)
"""


def test_a_reconfigure_that_slurmctld_cannot_survive_or_take_is_rolled_back(box: Applied) -> None:
    """Plan and preflight know better, so this plan lies and there is no preflight.

    22.05 ends when it is reconfigured with more nodes. From 23.11 on a reconfigure starts slurmctld anew; the
    old one lives on when the files cannot be read, but not when a plugin is not there.
    """
    early = box.cluster.sandbox.running().slurm < "23.11"
    line = "NodeName=ghost NodeAddr=127.0.0.1 Port=9" if early else "SchedulerType=sched/none-such"
    job = box.running_job()
    old = box.read("/etc/slurm/slurm.conf")
    program = box.give("wrong_plan.py", WRONG_PLAN)
    told = box.cluster.inside("env", f"PYTHONPATH={ROOT}", sys.executable, program, line, timeout=110).stdout
    assert ("slurmctld ended over the new configuration" in told) == early
    assert ("slurmctld does not answer after it was reconfigured" in told) != early
    assert "restart slurmctld, with the old files" in told
    assert "everything is as before" in told
    assert box.read("/etc/slurm/slurm.conf") == old
    assert box.plan(box.base)["changes"] == []
    assert box.cluster.job(job, "nlp1").state == "RUNNING"
    box.cluster.inside("scancel", str(job))


EMPTY_MACHINE = """
kill -9 $(pidof slurmctld slurmdbd slurmd)
mkdir /home/kept && cp /etc/slurm/site.yaml /etc/slurm/facts.yaml /home/kept/
rm -rf /etc/slurm/* /var/spool/slurmctld/*
mariadb --no-defaults -e 'drop database slurm_acct_db; create database slurm_acct_db'
"""


@pytest.mark.slow
def test_the_first_apply_brings_up_a_controller_that_never_ran(small: Cluster) -> None:
    """An empty folder, an empty database: slurmdbd first, then the cluster, then slurmctld, then the rest."""
    small.inside("sh", "-ec", EMPTY_MACHINE)
    argv = ("hpctools", "apply", "/home/kept/site.yaml", "--facts", "/home/kept/facts.yaml")
    refused = small.inside(*argv, timeout=60, check=False)
    assert refused.code == 2
    assert "slurmctld does not answer: it is started" in refused.stderr
    assert small.inside("ls", "-A", "/etc/slurm").stdout == ""
    done = small.inside(*argv, "--yes", timeout=110)
    assert "next: start slurmd on reserved-[1-2]: sandbox-restart --nodes 'reserved-[1-2]'" in done.stdout
    log = small.inside("cat", "/var/log/slurm/slurmctld.log").stdout
    assert "CLUSTER ID MISMATCH" not in log
    small.inside("sandbox-restart", "--nodes", "reserved-[1-2]")
    until(lambda: small.inside("sinfo", "-h", "-o", "%t").stdout.split() == ["idle"])
    assert small.ended(small.submit("nlp1", "-p", "nlp", "--wrap", "true"), "nlp1").state == "COMPLETED"
    assert small.inside(*argv, timeout=60).stdout == "uni-gpu: nothing to do\n"
