"""slurmdbd is away, then the records of two days arrive late: every job is charged, once, and says why."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

from hpctools.budget.month import Month, day_of
from hpctools.sandbox.daemons import API_ACCOUNT, api_command
from hpctools.sandbox.history import load
from hpctools.sandbox.past import FIRST_JOB_ID
from hpctools.sandbox.rise import up
from hpctools.slurm.run import Completed
from tests.system.harness import Cluster

PATIENCE = 10
NEW = re.compile(r"\d{4}-\d\d: new or changed: \d+ bill days, (\d+) jobs, (\d+) ledger entries\n")


def service(cluster: Cluster, *words: str, check: bool = True) -> Completed:
    """A command of the budget service."""
    argv = api_command(cluster.sandbox.running().ports["moto"], *words)
    # sacct itself asks a slurmdbd that is away for more than a minute.
    argv = ("env", f"HPCTOOLS_API_SACCT_TIMEOUT={PATIENCE}", *argv)
    return cluster.inside(*argv, user=API_ACCOUNT, timeout=120, check=check)


def reconcile(cluster: Cluster, months: list[Month]) -> tuple[int, int]:
    """How many jobs and ledger entries are new or changed."""
    told = [service(cluster, "reconcile", "--month", str(month)).stdout for month in months]
    found = [NEW.fullmatch(text) for text in told]
    assert all(found), told
    return sum(int(each[1]) for each in found if each), sum(int(each[2]) for each in found if each)


def statements(cluster: Cluster, months: list[Month]) -> list[str]:
    return [service(cluster, "statement", "--month", str(month), "--json").stdout for month in months]


def made_up(cluster: Cluster) -> int:
    """How many jobs of the sandbox's past slurmdbd knows, as sacct tells it."""
    words = (
        "sacct --noheader --parsable2 --allusers --allocations --duplicates --format=jobidraw --endtime=now"
    )
    told = cluster.inside(*words.split(), "--starttime=now-10days").stdout
    return sum(int(number) >= FIRST_JOB_ID for number in told.split())


def test_what_slurmdbd_hears_of_late_is_charged_once(small: Cluster, site_file: Path) -> None:
    now = int(time.time())
    present = Month.of(day_of(now))
    months = [present.previous, present]
    assert reconcile(small, months)[0] == 0
    before = statements(small, months)

    small.kill("slurmdbd")
    refused = service(small, "reconcile", check=False)
    assert (refused.code, "slurmdbd does not answer" in refused.stderr) == (3, True), refused
    assert statements(small, months) == before

    up(small.sandbox, site_file, 2, lambda name, seconds: None)
    late = load(small.sandbox, now, days=2)
    assert late == made_up(small) > 0
    jobs, entries = reconcile(small, months)
    assert (jobs, entries > 0) == (late, True)
    assert statements(small, months) != before
    whole = json.loads(statements(small, [present])[0])
    assert (whole["status"], whole["corrected"]) == ("estimated", False)
    assert reconcile(small, months) == (0, 0)
    assert "as they were stored" in service(small, "verify").stdout
