"""Plans before real daemons: each kind of edit is exactly its change, and what the plan says is enough."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hpctools import conf
from hpctools.conf.plan import Need, Step
from hpctools.sandbox import daemons
from hpctools.sandbox.ports import choose
from tests.system.harness import cluster_of, until
from tests.system.plan_rig import Rig, told

pytestmark = pytest.mark.releases


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory, site_file: Path, slurm_release: str) -> Iterator[Rig]:
    with cluster_of(tmp_path_factory.mktemp("plan"), site_file, 2, slurm_release) as cluster:
        yield Rig(cluster, site_file)


@pytest.fixture
def home(rig: Rig) -> Iterator[Rig]:
    """The rig, which has nothing to do before and after each test."""
    rig.settled(rig.bundle())
    yield rig
    wanted = rig.bundle()
    back = rig.plan(wanted, prune=True)
    if not back.empty:
        rig.obey(back, wanted, prune=True)


def early(rig: Rig, need: Need) -> Need:
    """What a change takes where a reconfigure does not start every daemon anew."""
    assert rig.facts.slurm_version is not None
    return need if rig.facts.slurm_version < (23, 11) else Need.RECONFIGURE


def test_a_fresh_cluster_is_what_its_site_wants(rig: Rig) -> None:
    plan = rig.plan(rig.bundle())
    assert (told(plan), plan.files, plan.jobs, plan.warnings, plan.unknown) == ([], (), (), (), ())


def test_the_commands_inside_find_site_and_facts_by_themselves(home: Rig) -> None:
    plan = home.cluster.inside("hpctools", "plan", "--check")
    assert plan.stdout.splitlines()[0].endswith("/etc/slurm): no changes")
    assert home.cluster.inside("hpctools", "drift").stdout == ""
    home.cluster.inside("scontrol", "update", "partition=cv", "MaxTime=60")
    drift = home.cluster.inside("hpctools", "drift", check=False)
    line = "partition cv: MaxTime is 01:00:00, not 3-00:00:00 (reconfigure)\n"
    assert (drift.code, drift.stdout, drift.stderr) == (1, line, "")
    assert home.cluster.inside("hpctools", "plan", "--check", check=False).code == 1
    # Nobody's: what only root may read is not compared, and that is said.
    theirs = home.cluster.inside("hpctools", "plan", user="nlp1", check=False)
    assert (theirs.code, "/etc/slurm/slurmdbd.conf cannot be read" in theirs.stdout) == (3, True)


def test_a_limit_of_a_partition_is_reconfigured_and_a_tier_told_to_slurmdbd(home: Rig) -> None:
    wanted = home.bundle(("max_time: 2-00:00:00", "max_time: 1-12:00:00"), ("priority: 500", "priority: 400"))
    changes = [
        ("partition", "nlp", "MaxTime", "2-00:00:00", "1-12:00:00", Need.RECONFIGURE),
        ("qos", "high", "Priority", "500", "400", Need.LIVE),
    ]
    plan = home.plan(wanted)
    assert told(plan) == changes
    assert plan.steps == (Step(Need.RECONFIGURE),)
    home.obey(plan, wanted)


@pytest.mark.slow
def test_settings_and_what_each_takes(home: Rig) -> None:
    tracking = ("proctrack/cgroup", "proctrack/linuxproc")
    if home.facts.cgroup == "none":
        tracking = ("proctrack/linuxproc", "proctrack/pgid")
    rows = [
        (
            "SlurmctldParameters",
            "enable_configless",
            "enable_configless,idle_on_node_suspend",
            Need.RESTART_SLURMCTLD,
        ),
        ("ReturnToService", "2", "1", Need.RECONFIGURE),
        ("ProctrackType", *tracking, Need.RESTART_DAEMONS),
        ("KillWait", "30", "45", Need.RECONFIGURE),
        ("MaxJobCount", "10000", "5000", Need.RESTART_SLURMCTLD),
    ]
    extra = {key: after for key, _, after, _ in rows}
    wanted = home.bundle(extra_parameters={**home.facts.extra_parameters, **extra})
    plan = home.plan(wanted)
    assert sorted(told(plan)) == sorted(
        ("cluster", "uni-gpu", key, before, after, early(home, need)) for key, before, after, need in rows
    )
    home.obey(plan, wanted)


def test_a_node_comes(home: Rig) -> None:
    ports = choose(["slurmd-reserved-3"])
    places = {
        **home.facts.node_endpoints,
        "reserved-3": conf.Endpoint("127.0.0.1", ports["slurmd-reserved-3"]),
    }
    wanted = home.bundle(node_counts={**home.facts.node_counts, "reserved": 3}, node_endpoints=places)
    plan = home.plan(wanted)
    need = early(home, Need.RESTART_DAEMONS)
    assert [row[:3] for row in told(plan) if row[0] == "node"] == [("node", "reserved-3", "")]
    assert {row[5] for row in told(plan) if row[0] == "node"} == {need}
    (home.sandbox.layout.tree / "var/spool/slurmd/reserved-3").mkdir(parents=True, exist_ok=True)
    home.obey(plan, wanted)
    until(lambda: "IDLE" in home.ask_patiently("scontrol", "-o", "show", "node", "reserved-1"), 30)
    home.stop("slurmd-reserved-3")


def test_nodes_change_what_they_have(home: Rig) -> None:
    line = "    capacity: reserved\n    gpus: {type: a100, count: 8}\n"
    other = "    capacity: reserved\n    gpus: {type: a100, count: 4}\n    features: [big]\n    weight: 7\n"
    wanted = home.bundle((line, other))
    plan = home.plan(wanted)
    heavy = early(home, Need.RESTART_DAEMONS)
    assert [row for row in told(plan) if row[0] == "node"] == [
        ("node", "reserved-[1-2]", "Gres", "gpu:a100:8", "gpu:a100:4", heavy),
        ("node", "reserved-[1-2]", "Feature", "reserved", "reserved,big", Need.RECONFIGURE),
        ("node", "reserved-[1-2]", "Weight", "1", "7", Need.RECONFIGURE),
    ]
    assert [row[1:3] for row in told(plan) if row[0] == "gres"] == [("reserved-[1-2]", "gres.conf")]
    home.obey(plan, wanted)


def test_jobs_on_a_node_that_goes_are_named_and_end_first(home: Rig) -> None:
    job = home.cluster.submit("nlp1", "-pnlp", "-wreserved-2", "--time=10", "--wrap=sleep 300")
    until(lambda: home.cluster.job(job, "nlp1").state == "RUNNING")
    wanted = home.bundle(node_counts={**home.facts.node_counts, "reserved": 1})
    plan = home.plan(wanted)
    (gone,) = [change for change in plan.changes if change.area == "node"]
    assert (gone.subject, gone.after, gone.needs, gone.jobs) == ("reserved-2", None, Need.DRAIN, (job,))
    assert [(row.id, row.user, row.nodes) for row in plan.jobs] == [(job, "nlp1", "reserved-2")]
    assert plan.steps[0].nodes == ("reserved-2",)

    home.cluster.inside("scancel", str(job))
    home.cluster.ended(job, "nlp1")
    plan = home.plan(wanted)
    assert {change.needs for change in plan.changes if change.area == "node"} == {
        early(home, Need.RESTART_DAEMONS)
    }
    home.obey(plan, wanted)


def test_what_stands_in_the_file_and_is_not_loaded(home: Rig) -> None:
    wanted = home.bundle(("shared], max_time: 1-00:00:00}", "shared], max_time: 20:00:00}"))
    home.write(wanted)
    plan = home.plan(wanted)
    change = ("partition", "dl", "MaxTime", "1-00:00:00", "20:00:00", Need.RECONFIGURE)
    assert (told(plan), plan.files) == ([change], ())
    assert plan.changes[0].effect.startswith("written, but not loaded; ")
    home.obey(plan, wanted)


def test_what_somebody_changed_by_hand(home: Rig) -> None:
    home.cluster.inside("scontrol", "update", "partition=nlp", "MaxTime=60", "State=DOWN")
    home.cluster.inside("sacctmgr", "-i", "modify", "qos", "where", "name=low", "set", "Priority=7")
    plan = home.plan(home.bundle())
    assert told(plan) == [
        ("partition", "nlp", "MaxTime", "01:00:00", "2-00:00:00", Need.RECONFIGURE),
        ("partition", "nlp", "State", "DOWN", "UP", Need.RECONFIGURE),
        ("qos", "low", "Priority", "7", "50", Need.LIVE),
    ]
    home.obey(plan, home.bundle())


def test_containment_is_read_by_slurmds(home: Rig) -> None:
    if home.facts.cgroup == "none":
        pytest.skip("this machine gives the sandbox no cgroups")
    wanted = home.bundle(constrain_devices=False)
    need = early(home, Need.RESTART_SLURMDS)
    plan = home.plan(wanted)
    assert told(plan) == [("cgroup", "cgroup.conf", "ConstrainDevices", "yes", "no", need)]
    home.obey(plan, wanted)


def test_a_file_that_slurmds_have_not_read(home: Rig) -> None:
    """A slurmd from before the file's last writing cannot know its text."""
    path = home.folder / "gres.conf"
    path.write_text(path.read_text() + "\n")
    os.utime(path, (time.time() + 1, time.time() + 1))
    plan = home.plan(home.bundle())
    need = early(home, Need.RESTART_SLURMDS)
    assert told(plan) == [("gres", "reserved-[1-2]", "gres.conf", "an older text", "the file's", need)]


