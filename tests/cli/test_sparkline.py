"""A series in few characters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hpctools.cli.sparkline import BLOCKS, GAP, sparkline


def test_height_is_the_value_and_zero_the_lowest_block():
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 20) == BLOCKS
    assert sparkline([8, 4], 9) == "█▅"
    assert sparkline([0, 0], 9) == "▁▁"


def test_what_is_not_known_is_a_gap():
    assert sparkline([4, None, float("nan"), 4], 9) == "█  █"
    assert sparkline([None], 9) == GAP
    assert sparkline([], 9) == ""


def test_neighbours_are_put_together_when_room_is_short():
    assert sparkline([7, 7, 0, 0, None, 7], 3) == "█▁█"


@given(st.lists(st.none() | st.floats(), max_size=200), st.integers(-3, 80))
def test_never_wider_than_asked_and_never_wrong(values, width):
    line = sparkline(values, width)
    assert len(line) == min(len(values), max(1, width))
    assert set(line) <= {*BLOCKS, GAP}
