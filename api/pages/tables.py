"""Tables as pages show them; `parts.html` draws them."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal


@dataclass(frozen=True)
class Column:
    """A column.

    Attributes:
        kind: `text`, `number` (to the right) or `bar` (for the eye only).
        minor: left out on a phone.
        heading: for screen readers too; empty only for bars.
    """

    heading: str
    kind: Literal["text", "number", "bar"] = "text"
    minor: bool = False


@dataclass(frozen=True)
class Cell:
    """What stands in one place.

    Attributes:
        detail: smaller, below the text.
        width: of a bar, percent.
        tone: `good`, `warn`, `bad`, or empty.
    """

    text: str = ""
    href: str = ""
    detail: str = ""
    width: Decimal | None = None
    tone: str = ""


Row = tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """A table. The first cell of each row says what the row is of.

    Attributes:
        caption: what it is, for screen readers; a heading says it to others.
        foot: the sum; empty for none.
        empty: what is said where there are no rows.
    """

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    foot: Row = ()
    empty: str = "There is nothing in these days."


def text(value: str, href: str = "", detail: str = "", tone: str = "") -> Cell:
    """A cell with words or a figure."""
    return Cell(value, href, detail, None, tone)


def bar(amount: Decimal, longest: Decimal) -> Cell:
    """A cell with a bar."""
    width = (max(Decimal(0), amount) * 100 / longest).quantize(Decimal("0.1")) if longest > 0 else Decimal(0)
    return Cell(width=width)
