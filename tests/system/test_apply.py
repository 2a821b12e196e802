"""`hpctools apply`, `rollback` and `history` on a real cluster."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpctools.sandbox.cluster import Sandbox
from hpctools.sandbox.fall import down
from hpctools.sandbox.rise import up
from hpctools.sandbox.status import status
from hpctools.slurm.run import Completed, Process, start
from tests.system.harness import Cluster, until

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.releases


class Applied:
    """A cluster that applies are made of; site files and programs are put into root's reach inside.

    Attributes:
        base: the text of the site that the cluster was made from.
    """

    def __init__(self, cluster: Cluster, site_file: Path) -> None:
        self.cluster = cluster
        self.base = site_file.read_text()
        self.facts = self.read("/etc/slurm/facts.yaml")
        self.folder = cluster.sandbox.layout.tree / "home"

    def read(self, path: str) -> str:
        return self.cluster.inside("cat", path).stdout

    def give(self, name: str, text: str) -> str:
        """Put a file into /home, for root; return its path inside."""
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return f"/home/{name}"

    def command(self, text: str, *words: str, facts: str = "") -> list[str]:
        chosen = self.give("facts.yaml", facts or self.facts)
        return ["hpctools", "apply", self.give("site.yaml", text), "--facts", chosen, *words]

    def apply(self, text: str, *words: str, facts: str = "", check: bool = True) -> Completed:
        argv = self.command(text, *words, facts=facts)
        return self.cluster.inside(*argv, timeout=90, check=check)

    def starting(self, text: str, *words: str, facts: str = "", log: Path) -> Process:
        """An apply that runs beside the test."""
        argv = self.cluster.sandbox.command(self.command(text, *words, facts=facts))
        with log.open("wb") as stream:
            return start(argv, stdout=stream, stderr=stream)

    def hpctools(self, *words: str, check: bool = True) -> Completed:
        return self.cluster.inside("hpctools", *words, timeout=90, check=check)

    def history(self) -> list[dict[str, Any]]:
        changes: list[dict[str, Any]] = json.loads(self.hpctools("history", "--json").stdout)["changes"]
        return changes

    def max_time(self) -> str:
        """nlp's, as slurmctld runs it."""
        shown = self.cluster.inside("scontrol", "--oneliner", "show", "partition", "nlp").stdout
        return re.findall(r"MaxTime=(\S+)", shown)[0]

    def plan(self, text: str) -> dict[str, Any]:
        site = self.give("site.yaml", text)
        plan: dict[str, Any] = json.loads(self.hpctools("plan", site, "--json").stdout)
        return plan

    def running_job(self) -> int:
        """A job that runs, and that slurmctld has written down: it forgets by kill -9 what it has not."""
        job = self.cluster.submit("nlp1", "-p", "nlp", "--wrap", "sleep 600")
        until(lambda: self.cluster.job(job, "nlp1").state == "RUNNING")
        saved = self.cluster.sandbox.layout.tree / "var/spool/slurmctld/job_state"
        began = time.time()
        until(lambda: saved.exists() and saved.stat().st_mtime > began)
        return job

    def members(self) -> set[str]:
        rows = self.cluster.inside("sacctmgr", "-nP", "show", "assoc", "account=nlp-lab-a", "format=User")
        return set(rows.stdout.split())


@pytest.fixture(scope="module")
def applied(
    tmp_path_factory: pytest.TempPathFactory, site_file: Path, slurm_release: str
) -> Iterator[Applied]:
    """Two nodes, for all tests of this file."""
    sandbox = Sandbox(tmp_path_factory.mktemp("apply") / "state")
    try:
        up(sandbox, site_file, 2, lambda name, seconds: None, slurm=slurm_release)
        yield Applied(Cluster(sandbox), site_file)
    finally:
        down(sandbox)


@pytest.fixture
def box(applied: Applied) -> Applied:
    """The cluster as its first site says, whatever a test before it left."""
    applied.apply(applied.base, "--yes", "--prune", "--discard-edits")
    assert applied.max_time() == "2-00:00:00"
    return applied


def shorter(text: str, hours: int = 36) -> str:
    """nlp's jobs may run for a shorter time: a reconfigure."""
    changed = text.replace("max_time: 2-00:00:00", f"max_time: {hours}:00:00", 1)
    assert changed != text
    return changed


def spell(hours: int) -> str:
    return f"{hours // 24}-{hours % 24:02}:00:00"


def with_member(text: str) -> str:
    """One more person in nlp-lab-a: live."""
    changed = text.replace("members: [nlp1, nlp2]", "members: [nlp1, nlp2, nlp9]")
    assert changed != text
    return changed


def restarting(text: str, value: int) -> str:
    """A setting that takes a restart of slurmctld on 22.05."""
    return text.replace("cluster:\n", f"cluster:\n  parameters: {{MaxJobCount: '{value}'}}\n", 1)


