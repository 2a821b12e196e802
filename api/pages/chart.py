"""The trend as an SVG picture: what was spent until each day, the budget, and the range of the forecast.

matplotlib draws; its colours are placeholders that become CSS variables of the picture, so that one drawing
serves light and dark, and its text stays text in the visitor's own font.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from functools import lru_cache
from io import StringIO
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

from hpctools.budget.allowance import Period

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Size = Literal["wide", "narrow"]
SIZES: dict[Size, tuple[float, float]] = {"wide": (9.2, 3.2), "narrow": (3.6, 2.6)}
"""In hundreds of CSS pixels."""

# Placeholder colour -> CSS variable of the picture.
_COLOURS = {
    "#010101": "var(--ink)",
    "#020202": "var(--muted)",
    "#030303": "var(--line)",
    "#040404": "var(--spent)",
    "#050505": "var(--over)",
}
_INK, _MUTED, _LINE, _SPENT, _OVER = _COLOURS
_STYLE = """<style>
svg { --ink: #17202b; --muted: #566272; --line: #dfe3e9; --spent: #1a62c9; --over: #b42318;
  --font: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif; }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e8edf3; --muted: #9eabba; --line: #2c3743; --spent: #6ba8ff; --over: #ff8a7d; } }
</style>"""
_SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "hpctools",
    "font.family": "sans-serif",
    "axes.edgecolor": _LINE,
    "text.color": _INK,
    "xtick.color": _MUTED,
    "ytick.color": _MUTED,
}
_METADATA = ("Date", "Creator", "Format", "Type")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_LONGEST_BY_DAY = 45
_DAY = timedelta(days=1)
# matplotlib's settings are global: one drawing at a time.
_drawing = Lock()


@dataclass(frozen=True)
class Trend:
    """What is drawn.

    Attributes:
        cumulative: spent until the end of each billed day, from the first day of the period.
        ahead: expected at the period's end, and the range around it; None for none.
        budget_label: stands at the budget's line.
        label: goes before each amount of the vertical axis.
    """

    period: Period
    cumulative: tuple[Decimal, ...]
    budget: Decimal | None
    ahead: tuple[Decimal, Decimal, Decimal] | None
    budget_label: str
    label: str


@lru_cache(maxsize=512)
def trend_svg(trend: Trend, size: Size) -> str:
    """The picture, `<svg>...</svg>`; whoever cannot see it gets the same as text and as a table."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    out, (width, height) = StringIO(), SIZES[size]
    with _drawing, rc_context(_SETTINGS):
        figure = Figure(figsize=(width, height))
        FigureCanvasSVG(figure)
        axes = figure.add_axes((0.58 / width, 0.32 / height, 1 - 0.72 / width, 1 - 0.48 / height))
        _draw(axes, trend)
        _frame(axes, trend, size)
        figure.savefig(out, format="svg", transparent=True, metadata=dict.fromkeys(_METADATA))
    return _alone(out.getvalue())


def _draw(axes: Axes, trend: Trend) -> None:
    spent = _spent(trend)
    over = trend.budget is not None and spent[-1] > trend.budget
    colour = _OVER if over else _SPENT
    if trend.budget is not None:
        _draw_budget(axes, float(trend.budget), trend)
    if trend.ahead is not None:
        expected, low, high = (float(each) for each in trend.ahead)
        begin, end = len(spent) - 1, trend.period.days
        axes.fill_between(
            [begin, end], [spent[-1], low], [spent[-1], high], color=colour, alpha=0.2, linewidth=0
        )
        axes.plot(
            [begin, end],
            [spent[-1], expected],
            color=colour,
            linewidth=2,
            linestyle=(0, (1, 1.6)),
            solid_capstyle="round",
        )
    axes.fill_between(range(len(spent)), spent, color=colour, alpha=0.12, linewidth=0)
    axes.plot(spent, color=colour, linewidth=2.6, solid_capstyle="round", solid_joinstyle="round")
    axes.plot(len(spent) - 1, spent[-1], marker="o", markersize=7, color=colour, clip_on=False)


def _draw_budget(axes: Axes, budget: float, trend: Trend) -> None:
    axes.plot([0, trend.period.days], [0, budget], color=_MUTED, linewidth=1.4, linestyle=(0, (5, 3)))
    axes.axhline(budget, color=_INK, linewidth=1.6)
    axes.annotate(
        trend.budget_label,
        (0, budget),
        (4, 4),
        textcoords="offset points",
        color=_INK,
        fontsize=10,
        weight="bold",
    )


def _frame(axes: Axes, trend: Trend, size: Size) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    spent = _spent(trend)
    top = max([*spent, float(trend.budget or 0), *(float(each) for each in trend.ahead or ())])
    axes.set_xlim(0, trend.period.days)
    axes.set_ylim(min(0.0, *spent), top * 1.14 or 1)
    ticks = list(_ticks(trend.period, 6 if size == "narrow" else 13))
    axes.set_xticks([place for place, _ in ticks], [name for _, name in ticks])
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{trend.label}{_short(value)}"))
    axes.grid(axis="y", color=_LINE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=10, pad=6)
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)


def _spent(trend: Trend) -> list[float]:
    return [0.0, *(float(amount) for amount in trend.cumulative)]


def _ticks(period: Period, most: int) -> Iterator[tuple[int, str]]:
    """Where days or months are written: a day at its end, as its sum is; a month at its beginning."""
    if period.days <= _LONGEST_BY_DAY:
        step = max(1, round(period.days / most / 5) * 5) if period.days > most else 1
        for place in range(step, period.days + 1, step):
            yield place, str((period.first + (place - 1) * _DAY).day)
        return
    firsts = [day for day in _days(period) if day.day == 1]
    step = -(-len(firsts) // most)
    for day in firsts[::step]:
        yield (day - period.first).days, str(day.year) if day.month == 1 else _MONTHS[day.month - 1]


def _days(period: Period) -> Iterator[date]:
    day = period.first
    while day < period.end:
        yield day
        day += _DAY


def _short(value: float) -> str:
    if abs(value) >= 1_000_000:
        return f"{value / 1_000_000:g}M"
    return f"{value / 1000:g}k" if abs(value) >= 1000 else f"{value:g}"


def _alone(svg: str) -> str:
    """Only the drawing, with its own colours and the visitor's font."""
    body = svg[svg.index("<svg") :]
    for placeholder, variable in _COLOURS.items():
        body = body.replace(placeholder, variable)
    # matplotlib writes either one `font` or its parts.
    body = re.sub(r'font: (bold )?([\d.]+)px [^;"]*', r"font: \1\2px var(--font)", body)
    body = re.sub(r'font-family: [^;"]*', "font-family: var(--font)", body)
    return body.replace(">", f">{_STYLE}", 1)
