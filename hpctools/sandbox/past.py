"""Whose the jobs of a made-up past were, so that every department spends a sensible part of its budget. Pure.

What a job costs, its part of idle nodes included, is worked out by the budget's own attribution of the
sandbox's own bill; then each job goes to the department that is furthest behind.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from hpctools.budget.attribution import attribute
from hpctools.budget.cost_explorer import parse
from hpctools.budget.from_site import budget_site
from hpctools.budget.month import Month, day_of, day_start
from hpctools.sandbox import bill
from hpctools.sandbox.blueprint import Blueprint
from hpctools.sandbox.workload import Pool, Shape, shapes
from hpctools.site import Site
from hpctools.site.departments import Department, Lab
from hpctools.site.tiers import Tier
from hpctools.slurm.accounting import JobRecord

# slurmctld counts from 1, and would need years to come here.
FIRST_JOB_ID = 900_001

_NAMES = ("pretrain", "finetune", "evaluate", "ablation", "sweep", "preprocess", "distill", "baseline")
_DEFAULT_TIER, _OTHER_TIER = 8, 1
_EAGERNESS = (0.92, 1.0)
_MOST_OF_WANTED = 1.03


@dataclass(frozen=True)
class PastJob:
    """A finished job that never ran.

    Attributes:
        shape: when, where and how large.
    """

    id: int
    name: str
    user: str
    account: str
    partition: str
    tier: str
    shape: Shape


def make(blueprint: Blueprint, since: int, until: int, seed: int) -> list[PastJob]:
    """The jobs that were submitted from `since` on and had ended by `until` (Unix seconds).

    What would still run then was cancelled a little earlier. The same arguments give the same jobs, and a
    later `until` changes nothing of those that had ended by themselves.
    """
    if until <= since:
        return []
    months = _months(Month.of(day_of(since)), Month.of(day_of(until)))
    made = shapes(_pools(blueprint), months, seed)
    jobs = _owned(blueprint, made, months, seed)
    return [replace(job, shape=_cut(job, until)) for job in jobs if _overlaps(job.shape, since, until)]


def _months(first: Month, last: Month) -> list[Month]:
    months = [first]
    while months[-1] < last:
        months.append(months[-1].next)
    return months


def _overlaps(shape: Shape, since: int, until: int) -> bool:
    return shape.submitted >= since and shape.start + 1 < until


def _cut(job: PastJob, until: int) -> Shape:
    shape = job.shape
    if shape.end <= until:
        return shape
    ran = until - shape.start
    return replace(shape, end=until - ran * (job.id % 10) // 100, state="CANCELLED")


def _pools(blueprint: Blueprint) -> list[Pool]:
    """The sandbox's nodes by group, as far as the budget knows them."""
    groups = budget_site(blueprint.site).groups
    return [Pool(groups[name], groups[name].nodes[:count]) for name, count in blueprint.node_counts.items()]


@dataclass(frozen=True)
class _Team:
    """Who may run a job: an account with its people, and what a job of theirs may have at most."""

    department: Department
    lab: Lab | None
    tiers: Mapping[str, Tier]

    @property
    def account(self) -> str:
        return self.lab.name if self.lab else self.department.name

    @property
    def users(self) -> Sequence[str]:
        owner = self.lab or self.department
        return owner.members or owner.users

    @property
    def share(self) -> int:
        return self.lab.fair_share if self.lab else 1

    def may_run(self, shape: Shape) -> bool:
        """Whether partition and limits let one such job run."""
        partition = self.department.partition
        if partition is None:
            return False
        limits = [self.department.limits, *([self.lab.limits] if self.lab else [])]
        sizes = [
            *((shape.gpus, most) for x in limits for most in (x.gpus, x.gpus_per_user, x.gpus_per_job)),
            *((shape.cpus, x.cpus) for x in limits),
            *((len(shape.nodes), x.nodes) for x in limits),
            *((shape.limit_minutes * 60, x.max_time) for x in limits),
            (shape.limit_minutes * 60, partition.max_time),
        ]
        fits = all(most is None or size <= most for size, most in sizes)
        return fits and shape.group in partition.node_groups and bool(self.tiers_of(shape))

    def tiers_of(self, shape: Shape) -> list[str]:
        """The tiers that take one such job."""
        seconds = shape.limit_minutes * 60
        return [
            name
            for name, tier in self.tiers.items()
            if (tier.max_time is None or seconds <= tier.max_time)
            and (tier.gpus_per_user is None or shape.gpus <= tier.gpus_per_user)
        ]