def test_a_job_survives_every_kind_of_apply(box: Applied) -> None:
    job = box.running_job()
    began = box.cluster.job(job, "nlp1").started
    for text in (with_member(box.base), shorter(box.base), shorter(box.base, 40), restarting(box.base, 9999)):
        box.apply(text, "--yes")
        assert box.plan(text)["changes"] == []
        now = box.cluster.job(job, "nlp1")
        assert (now.state, now.started) == ("RUNNING", began)
    shown = box.cluster.inside("scontrol", "show", "config").stdout
    assert re.search(r"MaxJobCount\s*= 9999", shown)
    steps = [[step["need"] for step in each["steps"]] for each in box.history()[-3:]]
    assert steps[0] == steps[1] == ["reconfigure"]
    assert "restart slurmctld" in steps[2] or box.cluster.sandbox.running().slurm > "23.11"
    assert status(box.cluster.sandbox).state == "running"  # also with daemons that were restarted from inside
    assert "Restarts=0" in box.cluster.inside("scontrol", "show", "job", str(job)).stdout
    box.cluster.inside("scontrol", "update", f"jobid={job}", "timelimit=1")
    box.cluster.inside("scancel", "--signal=TERM", "--full", str(job), user="nlp1")
    assert box.cluster.ended(job, "nlp1").id == job


def test_an_apply_without_changes_touches_nothing(box: Applied) -> None:
    def look() -> tuple[str, str, str]:
        files = "find /etc/slurm /var/spool/hpctools/history -printf '%p %T@ %C@ %i\\n' | sort"
        shown = box.cluster.inside("scontrol", "show", "config").stdout
        boot = re.findall(r"BOOT_TIME\s*= (\S+)", shown)[0]
        log = box.cluster.inside(
            "sh", "-c", "grep -ci reconfigur /var/log/slurm/slurmctld.log || true"
        ).stdout
        return box.cluster.inside("sh", "-c", files).stdout, boot, log

    before = look()
    assert box.apply(box.base).stdout == "uni-gpu: nothing to do\n"
    assert look() == before


def test_rollback_brings_back_files_and_accounts_and_is_a_change_itself(box: Applied) -> None:
    earlier = box.read("/etc/slurm/slurm.conf")
    box.apply(shorter(with_member(box.base)), "--yes")
    first = box.history()[-1]
    assert (first["kind"], first["result"], first["who"]) == ("apply", "applied", "root")
    assert (box.max_time(), "nlp9" in box.members()) == ("1-12:00:00", True)
    box.apply(shorter(with_member(box.base), 40), "--yes")

    box.hpctools("rollback", "--yes")
    assert (box.max_time(), "nlp9" in box.members()) == ("1-12:00:00", True)
    assert (box.history()[-1]["kind"], box.history()[-1]["back_to"]) == ("rollback", first["number"])
    box.hpctools("rollback", "--yes")  # again: further back
    assert (box.max_time(), "nlp9" in box.members()) == ("2-00:00:00", False)
    assert box.read("/etc/slurm/slurm.conf") == earlier
    box.hpctools("rollback", str(first["number"]), "--yes")
    assert (box.max_time(), "nlp9" in box.members()) == ("1-12:00:00", True)
    text = box.hpctools("history", str(first["number"])).stdout
    assert re.search(r"who +root on ctl-1", text)
    assert "~ nlp MaxTime: 2-00:00:00 -> 1-12:00:00 [reconfigure]" in text
    assert "-PartitionName=nlp" in box.hpctools("history", str(first["number"]), "--diff").stdout


def test_what_was_there_before_the_first_change_comes_back_too(box: Applied) -> None:
    box.apply(shorter(box.base), "--yes")
    box.hpctools("rollback", "0", "--yes")
    assert box.max_time() == "2-00:00:00"
    assert box.plan(box.base)["changes"] == []


def test_a_hand_edit_is_refused_with_its_diff(box: Applied) -> None:
    box.apply(shorter(box.base), "--yes")
    box.cluster.inside("sed", "-i", "s/^ReturnToService=.*/ReturnToService=0/", "/etc/slurm/slurm.conf")
    refused = box.apply(shorter(box.base, 40), "--yes", check=False)
    assert refused.code == 1
    assert "slurm.conf changed since the last apply" in refused.stderr
    assert "+ReturnToService=0" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert box.max_time() == "1-12:00:00"
    box.apply(shorter(box.base, 40), "--yes", "--discard-edits")
    assert box.max_time() == "1-16:00:00"
    assert "ReturnToService=0" not in box.read("/etc/slurm/slurm.conf")


