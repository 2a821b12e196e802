"""Every mark has a shape of its own."""

from __future__ import annotations

from hpctools.cli.run_plot import _MARKS
from hpctools.submit.course import KINDS


def test_each_kind_of_mark_can_be_drawn_and_told_from_the_others():
    assert set(_MARKS) == set(KINDS)
    assert len({shape for shape, _ in _MARKS.values()}) == len(KINDS)
