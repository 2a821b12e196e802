"""Arrays, heterogeneous jobs, requeues, failures and reservations, from the real slurmdbd to their cost."""

from __future__ import annotations

import json
import time
import urllib.request
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from hpctools.budget.money import total
from hpctools.budget.month import Month, day_of
from hpctools.sandbox.daemons import API_ACCOUNT, API_FOLDER, api_command
from tests.system.harness import Cluster

PATIENCE = 300
SCRIPT = "#!/bin/sh\nsleep 2\n"


def service(cluster: Cluster, *words: str, site: str = "") -> str:
    """What a command of the budget service prints; with another site file also from another store."""
    argv = api_command(cluster.sandbox.running().ports["moto"], *words)
    if site:
        changes = {
            "HPCTOOLS_API_SITE": site,
            "HPCTOOLS_API_DATABASE_URL": f"sqlite:///{API_FOLDER}/reserved.db",
        }
        kept = [word for word in argv if word.partition("=")[0] not in changes]
        argv = ("env", *(f"{name}={value}" for name, value in changes.items()), *kept)
    return cluster.inside(*argv, user=API_ACCOUNT, timeout=PATIENCE).stdout


def listed(cluster: Cluster, month: Month) -> list[dict[str, Any]]:
    """Every job with a part of the month's bill, as programs get it."""
    token = service(cluster, "token", "create", "--name", "reader", "--admin").split()[-1]
    address = f"http://127.0.0.1:{cluster.sandbox.running().ports['api']}"
    asked = urllib.request.Request(
        f"{address}/v1/accounts/root/jobs?month={month}&limit=1000",
        headers={"Authorization": f"Bearer {token}"},
    )
    with urllib.request.urlopen(asked, timeout=60) as answer:
        found: list[dict[str, Any]] = json.load(answer)["jobs"]
    return found


def over(cluster: Cluster, *jobs: int) -> None:
    """Until slurmdbd knows when every task, part and run of some jobs ended."""

    def ended() -> bool:
        words = ("sacct", "--duplicates", "-nXP", f"--jobs={','.join(map(str, jobs))}", "--format=JobID,End")
        lines = [line.split("|") for line in cluster.inside(*words).stdout.splitlines()]
        told = {name.partition("_")[0].partition("+")[0] for name, _ in lines}
        return told == {str(job) for job in jobs} and all(end != "Unknown" for _, end in lines)

    cluster.until(lambda: ended() or None, 150)


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_each_kind_of_job_is_charged_once_and_by_its_name(small: Cluster) -> None:
    script = small.give("nlp1", "work.sh", SCRIPT)
    usual = ("-pnlp", "--ntasks=1")
    array = small.submit("nlp1", *usual, "--array=1-2", script)
    parts = small.submit("nlp1", *usual, ":", *usual, script)
    failed = small.submit("nlp1", *usual, "--wrap", "sleep 2; exit 3")
    again = small.submit("nlp1", *usual, "--requeue", "--wrap", "sleep 600")
    small.until(lambda: small.job(again, "nlp1").state == "RUNNING", 60)
    begun = time.time()
    small.until(lambda: time.time() > begun + 2)
    small.inside("scontrol", "requeue", str(again))
    small.until(lambda: small.job(again, "nlp1").state == "PENDING", 60)
    small.inside("scancel", str(again))
    over(small, array, parts, failed, again)

    month = Month.of(day_of(int(time.time())))
    service(small, "reconcile", "--month", str(month))
    found = listed(small, month)
    assert sorted((each["job_id"], each["state"]) for each in found) == sorted(
        [
            (f"{array}_1", "COMPLETED"),
            (f"{array}_2", "COMPLETED"),
            (f"{parts}+0", "COMPLETED"),
            (f"{parts}+1", "COMPLETED"),
            (str(failed), "FAILED"),
            (str(again), "REQUEUED"),
        ]
    )
    spent = json.loads(service(small, "statement", "--month", str(month), "--json"))["spent_on_jobs"]
    assert all(Decimal(each["amount"]) > 0 for each in found)
    assert total(Decimal(each["amount"]) for each in found) == Decimal(spent)


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_what_a_reservation_kept_free_is_charged_to_those_it_was_kept_for(small: Cluster) -> None:
    """By a service whose site file says so; cv has the node for some seconds, then nlp for a few."""
    own = f"{API_FOLDER}/site.yaml"
    other = f"sed 's/idle: proportional/idle: reservation-owner/' /etc/slurm/site.yaml >{own}"
    small.inside("sh", "-c", other, user=API_ACCOUNT)
    words = ("reservationname=course", "starttime=now", "duration=60", "nodes=reserved-1")
    small.inside("scontrol", "create", "reservation", "accounts=cv", *words)
    small.until(lambda: len(records(small)) == 1)
    begun = time.time()
    small.until(lambda: time.time() > begun + 2)
    small.inside("scontrol", "update", "reservationname=course", "accounts=nlp")
    small.until(lambda: len(records(small)) == 2)
    (first, _), (start, _) = records(small)
    small.until(lambda: time.time() > start + 2)  # slurmdbd's times are whole seconds

    now = int(time.time())
    month = Month.of(day_of(now))
    service(small, "reconcile", "--month", str(month), site=own)
    idle = {name: idle_of(small, name, month, own) for name in ("cv", "nlp", "dl")}
    assert idle["dl"] == 0
    # Both had the same node at the same price: cv until the change, nlp since then.
    assert idle["cv"] > 0
    assert idle["nlp"] > 0
    until = json.loads(service(small, "statement", "--month", str(month), "--json", site=own))["as_of"]
    had = int(datetime.fromisoformat(until.replace("Z", "+00:00")).timestamp()) - start
    assert abs(idle["nlp"] / idle["cv"] - Decimal(had) / (start - first)) < Decimal("0.000001")
    assert "as they were stored" in service(small, "verify", site=own)


def records(cluster: Cluster) -> list[tuple[int, int]]:
    """When each state of the reservation began and ends, as slurmdbd knows it."""
    words = ("sacctmgr", "-nP", "show", "reservation", "format=Start,End")
    told = cluster.inside("env", "SLURM_TIME_FORMAT=%s", *words).stdout.split()
    return sorted((int(line.split("|")[0]), int(line.split("|")[1])) for line in told)


def idle_of(cluster: Cluster, account: str, month: Month, site: str) -> Decimal:
    words = ("statement", "--account", account, "--month", str(month), "--json")
    return Decimal(json.loads(service(cluster, *words, site=site))["spent_on_idle"])
