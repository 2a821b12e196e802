"""When accounts are kept to their budgets; tests/system has what Slurm makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal

import pytest
from sqlalchemy import Engine, insert, select

from api.db.access_models import AuditEntry
from api.db.alone import alone
from api.db.budget_models import BurnReading, EnforcementAct
from api.db.engine import reading, writing
from api.services.budgets import Change, approve, set_budget
from api.services.enforced import kept_accounts
from api.services.enforcement import STALE_SECONDS, apply, give_back, make_plan
from hpctools.budget.allowance import Enforcement, Spec
from hpctools.budget.enforcement import Live, PendingJob
from hpctools.budget.tree import BudgetSite
from hpctools.errors import BudgetError, CommandError

DAY = 86400


@dataclass
class Cluster:
    """A cluster in memory that does what it is told, until `broken`."""

    limits: dict[str, dict[str, str]] = field(default_factory=dict)
    marks: dict[str, dict[str, str]] = field(default_factory=dict)
    jobs: dict[int, PendingJob] = field(default_factory=dict)
    deaf: bool = False
    broken: bool = False

    def live(self, accounts: Iterable[str]) -> Live:
        return Live(self.limits, self.marks, tuple(self.jobs.values()))

    def set_limits(
        self, account: str, changes: Mapping[str, tuple[str, str]], mark: Mapping[str, str]
    ) -> None:
        if self.broken:
            raise CommandError("sacctmgr failed", argv=("sacctmgr",), code=1)
        if not self.deaf:
            self.limits.setdefault(account, {}).update({key: after for key, (_, after) in changes.items()})
            self.marks[account] = dict(mark)
            if not mark:
                del self.marks[account]

    def hold(self, job: int, account: str) -> None:
        if job in self.jobs:
            self.jobs[job] = replace(self.jobs[job], held=True, marked=True)

    def release(self, job: int) -> None:
        self.jobs[job] = replace(self.jobs[job], held=False, marked=False)

    def set_qos(self, job: int, qos: str) -> None:
        self.jobs[job] = replace(self.jobs[job], qos=qos)


@pytest.fixture
def over(site: BudgetSite, spend: Callable[[str, str], None]) -> BudgetSite:
    """A department that has spent far more than its 1,000, and whose jobs are to be held after two days."""
    spend("nlp-lab-a", "20000.5")
    spec = Spec(Decimal(1000), "USD", enforcement=Enforcement("hold", 100, 2 * DAY))
    return replace(
        site,
        accounts=tuple(replace(each, spec=spec if each.name == "nlp" else None) for each in site.accounts),
    )


def act(site: BudgetSite, engine: Engine, cluster: Cluster, now: int) -> list[str]:
    planned = apply(engine, site, cluster, Change("operator:root", now), stale_after=10 * DAY)
    return [f"{step.action} {step.kind} {step.subject}" for step in planned.steps]


def waiting() -> Cluster:
    return Cluster({"nlp": {"GrpSubmitJobs": "20"}}, {}, {7: PendingJob(7, 1, "nlp-lab-a", "high")})


def test_the_grace_runs_from_the_day_on_which_it_was_told(engine: Engine, over: BudgetSite, now: int) -> None:
    cluster = waiting()
    assert act(over, engine, cluster, now) == []
    assert make_plan(engine, over, cluster, now + DAY).waiting == (("nlp", now + 2 * DAY),)
    assert act(over, engine, cluster, now + 2 * DAY - 1) == []
    assert act(over, engine, cluster, now + 2 * DAY) == ["take limit nlp", "take hold 7"]
    assert act(over, engine, cluster, now + 2 * DAY) == []


def test_an_approval_gives_everything_back_and_the_trail_has_it_all(
    engine: Engine, over: BudgetSite, now: int
) -> None:
    cluster, later = waiting(), now + 2 * DAY
    act(over, engine, cluster, now)
    act(over, engine, cluster, later)
    change = Change("jane.doe", later, "paper deadline")
    approve(engine, over.by_name["nlp"], Decimal(10**6), date(2027, 1, 1), change)
    assert act(over, engine, cluster, later) == ["give limit nlp", "give hold 7"]
    assert (cluster.limits, cluster.marks, cluster.jobs) == (waiting().limits, {}, waiting().jobs)
    with reading(engine) as session:
        actions = [row.action for row in session.scalars(select(AuditEntry).order_by(AuditEntry.id))]
        states = [row.state for row in session.scalars(select(EnforcementAct).order_by(EnforcementAct.id))]
    assert actions == ["enforce.apply", "budget.approve", "enforce.apply"]
    assert states == ["begun", "begun", "held", "held", "returned", "returned"]


def test_old_data_freezes_both_ways_and_undo_works_all_the_same(
    engine: Engine, over: BudgetSite, now: int
) -> None:
    cluster = waiting()
    act(over, engine, cluster, now)
    act(over, engine, cluster, now + 2 * DAY)
    late = Change("operator:root", now + STALE_SECONDS + 1)
    approve(engine, over.by_name["nlp"], Decimal(10**6), date(2027, 1, 1), late)
    frozen = apply(engine, over, cluster, late)
    assert (frozen.steps, "too old" in frozen.frozen) == ((), True)
    assert cluster.limits["nlp"]["GrpSubmitJobs"] == "0"
    give_back(engine, over, cluster, "nlp", late)
    assert (cluster.limits, cluster.jobs) == (waiting().limits, waiting().jobs)


def test_a_budget_that_is_gone_holds_nothing(engine: Engine, over: BudgetSite, now: int) -> None:
    cluster = waiting()
    act(over, engine, cluster, now)
    act(over, engine, cluster, now + 2 * DAY)
    none = replace(over, accounts=tuple(replace(each, spec=None) for each in over.accounts))
    assert act(none, engine, cluster, now + 2 * DAY) == ["give limit nlp", "give hold 7"]


def in_tier(site: BudgetSite, tier: str) -> BudgetSite:
    spec = Spec(Decimal(1000), "USD", enforcement=Enforcement("lower-tier", 100, 0, tier))
    return replace(
        site,
        accounts=tuple(replace(each, spec=spec if each.name == "nlp" else None) for each in site.accounts),
    )


def tiered() -> Cluster:
    before = {"nlp": {"QOS": "high,low", "DefaultQOS": "high"}}
    return Cluster(before, {}, {7: PendingJob(7, 1, "nlp-lab-a", "high")})


def test_another_tier_is_applied_and_what_was_before_comes_back(
    engine: Engine, over: BudgetSite, now: int
) -> None:
    cluster = tiered()
    limits = ["take limit nlp", "take limit nlp"]
    assert act(in_tier(over, "low"), engine, cluster, now) == [*limits, "take tier 7"]
    assert act(in_tier(over, "lowest"), engine, cluster, now + 1) == [*limits, "give tier 7", "take tier 7"]
    assert cluster.limits["nlp"] == {"QOS": "lowest", "DefaultQOS": "lowest"}
    assert cluster.jobs[7].qos == "lowest"
    assert act(in_tier(over, "lowest"), engine, cluster, now + 3) == []
    give_back(engine, over, cluster, "nlp", Change("operator:root", now + 4))
    assert (cluster.limits, cluster.marks, cluster.jobs) == (tiered().limits, {}, tiered().jobs)


def test_a_tier_that_the_site_no_longer_opens_to_an_account_is_not_applied(
    engine: Engine, over: BudgetSite, now: int
) -> None:
    """A person set it, and then the site file changed: what was taken for it is given back."""
    cluster, change = tiered(), Change("dean", now)
    spec = Spec(Decimal(1000), "USD", enforcement=Enforcement("lower-tier", 100, 0, "low"))
    none = replace(over, accounts=tuple(replace(each, spec=None) for each in over.accounts))
    set_budget(engine, none, none.by_name["nlp"], spec, date(2026, 11, 1), change)
    assert act(none, engine, cluster, now) == ["take limit nlp", "take limit nlp", "take tier 7"]
    (before,) = kept_accounts(engine, none, [none.by_name["nlp"]], now)
    closed = replace(none, accounts=tuple(replace(each, lower_tiers=()) for each in none.accounts))
    assert act(closed, engine, cluster, now + 1) == ["give limit nlp", "give limit nlp", "give tier 7"]
    (after,) = kept_accounts(engine, closed, [closed.by_name["nlp"]], now + 1)
    assert (before.stage, after.stage) == ("kept", "no-tier")
    assert (cluster.limits, cluster.marks, cluster.jobs) == (tiered().limits, {}, tiered().jobs)


def test_a_list_that_somebody_set_meanwhile_is_not_overwritten(
    engine: Engine, over: BudgetSite, now: int
) -> None:
    cluster = tiered()
    act(in_tier(over, "low"), engine, cluster, now)
    cluster.limits["nlp"]["QOS"] = "low,urgent"
    give_back(engine, over, cluster, "nlp", Change("operator:root", now + 1))
    assert (cluster.limits["nlp"]["QOS"], cluster.marks) == ("low,urgent", {})


def test_what_slurm_did_not_do_is_said_and_tried_again(engine: Engine, over: BudgetSite, now: int) -> None:
    cluster = waiting()
    act(over, engine, cluster, now)
    cluster.deaf = True
    with pytest.raises(BudgetError, match="Slurm was told and is not so: limit nlp GrpSubmitJobs"):
        act(over, engine, cluster, now + 2 * DAY)
    cluster.deaf = False
    assert act(over, engine, cluster, now + 2 * DAY) == ["take limit nlp"]


def test_who_fails_in_the_middle_goes_on_later(engine: Engine, over: BudgetSite, now: int) -> None:
    cluster = waiting()
    act(over, engine, cluster, now)
    cluster.broken = True
    with pytest.raises(CommandError):
        act(over, engine, cluster, now + 2 * DAY)
    cluster.broken = False
    assert act(over, engine, cluster, now + 2 * DAY) == ["take limit nlp", "take hold 7"]
    assert act(over, engine, cluster, now + 2 * DAY) == []


@pytest.mark.parametrize(
    ("said", "held"), [("You gave a bad qos 'lowww'", True), ("Connection refused", False)]
)
def test_what_is_refused_of_one_account_keeps_nothing_from_the_others(
    engine: Engine, over: BudgetSite, now: int, said: str, held: bool
) -> None:
    """cv's tier is none that Slurm knows: nlp is held all the same. Where nobody answers no more is tried."""
    of_both = {"nlp-lab-a": "20000.5", "cv-lab-a": "5000"}
    with writing(engine) as session:
        more = {"at": now + 1, "per_hour": Decimal(1), "jobs": 1}
        told = [{"account": name, "unbilled": Decimal(cost), **more} for name, cost in of_both.items()]
        session.execute(insert(BurnReading), told)
    wrong = Spec(Decimal(1000), "USD", enforcement=Enforcement("lower-tier", 100, 0, "lowww"))
    right = Spec(Decimal(1000), "USD", enforcement=Enforcement("hold"))
    specs = {"nlp": right, "cv": wrong}
    by_name = sorted(over.accounts, key=lambda each: each.name)
    both = replace(over, accounts=tuple(replace(each, spec=specs.get(each.name)) for each in by_name))

    class Strict(Cluster):
        def set_limits(
            self, account: str, changes: Mapping[str, tuple[str, str]], mark: Mapping[str, str]
        ) -> None:
            if account == "cv":
                raise CommandError("sacctmgr failed", argv=("sacctmgr",), code=1, stderr=said)
            super().set_limits(account, changes, mark)

    cluster = Strict({}, {}, {7: PendingJob(7, 1, "nlp-lab-a", "high")})
    for moment in (now + 1, now + 2):
        with pytest.raises(CommandError):
            act(both, engine, cluster, moment)
    assert cluster.jobs[7].held == held
    assert cluster.marks == ({"nlp": {"GrpSubmitJobs": ""}} if held else {})


def test_one_at_a_time(engine: Engine, over: BudgetSite, now: int) -> None:
    with alone(engine, "enforce") as mine:
        assert mine
        with pytest.raises(BudgetError, match="somebody else changes the cluster's limits"):
            act(over, engine, waiting(), now)
