"""slurmdbd is away, then the records of two days arrive late: every job is charged, once, and says why."""

from __future__ import annotations

import json
import re
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from hpctools.budget.month import Month, day_of
from hpctools.sandbox.daemons import API_ACCOUNT, api_command
from hpctools.sandbox.history import load
from hpctools.sandbox.past import FIRST_JOB_ID
from hpctools.sandbox.rise import up
from hpctools.slurm.run import Completed
from tests.system.harness import Cluster

PATIENCE = 10
# Not the sandbox's own: its service reconciles that by itself, and would be told that a newer run was there.
STORE = "late"
NEW = re.compile(r"\d{4}-\d\d: new or changed: \d+ bill days, (\d+) jobs, (\d+) ledger entries\n")


def service(cluster: Cluster, *words: str, check: bool = True, store: str = STORE) -> Completed:
    """A command of the budget service, with a store of the tests' own."""
    argv = api_command(cluster.sandbox.running().ports["moto"], *words)
    argv = tuple(word.replace("/budget.db", f"/{store}.db") for word in argv)
    # sacct itself asks a slurmdbd that is away for more than a minute.
    argv = ("env", f"HPCTOOLS_API_SACCT_TIMEOUT={PATIENCE}", *argv)
    return cluster.inside(*argv, user=API_ACCOUNT, timeout=120, check=check)


def reconcile(cluster: Cluster, months: list[Month], store: str = STORE) -> tuple[int, int]:
    """How many jobs and ledger entries are new or changed."""
    told = [service(cluster, "reconcile", "--month", str(month), store=store).stdout for month in months]
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


@pytest.mark.slow
def test_what_slurmdbd_hears_of_late_is_charged_once(small: Cluster, site_file: Path) -> None:
    now = int(time.time())
    present = Month.of(day_of(now))
    months = [present.previous, present]
    reconcile(small, months)
    assert reconcile(small, months) == (0, 0)
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


def known_of_lab(cluster: Cluster, month: Month, store: str = STORE) -> dict[str, Any]:
    """What a statement says that does not depend on when it was worked out."""
    words = ("statement", "--account", "nlp-lab-a", "--month", str(month), "--json")
    told: dict[str, Any] = json.loads(service(cluster, *words, store=store).stdout)
    return {name: value for name, value in told.items() if name not in ("as_of", "projected")}


def ends(cluster: Cluster, *jobs: int) -> list[int] | None:
    """When jobs ended (Unix seconds), as slurmdbd knows it; None while it does not know it of all."""
    words = ("sacct", "-nXP", f"--jobs={','.join(map(str, jobs))}", "--format=End")
    told = cluster.inside("env", "SLURM_TIME_FORMAT=%s", *words).stdout.split()
    return [int(word) for word in told] if len(told) == len(jobs) and "Unknown" not in told else None


@pytest.mark.timeout(400)
@pytest.mark.slow
def test_jobs_that_ended_while_slurmdbd_was_away_are_charged_for_what_they_ran(
    small: Cluster, site_file: Path
) -> None:
    """slurmctld keeps what it could not tell, and tells it some seconds after slurmdbd is back.

    Until then slurmdbd knows jobs that are COMPLETED and have no end (decision 0166).
    """
    whole = ("-pnlp", "--nodes=1", "--exclusive", "--wrap")
    before = small.submit("nlp1", *whole, "sleep 600")
    small.until(lambda: small.job(before, "nlp1").state == "RUNNING")
    small.until(lambda: ends(small, before) is None and "RUNNING" in small.inside("sacct", "-nX").stdout)
    small.kill("slurmdbd")
    meanwhile = small.submit("nlp1", *whole, "true")
    assert small.ended(meanwhile, "nlp1", 60).state == "COMPLETED"
    small.inside("scancel", str(before))
    assert small.ended(before, "nlp1", 60).state == "CANCELLED"
    over = int(time.time())

    up(small.sandbox, site_file, 2, lambda name, seconds: None)
    month = Month.of(day_of(over))
    reconcile(small, [month])
    assert max(small.until(lambda: ends(small, before, meanwhile), 90)) <= over
    reconcile(small, [month])
    assert reconcile(small, [month], "undisturbed")[0] == 2
    known = known_of_lab(small, month)
    assert known == known_of_lab(small, month, "undisturbed")
    assert Decimal(known["spent_on_jobs"]) > 0
