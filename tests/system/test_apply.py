"""`hpctools apply`, `rollback` and `history` on a real cluster, from day to day."""

from __future__ import annotations

import re

import pytest

from hpctools.sandbox.status import status
from tests.system.applied import Applied, anew, restarting, shorter, with_member

pytestmark = pytest.mark.releases


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


@pytest.mark.slow
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
    refused = box.apply(anew(box.base), check=False)
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


def test_another_account_is_told_that_it_may_not(box: Applied) -> None:
    for words in (("apply", "/etc/slurm/site.yaml"), ("history",), ("rollback",)):
        done = box.cluster.inside("hpctools", *words, user="nlp1", check=False)
        assert done.code == 1
        assert "Traceback" not in done.stderr
        assert "root" in done.stderr or "Permission denied" in done.stderr
