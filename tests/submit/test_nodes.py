"""`--nodes MIN:MAX`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctools.errors import UsageError
from hpctools.submit.nodes import NodeRange, is_elastic, misplaced_range, parse_range


@pytest.mark.parametrize(
    ("value", "elastic"),
    [
        ("2", False),
        ("2-6", False),
        ("1-15:4", False),
        ("1,2,4", False),
        ("2:6", True),
        ("2:", True),
        ("a:b", True),
    ],
)
def test_a_colon_asks_for_an_elastic_run_unless_it_is_sbatchs_step(value, elastic):
    assert is_elastic(value) is elastic


@given(st.integers(1, 999_999), st.integers(1, 999_999))
def test_every_ordered_pair_is_a_range(first, second):
    low, high = sorted((first, second))
    assert parse_range(f"{low}:{high}", "x") == NodeRange(low, high)
    assert str(NodeRange(low, high)) == f"{low}:{high}"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("6:2", "--nodes 6:2: the minimum is above the maximum; did you mean --nodes 2:6?"),
        ("0:3", "--nodes 0:3: a run needs at least 1 node"),
        ("a:b", "--nodes a:b is not a range of nodes"),
        ("2:", "--nodes 2: is not a range of nodes"),
        (":2", "--nodes :2 is not a range of nodes"),
        ("2:4:2", "--nodes 2:4:2 is not a range of nodes"),
        ("+2:4", "--nodes +2:4 is not a range of nodes"),
        ("2: 4", "--nodes 2: 4 is not a range of nodes"),
        ("\u0662:4", "is not a range of nodes"),
        ("1:9999999", "is not a range of nodes"),
    ],
)
def test_what_is_no_range_is_refused_with_the_place(value, message):
    with pytest.raises(UsageError) as caught:
        parse_range(value, "job.sh line 3")
    assert str(caught.value).startswith("job.sh line 3: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--epochs", "3", "--nodes", "2:8"], "--nodes 2:8"),
        (["-N", "2:8"], "-N 2:8"),
        (["--nodes=2:8", "x"], "--nodes=2:8"),
        (["-N2:8"], "-N2:8"),
        (["--nodes", "4"], None),
        (["2:8", "--nodes"], None),
        ([], None),
    ],
)
def test_a_range_among_the_scripts_arguments_is_noticed(arguments, found):
    assert misplaced_range(arguments) == found