def test_a_partition_comes_and_goes(home: Rig) -> None:
    """Slurm cancels the jobs of a partition that goes: they are named."""
    wanted = home.bundle(
        (
            "    partition: {node_groups: [reserved, shared], max_time: 1-00:00:00}",
            "    partition: {name: deep, node_groups: [reserved, shared], max_time: 1-00:00:00}",
        )
    )
    job = home.cluster.submit("dl1", "-pdl", "--time=10", "--wrap=sleep 300")
    until(lambda: home.cluster.job(job, "dl1").state == "RUNNING")
    plan = home.plan(wanted)
    assert told(plan) == [
        ("partition", "deep", "", None, "reserved-[1-2]", Need.RECONFIGURE),
        ("partition", "dl", "", "reserved-[1-2]", None, Need.DRAIN),
    ]
    assert [(row.id, row.user) for row in plan.jobs] == [(job, "dl1")]
    home.cluster.inside("scancel", str(job))
    home.cluster.ended(job, "dl1")
    home.obey(home.plan(wanted), wanted)


def test_slurmctld_down_is_said(home: Rig) -> None:
    home.stop("slurmctld")
    plan = home.plan(home.bundle(("max_time: 2-00:00:00", "max_time: 1-12:00:00")))
    assert plan.unknown == (
        "what slurmctld runs and its jobs are not compared: it does not answer scontrol ping",
    )
    assert told(plan) == [("partition", "nlp", "MaxTime", "2-00:00:00", "1-12:00:00", Need.RECONFIGURE)]
    home.restart(replace(daemons.slurmctld(), host=home.controller))
    home.answers()
