from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from decimal import Decimal
from xml.etree import ElementTree

import pytest

from api.pages.chart import SIZES, Trend, trend_svg
from hpctools.budget.allowance import Period

NOVEMBER = Period(date(2026, 11, 1), date(2026, 12, 1))
AHEAD = (Decimal(90), Decimal(80), Decimal(110))
SVG = "{http://www.w3.org/2000/svg}"
TREND = Trend(NOVEMBER, (Decimal(10), Decimal(30)), Decimal(100), AHEAD, "budget $100", "$")


def test_the_chart_serves_light_and_dark_and_has_text() -> None:
    svg = trend_svg(TREND, "wide")
    assert svg == trend_svg.__wrapped__(TREND, "wide")
    ElementTree.fromstring(svg)
    assert ">budget $100</text>" in svg
    drawing = svg.split("</style>", 1)[1]
    assert "prefers-color-scheme: dark" in svg
    assert "var(--spent)" in drawing
    assert "var(--over)" not in drawing
    assert "DejaVu" not in drawing
    assert not re.search(r"#0[1-5]0[1-5]0[1-5]", svg)
    over = trend_svg(replace(TREND, cumulative=(Decimal(101),)), "wide")
    assert "var(--over)" in over.split("</style>", 1)[1]


@pytest.mark.parametrize(
    ("trend", "days", "budget"),
    [
        (replace(TREND, cumulative=(), budget=None, ahead=None), "5 10 15 20 25 30", False),
        (replace(TREND, cumulative=(Decimal(0),), budget=Decimal(0)), "5 10 15 20 25 30", True),
        (
            replace(TREND, cumulative=(Decimal(-5), Decimal(10) ** 15), label="CHF "),
            "5 10 15 20 25 30",
            True,
        ),
        (replace(TREND, period=Period(date(2026, 11, 3), date(2026, 11, 4)), cumulative=()), "3", True),
        (
            replace(TREND, period=Period(date(2022, 1, 1), date(2026, 12, 1))),
            "2022 Nov Sep Jul May Mar",
            True,
        ),
    ],
)
def test_extreme_trends_are_drawn_within_the_picture(trend: Trend, days: str, budget: bool) -> None:
    svg = trend_svg(trend, "narrow")
    words = ["".join(each.itertext()) for each in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    written = days.split()
    assert words[: len(written)] == written
    amounts = words[len(written) : -1 if budget else None]
    assert len(amounts) > 2
    assert all(each.startswith(trend.label) for each in amounts)
    assert (words[-1] == "budget $100") == budget
    width, height = (72 * each for each in SIZES["narrow"])
    drawn = re.findall(r'<path d="([^"]+)"[^>]*stroke: var\(--(?:spent|over)\); stroke-width: 2.6', svg)
    (curve,) = (re.findall(r"[ML] (\S+) (\S+)", each) for each in drawn)
    assert len(curve) == 1 + len(trend.cumulative)
    assert all(0 < float(x) < width and 0 < float(y) < height for x, y in curve)


def test_months_are_written_where_there_are_many_days() -> None:
    year = replace(TREND, period=Period(date(2026, 1, 1), date(2027, 1, 1)))
    written = re.findall(r">(Jan|Jun|Dec|2026|31)</", trend_svg(year, "wide"))
    assert written == ["2026", "Jun", "Dec"]
