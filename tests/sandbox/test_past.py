"""The made-up past: possible on the nodes, and sensible for the budgets."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import date, datetime, timezone
from decimal import Decimal
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpctools import site
from hpctools.budget.month import Month, day_of, day_start
from hpctools.sandbox.blueprint import Blueprint, draw, example_site
from hpctools.sandbox.past import FIRST_JOB_ID, PastJob, make
from hpctools.sandbox.workload import Shape
from tests.sandbox.spending import spent

NOVEMBER = Month(2026, 11)
OCTOBER = Month(2026, 10)
# CPUs, memory and GPUs of one node, as slurm.conf has them.
HARDWARE = {"reserved": (96, 1120665, 8), "shared": (48, 186777, 4)}

FIRST = PastJob(
    id=900001,
    name="baseline",
    user="nlp1",
    account="nlp-lab-a",
    partition="nlp",
    tier="medium",
    shape=Shape(
        group="reserved",
        nodes=("reserved-1",),
        cpus=24,
        memory_mb=280166,
        gpus=2,
        submitted=1790842390,
        start=1790842391,
        end=1790846066,
        limit_minutes=120,
        state="COMPLETED",
    ),
)

seeds = st.integers(min_value=0, max_value=10**6)
nodes = st.integers(min_value=1, max_value=6)
months = st.builds(Month, st.integers(2024, 2028), st.integers(1, 12))


@cache
def blueprint(count: int = 6) -> Blueprint:
    path = example_site()
    assert path is not None
    return draw(site.load(path), count)


def whole(month: Month, seed: int = 1, count: int = 6) -> list[PastJob]:
    """The past at the last second of a month."""
    return make(blueprint(count), day_start(month.previous.start), day_start(month.end) - 1, seed)


def test_the_past_of_a_seed_is_always_the_same() -> None:
    """Written out, so that another process, Python or machine would be seen to differ."""
    jobs = whole(NOVEMBER)
    assert whole(NOVEMBER) == jobs
    assert whole(NOVEMBER, seed=2) != jobs
    assert jobs[0] == FIRST
    assert len(jobs) == 549


@settings(max_examples=12, deadline=None)
@given(seed=seeds, month=months, count=nodes)
def test_no_node_ever_holds_more_than_it_has(seed: int, month: Month, count: int) -> None:
    changes: dict[str, list[tuple[int, int, tuple[int, int, int]]]] = defaultdict(list)
    for job in whole(month, seed, count):
        shape = job.shape
        held = tuple(amount / len(shape.nodes) for amount in (shape.cpus, shape.memory_mb, shape.gpus))
        for node in shape.nodes:
            changes[node] += [(shape.start, 1, held), (shape.end, 0, held)]
    assert changes.keys() <= set(blueprint(count).compute_hosts)
    for node, moments in changes.items():
        taken = [0.0, 0.0, 0.0]
        for _, begins, held in sorted(moments):
            taken = [now + (amount if begins else -amount) for now, amount in zip(taken, held, strict=True)]
            limits = HARDWARE[node.partition("-")[0]]
            assert all(now <= most for now, most in zip(taken, limits, strict=True)), node


@settings(max_examples=12, deadline=None)
@given(seed=seeds, month=months)
def test_every_job_is_one_that_the_site_allows(seed: int, month: Month) -> None:
    declared = blueprint().site
    accounts = declared.accounts_of_users()
    labs = {lab.name: (d, lab) for d in declared.departments for lab in d.labs}
    for job in whole(month, seed):
        department, lab = labs[job.account]
        shape, tier = job.shape, declared.tiers[job.tier]
        assert job.account in accounts[job.user]
        assert job.partition == department.partition_name
        assert shape.group in department.partition.node_groups
        assert job.tier in declared.allowed_tiers(department)
        assert not tier.for_replicas
        longest = (department.partition.max_time, lab.limits.max_time, tier.max_time)
        assert all(most is None or shape.limit_minutes * 60 <= most for most in longest)
        largest = (department.limits.gpus, lab.limits.gpus, tier.gpus_per_user)
        assert all(most is None or shape.gpus <= most for most in largest)


@settings(max_examples=12, deadline=None)
@given(seed=seeds, month=months)
def test_every_department_spends_a_sensible_part_of_its_budget(seed: int, month: Month) -> None:
    drawn = blueprint()
    jobs = whole(month, seed)
    for each in (month.previous, month):
        amounts = spent(drawn, jobs, each)
        for department in drawn.site.departments:
            assert department.budget is not None
            part = amounts[department.name] / department.budget.amount
            assert Decimal("0.30") <= part <= Decimal("0.90"), (each, department.name, part)


@settings(max_examples=12, deadline=None)
@given(seed=seeds, month=months)
def test_a_month_looks_like_one(seed: int, month: Month) -> None:
    shapes = [job.shape for job in whole(month, seed) if Month.of(day_of(job.shape.submitted)) == month]
    assert 200 <= len(shapes) <= 400
    assert {shape.state for shape in shapes} == {"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED"}
    assert {1, 2, 4, 8, 16} <= {shape.gpus for shape in shapes}
    assert max(len(shape.nodes) for shape in shapes) > 1
    for shape in shapes:
        seconds = shape.end - shape.start
        assert shape.submitted < shape.start
        assert 0 < seconds <= shape.limit_minutes * 60 <= 2 * 86400
        assert (shape.state == "TIMEOUT") == (seconds == shape.limit_minutes * 60)
    moments = [datetime.fromtimestamp(shape.submitted, timezone.utc) for shape in shapes]
    days = Counter(moment.date() for moment in moments)
    workdays = [days[day] for day in month.days if day.weekday() < 5]
    weekend = [days[day] for day in month.days if day.weekday() >= 5]
    assert sum(workdays) / len(workdays) > 2 * sum(weekend) / len(weekend)
    assert sum(8 <= moment.hour < 18 for moment in moments) > len(moments) / 2


@settings(max_examples=12, deadline=None)
@given(seed=seeds, minute=st.integers(0, 45 * 1440))
def test_whatever_the_moment_nothing_lasts_beyond_it_and_a_later_one_changes_nothing(
    seed: int, minute: int
) -> None:
    since, until = day_start(OCTOBER.start), day_start(OCTOBER.start) + minute * 60
    early, late = (make(blueprint(), since, moment, seed) for moment in (until, until + 10 * 86400))
    assert all(job.shape.end <= until for job in early)
    assert all(job.shape.start < job.shape.end for job in early)
    later = {job.id: job for job in late}
    assert [job for job in early if later[job.id] == job] == [job for job in late if job.shape.end <= until]
    assert {job.shape.state for job in early if later[job.id] != job} <= {"CANCELLED"}


def test_ten_minutes_into_a_month_there_is_only_the_month_before() -> None:
    first = day_start(date(2026, 12, 1))
    jobs = make(blueprint(), day_start(NOVEMBER.start), first + 600 - 3600, 1)
    assert len(jobs) > 200
    assert {Month.of(day_of(job.shape.start)) for job in jobs} == {NOVEMBER}
    assert max(job.shape.end for job in jobs) <= first + 600 - 3600


def test_ids_are_rising_and_nobody_elses() -> None:
    jobs = whole(NOVEMBER)
    assert [job.id for job in jobs] == sorted({job.id for job in jobs})
    assert jobs[0].id >= FIRST_JOB_ID
    assert [job.shape.submitted for job in jobs] == sorted(job.shape.submitted for job in jobs)


def test_no_time_no_past() -> None:
    assert make(blueprint(), 1000, 1000, 1) == []
    assert make(blueprint(), 1000, 0, 1) == []


def test_every_department_of_a_site_without_budgets_gets_work() -> None:
    drawn = blueprint()
    poor = [d.model_copy(update={"budget": None}) for d in drawn.site.departments]
    bare = Blueprint(drawn.site.model_copy(update={"departments": tuple(poor)}), drawn.node_counts)
    jobs = make(bare, day_start(OCTOBER.start), day_start(OCTOBER.end), 1)
    amounts = spent(bare, jobs, OCTOBER)
    total = sum(amounts.values())
    shares = {name: round(amount / total, 1) for name, amount in amounts.items()}
    assert shares == {"nlp": Decimal("0.4"), "cv": Decimal("0.4"), "dl": Decimal("0.2")}


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_small_sandbox_has_a_past_too(count: int) -> None:
    amounts = spent(blueprint(count), whole(NOVEMBER, count=count), NOVEMBER)
    assert all(amount > 0 for amount in amounts.values())