def _teams(site: Site) -> list[_Team]:
    teams = []
    for department in site.departments:
        names = [name for name in site.allowed_tiers(department) if not site.tiers[name].for_replicas]
        tiers = {name: site.tiers[name] for name in names}
        teams += [_Team(department, lab, tiers) for lab in department.labs or (None,)]
    return [team for team in teams if team.users]


def _owned(
    blueprint: Blueprint, made: Sequence[Shape], months: Sequence[Month], seed: int
) -> Iterator[PastJob]:
    site = blueprint.site
    teams = _teams(site)
    costs = _costs(blueprint, made, months)
    rngs = {month: Random(f"{seed} {month} owners") for month in months}  # noqa: S311
    wanted = {month: _wanted(site, sum(costs[month].values()), rngs[month]) for month in months}
    spent: dict[Month, defaultdict[str, float]] = {month: defaultdict(float) for month in months}
    for number, shape in enumerate(made):
        month = Month.of(day_of(shape.submitted))
        able: dict[str, list[_Team]] = {}
        for team in teams:
            if team.may_run(shape):
                able.setdefault(team.department.name, []).append(team)
        if able:
            cost = costs[month].get(number, 0.0)
            chosen = _furthest_behind(able, spent[month], wanted[month], cost)
            for each in months:
                spent[each][chosen] += costs[each].get(number, 0.0)
            yield _job(site, number, shape, able[chosen], rngs[month])


def _furthest_behind(
    names: Iterable[str], spent: Mapping[str, float], wanted: Mapping[str, float], cost: float
) -> str:
    """Who has spent the smallest part of what it should, of those whom one more job does not take too far."""

    def place(name: str) -> tuple[bool, float]:
        too_far = spent[name] + cost > wanted[name] * _MOST_OF_WANTED
        return too_far, spent[name] / wanted[name]

    return min(names, key=place)


def _job(site: Site, number: int, shape: Shape, teams: Sequence[_Team], rng: Random) -> PastJob:
    team = rng.choices(teams, [team.share for team in teams])[0]
    tiers = team.tiers_of(shape)
    weights = [_DEFAULT_TIER if name == site.default_tier else _OTHER_TIER for name in tiers]
    return PastJob(
        id=FIRST_JOB_ID + number,
        name=rng.choice(_NAMES),
        user=rng.choice(team.users),
        account=team.account,
        partition=team.department.partition_name,
        tier=rng.choices(tiers, weights)[0],
        shape=shape,
    )


def _wanted(site: Site, cost: float, rng: Random) -> dict[str, float]:
    """How the departments share a month's cost: as their budgets do, or else their fair shares, roughly."""
    budgets = {d.name: float(d.budget.amount) for d in site.departments if d.budget}
    shares = {d.name: float(d.fair_share) for d in site.departments}
    parts = budgets if len(budgets) == len(shares) else shares
    eager = {name: max(part, 1.0) * rng.uniform(*_EAGERNESS) for name, part in parts.items()}
    return {name: (cost or 1.0) * part / sum(eager.values()) for name, part in eager.items()}


def _costs(
    blueprint: Blueprint, made: Sequence[Shape], months: Sequence[Month]
) -> dict[Month, dict[int, float]]:
    """What each job (by its place in `made`) costs of each month's bill: each is an account of its own."""
    site = blueprint.site
    budget = budget_site(site)
    jobs = [_record(number, shape) for number, shape in enumerate(made)]
    costs: dict[Month, dict[int, float]] = {}
    for month in months:
        over = day_start(month.end)
        answer = bill.cost_and_usage(site, month, over, blueprint.node_counts)
        rows = parse([answer], bill.METRIC, site.billing.node_group_tag)
        costs[month] = defaultdict(float)
        for line in attribute(rows, jobs, budget, month, over).lines:
            if line.key.account:
                costs[month][int(line.key.account)] += float(line.amount)
    return costs


def _record(number: int, shape: Shape) -> JobRecord:
    return JobRecord(
        cluster="",
        dbindex=number,
        job_id=number,
        user="",
        account=str(number),
        partition="",
        qos="",
        submitted=shape.submitted,
        start=shape.start,
        end=shape.end,
        suspended_seconds=0,
        state=shape.state,
        cpus=shape.cpus,
        memory_mb=shape.memory_mb,
        gpus=shape.gpus,
        shards=0,
        nodes=",".join(shape.nodes),
        reservation="",
    )
