"""Every mark has a shape of its own."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pytest
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from hpctools.cli.run_plot import _LOSS, _MARKS, _RATE, _SIZE, drawing, save_plot
from hpctools.submit.course import KINDS, Course, Series


def test_each_kind_of_mark_can_be_drawn_and_told_from_the_others():
    assert set(_MARKS) == set(KINDS)
    assert len({shape for shape, _ in _MARKS.values()}) == len(KINDS)


def test_what_is_known_of_one_moment_only_is_seen():
    once = Series((0.0,), (2.0,))
    course = Course(begin=0.0, seconds=0.0, size=once, throughput=once, loss=once, marks={})
    pixels = imread(BytesIO(drawing(course, "train-1", (1, 4), "png")))[:, :, :3]
    for colour in (_SIZE, _RATE, _LOSS):
        assert (abs(pixels - to_rgb(colour)).max(axis=2) < 0.02).sum() > 20, colour


@pytest.mark.parametrize("losses", [(-1.7e308, 1.0, 1.7e308), (1e-9, 1.0, 1e290), (-1.7e308, -1.7e308, 0.0)])
def test_a_training_that_diverges_can_be_drawn(losses: tuple[float, ...], tmp_path: Path) -> None:
    seconds = (0.0, 1.0, 2.0)
    course = Course(
        begin=0.0,
        seconds=2.0,
        size=Series(seconds, (1, 2, 2)),
        throughput=Series(seconds, (1.0, 2.0, 2.0)),
        loss=Series(seconds, losses),
        marks=dict.fromkeys(KINDS, ()),
    )
    save_plot(course, "train-1", (1, 2), tmp_path / "run.svg")
    assert (tmp_path / "run.svg").stat().st_size > 1000
