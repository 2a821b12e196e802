"""The trend as SVG: what was spent until each day, beside an even pace and the budget.

matplotlib draws; its colours are placeholders that become CSS variables, so that one drawing serves light
and dark, and its text stays text in the page's own font.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from io import StringIO
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Placeholder colour -> CSS variable of the page.
_COLOURS = {
    "#010101": "var(--ink)",
    "#020202": "var(--muted)",
    "#030303": "var(--line)",
    "#040404": "var(--spent)",
    "#050505": "var(--over)",
}
_INK, _MUTED, _LINE, _SPENT, _OVER = _COLOURS
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
# matplotlib's settings are global: one drawing at a time.
_drawing = Lock()


@dataclass(frozen=True)
class Trend:
    """What is drawn.

    Attributes:
        cumulative: spent until the end of each billed day, from the first day of the month.
        days: how many the month has.
        projected: at the month's end; None for none.
        budget_label: stands at the budget's line.
        label: goes before each amount of the vertical axis.
    """

    cumulative: tuple[Decimal, ...]
    days: int
    budget: Decimal | None
    projected: Decimal | None
    budget_label: str
    label: str


@lru_cache(maxsize=256)
def trend_svg(trend: Trend, width: float, height: float) -> str:
    """The drawing, `<svg>...</svg>`; hidden from screen readers, who get the same as text.

    Args:
        width, height: in hundreds of CSS pixels.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    out = StringIO()
    with _drawing, rc_context(_SETTINGS):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        _draw(axes, trend)
        figure.savefig(out, format="svg", transparent=True, metadata=dict.fromkeys(_METADATA))
    return _for_page(out.getvalue(), f"chart{width:g}-")


def _draw(axes: Axes, trend: Trend) -> None:
    spent = [0.0, *(float(amount) for amount in trend.cumulative)]
    over = trend.budget is not None and spent[-1] > trend.budget
    colour = _OVER if over else _SPENT
    if trend.budget is not None:
        _draw_budget(axes, float(trend.budget), trend)
    if trend.projected is not None:
        ahead = [len(spent) - 1, trend.days], [spent[-1], float(trend.projected)]
        axes.plot(*ahead, color=colour, linewidth=2, linestyle=(0, (1, 1.6)), solid_capstyle="round")
    axes.fill_between(range(len(spent)), spent, color=colour, alpha=0.14, linewidth=0)
    axes.plot(spent, color=colour, linewidth=2.6, solid_capstyle="round", solid_joinstyle="round")
    axes.plot(len(spent) - 1, spent[-1], marker="o", markersize=7, color=colour)
    _frame(axes, trend, spent)


def _draw_budget(axes: Axes, budget: float, trend: Trend) -> None:
    axes.plot([0, trend.days], [0, budget], color=_MUTED, linewidth=1.4, linestyle=(0, (5, 3)))
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


def _frame(axes: Axes, trend: Trend, spent: Sequence[float]) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    top = max([*spent, float(trend.budget or 0), float(trend.projected or 0)])
    axes.set_xlim(0, trend.days)
    axes.set_ylim(min(0.0, *spent), top * 1.1 or 1)
    axes.set_xticks((1, 5, 10, 15, 20, 25, trend.days))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{trend.label}{_short(value)}"))
    axes.grid(axis="y", color=_LINE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=10, pad=6)
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)


def _short(value: float) -> str:
    if abs(value) >= 1_000_000:
        return f"{value / 1_000_000:g}M"
    return f"{value / 1000:g}k" if abs(value) >= 1000 else f"{value:g}"


def _for_page(svg: str, prefix: str) -> str:
    """Only the drawing, in the page's colours, font and width; its ids begin with `prefix`."""
    body = svg[svg.index("<svg") :]
    for placeholder, variable in _COLOURS.items():
        body = body.replace(placeholder, variable)
    # matplotlib writes either one `font` or its parts.
    body = re.sub(r'font: (bold )?([\d.]+)px [^;"]*', r"font: \1\2px var(--font)", body)
    body = re.sub(r'font-family: [^;"]*', "font-family: var(--font)", body)
    body = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", body, count=1)
    body = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", body, count=1)
    body = re.sub(r'(\bid="|href="#|url\(#)', rf"\1{prefix}", body)
    return body.replace("<svg", '<svg aria-hidden="true" focusable="false"', 1)