def test_a_plan_that_was_agreed_to_is_applied_or_refused_when_something_changed(box: Applied) -> None:
    site = box.give("site.yaml", shorter(box.base))
    box.hpctools("plan", site, "--out", "/home/plan.json")
    box.cluster.inside("sacctmgr", "-i", "modify", "account", "nlp-lab-a", "set", "maxjobs=77")
    refused = box.hpctools("apply", site, "--plan", "/home/plan.json", check=False)
    assert (refused.code, "changed since the plan was made" in refused.stderr) == (1, True)
    assert box.max_time() == "2-00:00:00"
    box.hpctools("plan", site, "--out", "/home/plan.json")
    box.hpctools("apply", site, "--plan", "/home/plan.json")
    assert box.max_time() == "1-12:00:00"


def test_a_restart_is_agreed_to_first(box: Applied) -> None:
    refused = box.apply(anew(box), check=False)
    assert refused.code == 2
    assert "somebody has to agree to this change first; nothing has changed" in refused.stderr
    assert "slurmctld is restarted: nothing can be submitted for some seconds" in refused.stderr
    assert "other.pid" not in box.read("/etc/slurm/slurm.conf")


def test_what_does_not_boot_changes_nothing(box: Applied) -> None:
    count = len(box.history())
    text = box.base.replace("cluster:\n", "cluster:\n  parameters: {SchedulerType: sched/none-such}\n", 1)
    refused = box.apply(text, "--yes", check=False)
    assert refused.code == 1
    assert "does not boot; nothing has changed" in refused.stderr
    assert len(box.history()) == count


def failing_once(box: Applied, what: str) -> str:
    """Facts whose restart of slurmctld does `what` and fails, the first time; afterwards it is as always."""
    box.cluster.inside("rm", "-f", "/home/once")
    script = (
        f"#!/bin/sh\n[ -e /home/once ] && exec sandbox-restart slurmctld\ntouch /home/once\n{what}\nexit 1\n"
    )
    program = box.give("restart", script)
    return box.facts.replace("- sandbox-restart\n  - slurmctld\n", f"- {program}\n", 1)


def anew(box: Applied) -> str:
    """A site whose change takes a restart of slurmctld on every release."""
    return box.base.replace(
        "cluster:\n", "cluster:\n  parameters: {SlurmctldPidFile: /run/slurm/other.pid}\n", 1
    )


def test_a_slurmctld_killed_during_the_action_comes_back_with_the_old_files(box: Applied) -> None:
    job = box.running_job()
    old = box.read("/etc/slurm/slurm.conf")
    facts = failing_once(box, "kill -9 $(pidof slurmctld)")
    failed = box.apply(anew(box), "--yes", facts=facts, check=False)
    assert failed.code == 1
    assert "restart slurmctld failed" in failed.stderr
    assert "everything is as before" in failed.stderr
    assert box.read("/etc/slurm/slurm.conf") == old
    assert "is UP" in box.cluster.inside("scontrol", "ping").stdout
    assert box.history()[-1]["result"] == "rolled back"
    assert box.plan(box.base)["changes"] == []
    assert box.cluster.job(job, "nlp1").state == "RUNNING"
    box.cluster.inside("scancel", str(job))


def test_ctrl_c_in_the_middle_rolls_back_and_says_so(box: Applied, tmp_path: Path) -> None:
    old = box.read("/etc/slurm/slurm.conf")
    program = box.give("restart", "#!/bin/sh\ntouch /home/begun\nsleep 2\nexec sandbox-restart slurmctld\n")
    facts = box.facts.replace("- sandbox-restart\n  - slurmctld\n", f"- {program}\n", 1)
    box.cluster.inside("rm", "-f", "/home/begun")
    running = box.starting(anew(box), "--yes", facts=facts, log=tmp_path / "log")
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


def test_two_applies_at_once(box: Applied, tmp_path: Path) -> None:
    """The second is told who holds the lock, or waits."""
    program = box.give("restart", "#!/bin/sh\ntouch /home/begun\nsleep 3\nexec sandbox-restart slurmctld\n")
    facts = box.facts.replace("- sandbox-restart\n  - slurmctld\n", f"- {program}\n", 1)
    box.cluster.inside("rm", "-f", "/home/begun")
    first = box.starting(anew(box), "--yes", facts=facts, log=tmp_path / "log")
    until(lambda: (box.folder / "begun").exists())
    refused = box.apply(shorter(box.base), "--yes", check=False)
    assert refused.code == 1
    assert re.search(
        r"another change is under way: hpctools apply .* by root since .*\(pid \d+\)", refused.stderr
    )
    box.apply(shorter(box.base), "--yes", "--wait", "60")
    assert first.wait(60) == 0
    assert box.max_time() == "1-12:00:00"


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


def test_another_account_is_told_that_it_may_not(box: Applied) -> None:
    for words in (("apply", "/etc/slurm/site.yaml"), ("history",), ("rollback",)):
        done = box.cluster.inside("hpctools", *words, user="nlp1", check=False)
        assert done.code == 1
        assert "Traceback" not in done.stderr
        assert "root" in done.stderr or "Permission denied" in done.stderr


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
