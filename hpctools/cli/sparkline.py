"""A series as a line of blocks, for a terminal or a log."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

BLOCKS = "▁▂▃▄▅▆▇█"
GAP = " "


def sparkline(values: Sequence[float | None], width: int) -> str:
    """The series in at most so many characters; what is not known is a gap.

    Its lowest block stands for zero, so that half the height is half the value. More values than characters
    are put together: each character shows the mean of those that it stands for.
    """
    cells = [_mean(part) for part in _parts(values, max(1, width))]
    known = [cell for cell in cells if cell is not None]
    top = max(known, default=0.0)
    return "".join(GAP if cell is None else _block(cell, top) for cell in cells)


def _block(value: float, top: float) -> str:
    if top <= 0:
        return BLOCKS[0]
    share = min(1.0, max(0.0, value / top))
    return BLOCKS[round(share * (len(BLOCKS) - 1))]


def _parts(values: Sequence[float | None], width: int) -> list[Sequence[float | None]]:
    count = len(values)
    cuts = [place * count // width for place in range(width + 1)] if count > width else range(count + 1)
    return [values[low:high] for low, high in pairwise(cuts)]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return sum(known) / len(known) if known else None
