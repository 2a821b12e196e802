"""Plans as people read them, as whole texts; and what must hold for every site."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from hpctools.cli.plan_text import plan_text
from hpctools.conf import AccountTree, Facts, Qos, compile
from hpctools.conf.plan import Live, Need, OnDisk, Plan, Step, make_plan
from hpctools.errors import SiteError
from hpctools.site import InvalidSiteError, loads
from tests.conf.plan.stage import EARLY, FOLDER, LATE, ROOT, bundle, job, live, planned, running
from tests.conf.sites import sites

GOLDEN = ROOT / "tests/golden/plan"
Golden = Callable[[Path, str], None]

BUSY_EDITS = (
    ("max_time: 2-00:00:00", "max_time: 1-00:00:00"),  # nlp: two pending jobs do not fit any more
    (
        "count: 4\n    capacity: reserved",
        "count: 3\n    capacity: reserved",
    ),  # a job runs on the node that goes
    ("priority: 500", "priority: 400"),
    ("members: [dl1, dl2]", "members: [dl1, dl3]"),
    ("share: {shards_per_gpu: 4}", "share: {shards_per_gpu: 2}"),
    ("tiers: [high, medium, low, preemptible]", "tiers: [high, medium, low]"),
)
JOBS = (
    job(11, "nlp1", "nlp", nodes=("reserved-3", "reserved-4")),
    job(12, "nlp2", "nlp", time_limit=2880),
    job(13, "nlp3", "nlp", time_limit=1440),
    job(14, "dl1", "dl", qos="preemptible", account="dl-lab-a"),
    job(15, "cv1", "cv", nodes=("shared-1",)),
)


@pytest.mark.parametrize("release", [EARLY, LATE], ids=["22.05", "24.11"])
def test_a_busy_plan_as_people_read_it(golden: Golden, release: Any) -> None:
    there, wanted = bundle(release=release), bundle(*BUSY_EDITS, release=release)
    plan = planned(there, wanted, *JOBS, release=release, prune=True)
    golden(GOLDEN / f"busy-{plan.release}.txt", plan_text(plan))


def test_the_same_on_a_narrow_terminal(golden: Golden) -> None:
    plan = planned(bundle(), bundle(*BUSY_EDITS), *JOBS, prune=True)
    text = plan_text(plan, width=44)
    golden(GOLDEN / "busy-narrow.txt", text)
    # What cannot be broken is left whole, to be copied; all else fits.
    assert [line for line in text.splitlines() if len(line) > 44 and " " in line.strip()] == []


def test_nothing_to_do() -> None:
    plan = planned(bundle(), bundle())
    assert plan_text(plan) == "uni-gpu (Slurm 22.05.8, /etc/slurm): no changes\n"
    assert (plan.empty, plan.steps, plan.files, plan.warnings) == (True, (), (), ())


def test_a_first_configuration(golden: Golden) -> None:
    """No files, nobody answers: all is new, and it is said that nothing could be asked."""
    silent = ("what slurmctld runs and its jobs are not compared: it does not answer",)
    nothing = Live(OnDisk({}), None, AccountTree((), (), (), {}, ()), (), None, silent)
    plan = make_plan(bundle(), nothing, folder=FOLDER, release=EARLY)
    golden(GOLDEN / "first.txt", plan_text(plan))


def test_without_an_answer_it_never_says_no_changes() -> None:
    there = replace(live(bundle()), shown=None, unknown=("what slurmctld runs is not compared: no",))
    plan = make_plan(bundle(), there, folder=FOLDER)
    assert plan.empty
    assert plan_text(plan) == (
        "uni-gpu (Slurm 22.05.8, /etc/slurm): no changes in what could be compared\n"
        "\n"
        "not compared\n"
        "  what slurmctld runs is not compared: no\n"
    )


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
@given(sites())
def test_what_runs_as_wanted_is_no_change(data: dict[str, Any]) -> None:
    for release in (EARLY, LATE):
        try:
            there = compile(loads(yaml.safe_dump(data)), Facts(slurm_version=release))
        except (SiteError, InvalidSiteError):
            return
        plan = planned(there, there, release=release, prune=True)
        assert plan.changes == ()
        assert Plan.from_json(plan.to_json()) == plan


def test_comments_order_and_folding_are_no_change() -> None:
    wanted = bundle()
    texts = {file.path: file.text for file in wanted.files}
    lines = [f"{line}   # so" if line and "=" in line else line for line in texts["slurm.conf"].splitlines()]
    lines[-1] = lines[-1].replace(" AllowQos", " \\\n  allowqos").split("   # so")[0]
    settings_, rest = lines[: lines.index("# Nodes   # so") if "# Nodes   # so" in lines else 40], lines[40:]
    other = "\n".join([*reversed(settings_), *rest]).replace("reserved-[1-4]", "reserved-4,reserved-[1-3]")
    disk = OnDisk(
        {**texts, "slurm.conf": other, "gres.conf": "\n" + texts["gres.conf"].replace("Name=", "name=")}
    )
    plan = make_plan(wanted, replace(live(wanted), disk=disk), folder=FOLDER)
    assert plan.changes == ()
    assert [(file.path, file.meaning) for file in plan.files] == [("slurm.conf", False), ("gres.conf", False)]


@pytest.mark.parametrize(("release", "told"), [(EARLY, 0), (LATE, 0), ((26, 5, 5), 1)])
def test_a_topology_yaml_that_slurmctld_prefers_is_told(release: Any, told: int) -> None:
    wanted = bundle(release=release)
    there = live(wanted, release=release)
    disk = OnDisk({**there.disk.files, "topology.yaml": "- topology: flat\n"})
    plan = make_plan(wanted, replace(there, disk=disk), folder=FOLDER)
    assert plan.changes == ()
    assert sum("topology.yaml is in the folder" in each for each in plan.warnings) == told


def test_three_sides() -> None:
    """Written and not loaded, loaded and not written, neither: one change each, and what it takes."""
    old, new = bundle(), bundle(extra_parameters={"KillWait": "60", "MaxJobCount": "5000"})
    unloaded = replace(live(new), shown=running(old))
    plan = make_plan(new, unloaded, folder=FOLDER)
    assert [(c.key, c.before, c.after, c.needs, c.effect) for c in plan.changes] == [
        ("KillWait", "30 sec", "60", Need.RECONFIGURE, "written, but not loaded"),
        ("MaxJobCount", "10000", "5000", Need.RESTART_SLURMCTLD, "written, but not loaded"),
    ]
    unwritten = replace(live(new), disk=live(old).disk)
    plan = make_plan(new, unwritten, folder=FOLDER)
    effect = "it runs so already; only the file says otherwise"
    assert [(c.key, c.before, c.after, c.needs, c.effect) for c in plan.changes] == [
        ("KillWait", "30", "60", Need.NOTHING, effect),
        ("MaxJobCount", None, "5000", Need.NOTHING, effect),
    ]
    assert (plan.steps, [(file.path, file.meaning) for file in plan.files]) == ((), [("slurm.conf", True)])
    # What nobody states any more is its default again.
    assert [(c.key, c.before, c.after) for c in planned(new, old).changes] == [
        ("KillWait", "60", "30"),
        ("MaxJobCount", "5000", None),
    ]


def test_what_is_loaded_and_nobody_states_any_more() -> None:
    """The line is gone from the file, and slurmctld has not been told."""
    there = replace(
        live(bundle()), shown=running(bundle(extra_parameters={"HealthCheckProgram": "/opt/nhc"}))
    )
    plan = make_plan(bundle(), there, folder=FOLDER)
    assert [(c.key, c.before, c.after, c.needs, c.effect) for c in plan.changes] == [
        ("HealthCheckProgram", "/opt/nhc", None, Need.RECONFIGURE, "written, but not loaded")
    ]


def test_secrets_are_nowhere_in_a_plan() -> None:
    old, new = bundle(storage_password="first-one"), bundle(storage_password="second-one")
    plan = planned(old, new)
    assert [(c.area, c.key, c.before, c.after, c.needs) for c in plan.changes] == [
        ("slurmdbd", "StoragePass", "(secret)", "(new secret)", Need.RESTART_SLURMDBD)
    ]
    told = plan.to_json() + plan_text(plan) + "".join(file.diff for file in plan.files) + repr(plan)
    assert "-one" not in told
    assert "+StoragePass=(new secret)\n" in plan.files[0].diff


def test_another_live_state_has_another_digest_and_jobs_are_no_part_of_it() -> None:
    one = live(bundle())
    assert one.digest == replace(live(bundle()), jobs=JOBS).digest
    others = [
        live(bundle(("priority: 500", "priority: 400"))),
        replace(one, shown=running(bundle(extra_parameters={"KillWait": "60"}))),
        replace(one, disk=OnDisk({**one.disk.files, "gres.conf": "# by hand\n"})),
    ]
    assert len({one.digest, *(other.digest for other in others)}) == 4


DIGEST = """
from hpctools.conf.accounts import AccountTree, Beside
from hpctools.conf.plan import Live, OnDisk
names = frozenset(f"x{number}" for number in range(20))
pairs = frozenset((name, "lab") for name in names)
beside = Beside(names, ("cpu",), names, names, pairs, ("a|b",), pairs, pairs)
tree = AccountTree(("uni",), (), (), {}, (), beside, names)
print(Live(OnDisk({}), None, tree, (), None).digest)
"""


def test_a_plan_that_was_saved_by_another_process_has_the_same_digest() -> None:
    """Python's sets have another order in each."""
    found = {
        subprocess.run(
            [sys.executable, "-c", DIGEST],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1


def test_slurmdbd_is_waited_for_only_where_its_answers_count() -> None:
    """Everything else is compared while it still answers; asked again for a second comparison it is not."""
    there, wanted = live(bundle()), bundle(("priority: 500", "priority: 400"))
    asked: list[str] = []

    def later() -> tuple[AccountTree | None, tuple[str, ...]]:
        asked.append("accounts")
        return there.accounts, ("something is not known",)

    known = replace(there, unknown=("something is not known",))
    early = replace(there, accounts=None, later=later)
    assert make_plan(wanted, early, folder=FOLDER) == make_plan(wanted, known, folder=FOLDER)
    assert asked == ["accounts"]
    assert early.complete() == known


def test_no_slurmd_is_restarted_where_none_runs() -> None:
    """Powered-down nodes read their files when they come back."""
    old, new = bundle(), bundle(constrain_devices=False)
    there = live(old)
    assert there.shown is not None
    down = {
        name: replace(status, state="IDLE+CLOUD+POWERED_DOWN") for name, status in there.shown.status.items()
    }
    plan = make_plan(new, replace(there, shown=replace(there.shown, status=down)), folder=FOLDER)
    assert [(c.key, c.needs, c.nodes) for c in plan.changes] == [
        ("ConstrainDevices", Need.RESTART_SLURMDS, ())
    ]
    assert plan.steps == ()
    assert planned(old, new).steps == (
        Step(
            Need.RESTART_SLURMDS,
            ("reserved-1", "reserved-2", "reserved-3", "reserved-4", "shared-1", "shared-2"),
        ),
    )


def test_people_whom_the_site_does_not_name_stay_unless_asked() -> None:
    wanted = bundle(("members: [dl1, dl2]", "members: [dl1]"))
    plan = planned(bundle(), wanted)
    hint = "slurmdbd has what the site does not name: association dl2 in dl-lab-a; --prune removes it"
    assert (plan.changes, plan.warnings) == ((), (hint,))
    busy = job(7, "dl2", "dl", account="dl-lab-a", nodes=("reserved-1",))
    pruned = planned(bundle(), wanted, prune=True)
    assert [(c.subject, c.after, c.needs) for c in pruned.changes] == [("dl2 in dl-lab-a", None, Need.LIVE)]
    kept = planned(bundle(), wanted, busy, prune=True)
    assert (kept.changes, kept.warnings) == ((), ("association dl2 in dl-lab-a stays: 1 job running",))


def test_a_qos_that_is_nowhere_is_told_before_sacctmgr_refuses_it() -> None:
    """A slip of the pen in `settings` ended an apply in the middle; one of slurmdbd's own is no slip."""
    wanted = bundle(("members: [dl1, dl2]", 'members: [dl1, dl2]\n        settings: {QOS: "+high,+hihg"}'))
    (told,) = make_plan(wanted, live(bundle()), folder=FOLDER).warnings
    assert told.startswith(
        "account dl-lab-a: QOS names hihg, and there is neither such a tier nor such a QoS"
    )
    there = live(bundle())
    assert there.accounts is not None
    accounts = replace(there.accounts, qos=(*there.accounts.qos, Qos("hihg", {})))
    plan = make_plan(wanted, replace(there, accounts=accounts), folder=FOLDER)
    assert [each for each in plan.warnings if "hihg" in each and "names" in each] == []
