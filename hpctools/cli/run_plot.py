"""A run as a drawing: size, throughput, loss and what happened, over one axis of time."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpctools.errors import HpctoolsError, UsageError
from hpctools.submit.course import Course, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("svg", "png")
_WIDTH, _PANEL, _ROW = 10.0, 1.7, 0.24  # inches
_INK, _MUTED, _LINE = "#1b1f24", "#5b636e", "#d8dce1"
_SIZE, _RATE, _LOSS = "#0f6cbd", "#107c41", "#8a3ffc"
# A shape for each kind beside its own row: the drawing is read without its colours, too.
_MARKS = {
    "grew": ("^", _RATE),
    "shrank": ("v", _SIZE),
    "preempted": ("s", "#b26a00"),
    "lost or crashed": ("X", "#c4314b"),
    "recovered": ("o", _SIZE),
    "coordinator taken over": ("*", "#c4314b"),
    "waiting": ("p", _MUTED),
    "notice": ("h", "#b26a00"),
    "finding": ("d", "#c4314b"),
    "action": ("D", "#8a3ffc"),
    "checkpoint": ("P", _MUTED),
    "warning": ("|", "#b26a00"),
}
_SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "hpctools",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": _INK,
    "axes.edgecolor": _LINE,
    "axes.labelcolor": _INK,
    "xtick.color": _MUTED,
    "ytick.color": _MUTED,
}
_UNITS = ((2 * 86400.0, "days", 86400.0), (2 * 3600.0, "hours", 3600.0), (120.0, "minutes", 60.0))


def wanted_format(path: Path) -> str:
    """The format that a file's name asks for.

    Raises:
        UsageError: it asks for none that can be drawn.
    """
    suffix = path.suffix.lower().lstrip(".")
    if suffix not in FORMATS:
        raise UsageError(f"cannot draw {path.name!r}", "let its name end in .svg or .png")
    if path.is_dir():
        raise UsageError(f"cannot write {path}: it is a folder", "name a file")
    return suffix


def save_plot(course: Course, title: str, limits: tuple[int, int], path: Path) -> None:
    """Draw a run into a file, which is there as a whole or stays what it was.

    Args:
        limits: the least and the most workers that the run may have.

    Raises:
        UsageError: the file's name asks for no known format.
        HpctoolsError: matplotlib is missing, or the file cannot be written.
    """
    image = drawing(course, title, limits, wanted_format(path))
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name[:30]}.", dir=path.absolute().parent)
        with os.fdopen(handle, "wb") as file:
            file.write(image)
            os.fchmod(file.fileno(), 0o644)
        Path(temporary).replace(path)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise HpctoolsError(
            f"cannot write {path}: {error.strerror}", "check the folder's permissions and free space"
        ) from None


def drawing(course: Course, title: str, limits: tuple[int, int], form: str) -> bytes:
    """The image.

    Args:
        form: one of FORMATS.

    Raises:
        HpctoolsError: matplotlib is missing.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise HpctoolsError(
            f"a plot needs matplotlib: {error}", "pip install matplotlib, or read the run as --json"
        ) from None
    out = BytesIO()
    heights = [_PANEL, _PANEL, _PANEL, 0.3 + _ROW * max(1, len(course.marks))]
    with rc_context(_SETTINGS):
        figure = Figure(figsize=(_WIDTH, sum(heights) + 0.9), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(4, 1, sharex=True, height_ratios=heights)
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, weight="bold", color=_INK)
        _draw(axes, course, limits)
        metadata = {"Date": None} if form == "svg" else {}
        figure.savefig(out, format=form, dpi=120, facecolor="white", metadata=metadata)
    return out.getvalue()


def _draw(axes: Sequence[Axes], course: Course, limits: tuple[int, int]) -> None:
    divisor, unit = _unit(course.seconds)
    size, rate, loss, marks = axes
    _draw_size(size, course, limits, divisor)
    _draw_line(rate, course.throughput, divisor, _RATE, course.unit)
    rate.set_ylim(bottom=0)
    _draw_line(loss, course.loss, divisor, _LOSS, "loss")
    if _spans_decades(course.loss.values):
        loss.set_yscale("log")
    _draw_marks(marks, course, divisor)
    for panel in axes:
        _frame(panel)
        for second in (*course.marks.get("recovered", ()), *course.marks.get("lost or crashed", ())):
            panel.axvline(second / divisor, color="#c4314b", linewidth=0.7, alpha=0.35)
    marks.set_xlim(0, max(course.seconds, 1.0) / divisor)
    marks.set_xlabel(f"{unit} since the run began")


def _unit(seconds: float) -> tuple[float, str]:
    for least, name, divisor in _UNITS:
        if seconds >= least:
            return divisor, name
    return 1.0, "seconds"


def _draw_size(axes: Axes, course: Course, limits: tuple[int, int], divisor: float) -> None:
    from matplotlib.ticker import MaxNLocator

    seconds = [*(each / divisor for each in course.size.seconds), course.seconds / divisor]
    values = [*course.size.values, course.size.values[-1]]
    axes.fill_between(seconds, values, step="post", color=_SIZE, alpha=0.16, linewidth=0)
    dot = "" if course.seconds else "o"  # a line of no length is not seen
    axes.step(seconds, values, where="post", color=_SIZE, linewidth=1.6, marker=dot, clip_on=not dot)
    for limit in limits:
        axes.axhline(limit, color=_MUTED, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.set_ylim(0, max(*values, *limits) * 1.12)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel("workers")


def _draw_line(axes: Axes, series: Series, divisor: float, colour: str, label: str) -> None:
    values = [max(-_MOST, min(_MOST, each)) for each in series.values]
    dot = "o" if len(values) == 1 else ""
    seconds = [each / divisor for each in series.seconds]
    axes.plot(seconds, values, color=colour, linewidth=1.4, marker=dot, clip_on=not dot)
    axes.set_ylabel(label)
    if not series.values:
        axes.text(0.5, 0.5, "not known", transform=axes.transAxes, ha="center", va="center", color=_MUTED)
        axes.set_yticks([])


_MOST = 1e200
"""As far as an axis goes: of a training that diverges the span is more than a float can tell."""


def _spans_decades(values: Sequence[float]) -> bool:
    return bool(values) and min(values) > 0 and max(values) / min(values) > 100


def _draw_marks(axes: Axes, course: Course, divisor: float) -> None:
    rows = list(course.marks)
    for row, kind in enumerate(rows):
        shape, colour = _MARKS[kind]
        seconds = [each / divisor for each in course.marks[kind]]
        axes.plot(seconds, [row] * len(seconds), shape, color=colour, markersize=6, clip_on=False)
    axes.set_yticks(range(len(rows)), [f"{kind} ({len(course.marks[kind])})" for kind in rows])
    axes.set_ylim(len(rows) - 0.4 if rows else 1, -0.6)


def _frame(axes: Axes) -> None:
    axes.grid(color=_LINE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
