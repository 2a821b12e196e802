"""What replica jobs are in Slurm's terms, and what of them a run can use."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from hpctools.elastic.policy import ElasticPolicy, replica_nodes
from hpctools.elastic.replica_jobs import (
    another_baseline,
    end_of,
    minutes_left,
    sbatch_options,
    shorter_limit,
    surplus,
    waits_for_others,
)
from hpctools.elastic.spec import RunSpec
from hpctools.slurm.types import Job

sizes = st.sets(st.integers(1, 40), min_size=2, max_size=7).map(lambda found: tuple(sorted(found)))
BEGIN = 1_000_000


def spec(totals: tuple[int, ...], *options: str) -> RunSpec:
    return RunSpec(
        "t-1", "t", "nlp1", "", totals[0], totals[-1], 1, ("x",), "/", options, "/r.sh", "now", sizes=totals
    )


def job(state: str, limit: int | None, started: int | None = None) -> Job:
    return Job(7, "t", "nlp1", "nlp", "gpu", "elastic", state, started=started, time_limit=limit)


@given(sizes)
def test_the_first_replica_jobs_make_each_size_in_turn(totals: tuple[int, ...]) -> None:
    nodes = replica_nodes(totals)
    for count, total in enumerate(totals):
        assert totals[0] + sum(nodes[:count]) == total


@given(sizes)
def test_nothing_is_given_back_while_the_steps_are_there_in_order(totals: tuple[int, ...]) -> None:
    policy = ElasticPolicy(totals)
    for count in range(len(totals)):
        assert surplus(policy, dict(enumerate(replica_nodes(totals)[:count]))) is None


@given(sizes, st.data())
def test_giving_back_never_makes_a_run_smaller_and_ends(totals: tuple[int, ...], data: st.DataObject) -> None:
    policy, nodes = ElasticPolicy(totals), replica_nodes(totals)
    chosen = data.draw(st.sets(st.integers(0, len(nodes) - 1)))
    running = {place: nodes[place] for place in chosen}
    size = policy.largest_within(totals[0] + sum(running.values()))
    while (idle := surplus(policy, running)) is not None:
        del running[idle]
        assert policy.largest_within(totals[0] + sum(running.values())) == size
    for kept in combinations(running, max(0, len(running) - 1)):
        fewer = totals[0] + sum(running[place] for place in kept)
        assert policy.largest_within(fewer) < size or len(kept) == len(running)


@given(sizes)
def test_in_whatever_order_they_may_start_each_has_what_it_needs_before_it(totals: tuple[int, ...]) -> None:
    """A job that Slurm could start in a gap is held back; one that is larger than all before it is not."""
    nodes = replica_nodes(totals)
    for place, count in enumerate(nodes):
        larger = {each for each in range(place) if nodes[each] > count}
        assert waits_for_others(nodes, place, set()) is bool(larger)
        assert not waits_for_others(nodes, place, larger)


def test_options_of_uniform_steps_are_one_and_the_same() -> None:
    options = {sbatch_options(spec((2, 4, 6), "--qos=elastic"), replica) for replica in (0, 1)}
    assert options == {("--qos=elastic", "--nodes=2")}


def test_a_nice_value_of_the_users_is_kept_beneath_the_order() -> None:
    assert sbatch_options(spec((1, 2, 4), "--nice=50"), 1)[-1] == "--nice=51"
    assert sbatch_options(spec((1, 2, 4), "--nice"), 1)[-1] == "--nice=101"


def test_nodes_are_excluded_beside_those_of_the_user() -> None:
    found = sbatch_options(spec((1, 2), "--exclude=n9"), 0, excluded={"n2", "n1"})
    assert found == ("--exclude=n9", "--nodes=1", "--exclude=n9,n1,n2")


def test_the_shorter_of_two_limits_is_taken() -> None:
    own = spec((1, 2), "--time=45")
    assert sbatch_options(own, 0, minutes=90)[-1] == "--time=45"
    assert sbatch_options(own, 0, minutes=30)[-1] == "--time=30"
    assert sbatch_options(own, 0)[-1] == "--nodes=1"


@given(st.integers(1, 5000), st.integers(0, 200_000), st.integers(1, 6000))
def test_a_running_replica_ends_with_the_run_to_the_minute(run: int, late: int, limit: int) -> None:
    end = BEGIN + 60 * run
    replica = job("RUNNING", limit, BEGIN + late)
    shorter = shorter_limit(replica, end, BEGIN + late)
    kept = limit if shorter is None else shorter
    assert kept <= limit
    assert kept == 1 or BEGIN + late + 60 * kept < end + 60
    if shorter is not None and shorter > 1:
        assert BEGIN + late + 60 * shorter >= end


@given(st.integers(1, 5000), st.integers(0, 5000), st.integers(1, 6000))
def test_a_pending_replica_is_shortened_only_when_it_matters(run: int, now: int, limit: int) -> None:
    end = BEGIN + 60.0 * run
    left = minutes_left(end, BEGIN + 60 * now)
    assert left == max(0, run - now)
    shorter = shorter_limit(job("PENDING", limit), end, BEGIN + 60 * now)
    if shorter is not None:
        assert shorter == max(1, left or 0)
        assert shorter < limit
    elif left:
        assert limit <= left + max(2, left // 10)


def test_another_baseline_has_the_time_that_the_lost_one_had_left() -> None:
    run = replace(spec((1, 2)), baseline_options=("--time=60", "--nodes=1"))
    end = BEGIN + 3600.0
    assert another_baseline(run, end, BEGIN + 1230) == ("--time=60", "--nodes=1", "--time=40")
    assert another_baseline(run, end, end + 5)[-1] == "--time=1"
    assert another_baseline(run, None, BEGIN) == ("--time=60", "--nodes=1")


def test_the_runs_end_is_known_when_it_runs_and_has_one() -> None:
    assert end_of(job("RUNNING", 10, BEGIN)) == BEGIN + 600
    assert end_of(job("RUNNING", None, BEGIN)) is None
    assert end_of(job("PENDING", 10)) is None
    assert end_of(job("RESV_DEL_HOLD", 10, BEGIN)) is None
    assert minutes_left(None, BEGIN) is None
