"""Enforcement of budgets on a real slurmdbd and slurmctld: what is taken, what is left, what comes back."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, insert

from api.db.budget_models import BurnReading
from api.db.engine import connect, writing
from api.db.migrate import upgrade
from api.services.budgets import Change, approve
from api.services.enforcement import Planned, apply, give_back, make_plan
from api.services.reconcile import reconcile
from api.services.slurm_limits import SlurmLimits
from hpctools.budget.allowance import Enforcement, Policy, Spec
from hpctools.budget.from_site import budget_site
from hpctools.budget.month import Month, day_of
from hpctools.budget.tree import BudgetSite
from hpctools.errors import CommandError
from hpctools.site import load
from tests.system.applied import Applied
from tests.system.harness import Cluster

pytestmark = pytest.mark.releases


class Nothing:
    """A month without a bill and without jobs."""

    name = "aws-ce"

    def rows(self, month: Month) -> Iterable[Any]:
        return ()

    def jobs(self, month: Month, now: int) -> Iterable[Any]:
        return ()

    windows = jobs


@dataclass
class Bench:
    """A cluster, a store, and a department that has spent 100 of its budget of 50."""

    applied: Applied
    engine: Engine
    site: BudgetSite
    slurm: SlurmLimits
    now: int

    @property
    def cluster(self) -> Cluster:
        return self.applied.cluster

    @property
    def change(self) -> Change:
        return Change("operator:root", self.now, "test")

    def budget(self, policy: Policy, tier: str = "") -> None:
        spec = Spec(Decimal(50), "USD", enforcement=Enforcement(policy, 100, 0, tier))
        accounts = tuple(
            replace(each, spec=spec if each.name == "nlp" else None) for each in self.site.accounts
        )
        self.site = replace(self.site, accounts=accounts)

    def apply(self) -> list[tuple[str, str, str]]:
        return told(apply(self.engine, self.site, self.slurm, self.change))

    def plan(self, later: int = 0) -> Planned:
        return make_plan(self.engine, self.site, self.slurm, self.now + later)

    def limit(self, key: str = "GrpSubmitJobs") -> str:
        shown = self.cluster.inside(
            "sacctmgr", "-nP", "show", "assoc", "where", "account=nlp", "user=", f"format={key}", "WOPLimits"
        )
        return shown.stdout.strip()

    def waiting(self, *words: str) -> int:
        return self.cluster.submit("nlp1", "-p", "nlp", "--begin=now+1hour", *words, "--wrap", "true")

    def reason(self, job: int) -> str:
        return self.cluster.job(job, "nlp1").reason

    def admin_comment(self, job: int) -> str:
        shown = self.cluster.inside("squeue", "-h", "-j", str(job), "--Format=admin_comment:200").stdout
        return shown.strip().removeprefix("(null)")


def told(planned: Planned) -> list[tuple[str, str, str]]:
    assert planned.frozen == ""
    return [(step.action, step.kind, step.subject) for step in planned.steps]


@pytest.fixture
def bench(box: Applied, site_file: Path, tmp_path: Path) -> Iterator[Bench]:
    def call(argv: Sequence[str], timeout: float) -> str:
        return box.cluster.inside("env", "SLURM_TIME_FORMAT=%s", *argv, timeout=60).stdout

    engine = connect(f"sqlite:///{tmp_path}/store.sqlite")
    upgrade(engine)
    site, now = budget_site(load(site_file)), int(time.time())
    reconcile(engine, site, Month.of(day_of(now)), Nothing(), Nothing(), now)
    row = {"at": now, "account": "nlp-lab-a", "per_hour": Decimal(1), "unbilled": Decimal(100), "jobs": 1}
    with writing(engine) as session:
        session.execute(insert(BurnReading), [row])
    yield Bench(box, engine, site, SlurmLimits("uni-gpu", call), now)
    engine.dispose()
    box.cluster.inside("scancel", "--user=nlp1")
    settings = ("GrpSubmitJobs=-1", "Description=nlp")
    box.cluster.inside("sacctmgr", "-i", "modify", "account", "where", "name=nlp", "set", *settings)


def test_hold_takes_what_it_says_and_gives_back_exactly_that(bench: Bench) -> None:
    cluster = bench.cluster
    cluster.inside("sacctmgr", "-i", "modify", "account", "where", "name=nlp", "set", "GrpSubmitJobs=20")
    running = bench.applied.running_job()
    job, users_own = bench.waiting(), bench.waiting("--hold")
    cluster.inside("scontrol", "update", f"jobid={job}", "AdminComment=seen by ops")

    bench.budget("hold")
    assert bench.apply() == [("take", "limit", "nlp"), ("take", "hold", str(job))]
    assert (bench.limit(), bench.reason(job), bench.reason(users_own)) == ("0", "JobHeldAdmin", "JobHeldUser")
    assert bench.admin_comment(job) == "seen by ops hpctools-budget:nlp"
    assert cluster.job(running, "nlp1").state == "RUNNING"
    with pytest.raises(CommandError, match=r"AssocGrpSubmitJobsLimit|Job violates accounting"):
        bench.waiting()
    assert bench.apply() == []

    # The configuration compiler sees the account as it was before: 20, which the site does not want.
    assert bench.applied.hpctools("drift", check=False).stdout == ""
    bench.applied.apply(bench.applied.base, "--yes")
    assert bench.limit() == "0"

    approve(
        bench.engine,
        bench.site.by_name["nlp"],
        Decimal(60),
        day_of(bench.now) + timedelta(days=9),
        bench.change,
    )
    assert bench.apply() == [("give", "limit", "nlp"), ("give", "hold", str(job))]
    assert (bench.limit(), bench.reason(users_own)) == ("20", "JobHeldUser")
    assert bench.reason(job) != "JobHeldAdmin"
    assert bench.admin_comment(job) == "seen by ops"
    shown = cluster.inside("sacctmgr", "-nP", "show", "account", "where", "name=nlp", "format=Descr").stdout
    assert shown.strip() == "nlp"
    assert bench.waiting() > 0
    assert bench.apply() == []


@pytest.mark.long
def test_what_others_did_meanwhile_stays(bench: Bench) -> None:
    job = bench.waiting()
    bench.budget("hold")
    bench.apply()
    bench.cluster.inside("scontrol", "release", str(job))
    bench.cluster.inside("sacctmgr", "-i", "modify", "account", "where", "name=nlp", "set", "GrpSubmitJobs=5")
    assert bench.apply() == [("forget", "hold", str(job))]
    assert bench.reason(job) != "JobHeldAdmin"
    steps = give_back(bench.engine, bench.site, bench.slurm, "nlp", bench.change)
    assert [(step.action, step.kind) for step in steps] == [("forget", "limit")]
    assert bench.limit() == "5"
    assert give_back(bench.engine, bench.site, bench.slurm, "nlp", bench.change) == ()


@pytest.mark.long
def test_nothing_is_touched_while_the_data_is_old(bench: Bench) -> None:
    bench.budget("block")
    assert told(bench.plan()) == [("take", "limit", "nlp")]
    late = bench.plan(later=2 * 86400 + 1)
    assert (late.steps, late.frozen) == (
        (),
        "what is known of nlp is too old: nothing is taken and nothing given back",
    )


@pytest.mark.long
def test_a_lower_tier_is_for_new_jobs_and_for_those_that_wait(bench: Bench) -> None:
    before = bench.limit("QOS"), bench.limit("DefaultQOS")
    job = bench.waiting("--qos=high")
    bench.budget("lower-tier", "low")
    taken = [("take", "limit", "nlp"), ("take", "limit", "nlp"), ("take", "tier", str(job))]
    assert bench.apply() == taken
    assert (bench.limit("QOS"), bench.limit("DefaultQOS")) == ("low", "low")
    new = bench.waiting()
    assert [bench.cluster.job(each, "nlp1").qos for each in (job, new)] == ["low", "low"]
    with pytest.raises(CommandError, match=r"Invalid qos"):
        bench.waiting("--qos=high")
    assert bench.apply() == []
    bench.budget("lower-tier", "elastic")
    again = [("take", "tier", str(new)), ("give", "tier", str(job)), ("take", "tier", str(job))]
    assert bench.apply() == [*taken[:2], *again]
    assert (bench.limit("QOS"), bench.limit("DefaultQOS")) == ("elastic", "elastic")
    bench.budget("warn")
    given = [("give", kind, subject) for _, kind, subject in taken]
    assert bench.apply() == [*given, ("give", "tier", str(new))]
    assert (bench.limit("QOS"), bench.limit("DefaultQOS")) == before
    assert bench.cluster.job(job, "nlp1").qos == "high"
