"""`--nodes MIN:MAX`, `MIN:MAX:STEP` and `A,B,C`."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctools.errors import UsageError
from hpctools.submit.nodes import NodeSizes, is_elastic, misplaced_range, parse_sizes


@pytest.mark.parametrize(
    ("value", "elastic"),
    [
        ("2", False),
        ("2-6", False),
        ("1-15:4", False),
        ("1,2-4", False),
        ("1,2,4", True),
        ("1, 2", True),
        (",", True),
        ("", False),
        ("2:6", True),
        ("2:", True),
        ("a:b", True),
    ],
)
def test_a_colon_or_a_list_asks_for_an_elastic_run_unless_it_is_sbatchs_step(value, elastic):
    assert is_elastic(value) is elastic


@given(st.integers(1, 3_000), st.integers(1, 3_000))
def test_every_ordered_pair_is_a_range(first, second):
    low, high = sorted((first, second))
    assert parse_sizes(f"{low}:{high}", "x") == NodeSizes.between(low, high)
    assert str(NodeSizes.between(low, high)) == f"{low}:{high}"


@given(st.integers(1, 900), st.integers(1, 50), st.integers(0, 30))
def test_a_step_makes_each_size_so_far_from_the_one_before(low, step, count):
    sizes = parse_sizes(f"{low}:{low + step * count}:{step}", "x")
    assert sizes.totals == tuple(low + step * each for each in range(count + 1))
    assert sizes.are_all_between is (step == 1 or count == 0)


@given(st.sets(st.integers(1, 999_999), min_size=2, max_size=20))
def test_every_ascending_list_is_the_sizes_themselves(totals):
    written = ",".join(map(str, sorted(totals)))
    assert is_elastic(written)
    sizes = parse_sizes(written, "x")
    assert sizes.totals == tuple(sorted(totals))
    assert (sizes.minimum, sizes.maximum, str(sizes)) == (min(totals), max(totals), written)


@given(st.text(alphabet="0123456789:,- +", max_size=12))
def test_whatever_is_asked_for_makes_sizes_or_is_refused(value):
    if is_elastic(value):
        totals: tuple[int, ...] = (1,)
        with contextlib.suppress(UsageError):
            totals = parse_sizes(value, "x").totals
        assert totals[0] >= 1
        assert list(totals) == sorted(set(totals))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("6:2", "--nodes 6:2: the minimum is above the maximum; did you mean --nodes 2:6?"),
        ("0:3", "--nodes 0:3: a run needs at least 1 node"),
        ("a:b", "--nodes a:b is not a range of nodes"),
        ("2:", "--nodes 2: is not a range of nodes"),
        (":2", "--nodes :2 is not a range of nodes"),
        ("2:4:", "--nodes 2:4: is not a range of nodes"),
        ("2:8:2:1", "--nodes 2:8:2:1 is not a range of nodes"),
        ("1:4,8", "--nodes 1:4,8 is not a range of nodes"),
        ("2:8:0", "--nodes 2:8:0: a run needs at least 1 node"),
        ("8:2:3", "the minimum is above the maximum; did you mean --nodes 2:8:3?"),
        ("2:9:3", "9 is not 2 and so many steps of 3; did you mean 2:8:3 or 2:11:3?"),
        ("1,,4", "--nodes 1,,4 is not a range of nodes"),
        ("1, 4", "--nodes 1, 4 is not a range of nodes"),
        ("4,2,1", "ascending order, each once; did you mean --nodes 1,2,4?"),
        ("1,1,2", "ascending order, each once; did you mean --nodes 1,2?"),
        ("0,1", "--nodes 0,1: a run needs at least 1 node"),
        ("+2:4", "--nodes +2:4 is not a range of nodes"),
        ("2: 4", "--nodes 2: 4 is not a range of nodes"),
        ("\u0662:4", "is not a range of nodes"),
        ("1:9999999", "is not a range of nodes"),
    ],
)
def test_what_is_no_range_is_refused_with_the_place(value, message):
    with pytest.raises(UsageError) as caught:
        parse_sizes(value, "job.sh line 3")
    assert str(caught.value).startswith("job.sh line 3: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--epochs", "3", "--nodes", "2:8"], "--nodes 2:8"),
        (["-N", "2:8"], "-N 2:8"),
        (["--nodes=2:8", "x"], "--nodes=2:8"),
        (["-N2:8"], "-N2:8"),
        (["--nodes=2:8:2"], "--nodes=2:8:2"),
        (["--nodes", "4"], None),
        (["2:8", "--nodes"], None),
        ([], None),
    ],
)
def test_a_range_among_the_scripts_arguments_is_noticed(arguments, found):
    assert misplaced_range(arguments) == found
