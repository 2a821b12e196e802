"""A made-up past on the real slurmdbd, and what the budget service makes of it."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from datetime import datetime, timezone
from decimal import Decimal

import pytest

from hpctools.budget.month import Month, day_of, day_start
from hpctools.sandbox import past
from hpctools.sandbox.daemons import API_ACCOUNT, api_command
from hpctools.sandbox.history import MARK, QUIET_SECONDS, SEED, load
from hpctools.slurm import run
from hpctools.slurm.accounting import FIELDS, JobRecord, parse
from tests.sandbox.spending import record, spent
from tests.system.harness import Cluster, until


def accounted(cluster: Cluster, since: int) -> list[JobRecord]:
    """What sacct tells of made-up jobs, by id, the database's own index left out."""
    found = parse(_sacct(cluster, since, ",".join(FIELDS)))
    made_up = [job for job in found if job.job_id >= past.FIRST_JOB_ID]
    return sorted((replace(job, dbindex=job.job_id) for job in made_up), key=lambda job: job.job_id)


def _sacct(cluster: Cluster, since: int, fields: str) -> str:
    begin = datetime.fromtimestamp(since, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    words = ("--allusers", "--allocations", "--duplicates", "--parsable2", "--noheader", "--noconvert")
    span = (f"--starttime={begin}", "--endtime=now", f"--format={fields}")
    return cluster.inside("env", "TZ=UTC", "sacct", *words, *span).stdout


def statement(cluster: Cluster, account: str, month: Month) -> Decimal:
    """What an account has spent, as the budget service tells it."""
    told = service(cluster, "statement", "--account", account, "--month", str(month), "--json")
    return Decimal(json.loads(told)["spent"])


def service(cluster: Cluster, *words: str) -> str:
    """A command of the budget service."""
    ports = cluster.sandbox.running().ports
    return cluster.inside(*api_command(ports["moto"], *words), user=API_ACCOUNT, timeout=60).stdout


@pytest.mark.releases
@pytest.mark.slow
def test_the_past_is_in_slurmdbd_once_and_the_budget_service_charges_it(small: Cluster) -> None:
    box, now = small.sandbox, int(time.time())
    before = Month.of(day_of(now)).previous
    since = day_start(before.start)
    made = past.make(box.blueprint(), since, now - QUIET_SECONDS, SEED)

    begin = time.monotonic()
    assert load(box, now) == len(made) > 100
    assert time.monotonic() - begin < 10  # 0.9 s on an idle machine
    seen = accounted(small, since)
    assert seen == [record(job) for job in made]
    assert set(_sacct(small, since, "admincomment").splitlines()) == {MARK}
    endings = {line.partition(" by ")[0] for line in _sacct(small, since, "exitcode,state").splitlines()}
    assert endings == {"0:0|COMPLETED", "1:0|FAILED", "0:0|TIMEOUT", "0:0|CANCELLED"}
    both = "select distinct node_inx from `uni-gpu_job_table` where nodelist = 'reserved-[1-2]'"
    assert small.inside("mariadb", "-N", "slurm_acct_db", "-e", both).stdout == "0-1\n"

    assert load(box, now) == load(box, now, days=1, seed=SEED + 1) == 0
    assert accounted(small, since) == seen
    here = [sys.executable, "-m", "hpctools.cli.main", "sandbox", "--state", str(box.layout.root)]
    assert run.run([*here, "history"], timeout=30).stdout == "nothing to add\n"

    real = small.submit("nlp1", "-pnlp", "--wrap", "true")
    assert real == 1
    assert small.ended(real, "nlp1").state == "COMPLETED"

    service(small, "reconcile", "--month", str(before))
    departments = spent(box.blueprint(), made, before)
    assert {name: statement(small, name, before) for name in departments} == departments


def test_a_past_ends_before_the_first_real_job(small: Cluster) -> None:
    """A sandbox that has worked for hours: the past must not lie on top of what really ran."""
    real = small.submit("nlp1", "-pnlp", "--wrap", "true")
    small.ended(real, "nlp1")
    later = int(time.time()) + 6 * 3600
    until(lambda: _sacct(small, later - 86400, "jobid") or None)
    assert load(small.sandbox, later, days=5) > 10
    jobs = accounted(small, later - 30 * 86400)
    assert max(job.end or 0 for job in jobs) <= time.time()
    assert 3 * 86400 < later - min(job.submitted for job in jobs) <= 5 * 86400
