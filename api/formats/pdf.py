"""A statement on paper."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path

from fpdf import FPDF, XPos, YPos
from fpdf.enums import TableBordersLayout

from api.pages.frame import title_of
from api.pages.wording import day_name, moment_name, money, month_name, percentage
from hpctools.budget.month import moment
from hpctools.budget.statement import Statement
from hpctools.budget.tree import SITE_ACCOUNT

_FONT = "DejaVu"
_MARGIN = 20
_STATUS = {
    "none": "Not reconciled yet: there are no figures.",
    "estimated": "Estimated: the provider's bill or the jobs of this month are not final yet.",
    "final": "Final: the month is over, its bill is closed and its jobs have ended.",
}

_LEVELS = {"user": "person", "own": "the account itself", "other": "not in the site file any more"}
_NOTE = (
    "Amounts are exact and rounded only to be shown, each for itself: a column may differ from its sum by a "
    "cent. Days are UTC, as in the bill. Jobs pay for the part of each node that they held, failed ones too."
)
_GREY, _THIN, _ROW = 190, 0.15, 5


def as_pdf(statement: Statement) -> bytes:
    """A statement to print. The same statement is always the same bytes."""
    page = _Page(statement)
    page.set_creation_date(moment(statement.as_of or 0))
    page.add_page()
    page.head()
    page.figures(("", "Amount"), _figures(statement))
    page.figures(("Spent on", "Kind", "Amount", "Share"), _parts(statement))
    if statement.account.name == SITE_ACCOUNT:
        page.figures(("Charged to nobody", "Amount"), _uncharged(statement))
    if statement.other_currencies:
        page.figures(("Other currencies", "Amount"), _others(statement))
    page.figures(("Day (UTC)", "Amount", "In the month so far"), _days(statement))
    page.foot()
    return bytes(page.output())


class _Page(FPDF):
    """A4, with the statement's name and the page's number at the foot."""

    def __init__(self, statement: Statement) -> None:
        super().__init__()
        self._statement = statement
        fonts = _fonts()
        self.add_font(_FONT, "", fonts / "DejaVuSans.ttf")
        self.add_font(_FONT, "B", fonts / "DejaVuSans-Bold.ttf")
        self.set_margin(_MARGIN)
        self.set_auto_page_break(True, _MARGIN)
        self.set_title(self._name())
        self.set_lang("en")

    def footer(self) -> None:
        """Called by fpdf2 for each page."""
        self.set_y(-15)
        self.set_font(_FONT, size=8)
        self.cell(0, 5, f"{self._name()}, page {self.page_no()} of {{nb}}", align="C")

    def head(self) -> None:
        """Whose statement it is, and how final."""
        account, known = self._statement.account, self._statement.as_of
        self._line("Statement", 9)
        self._line(title_of(account), 18, "B")
        self._line(month_name(self._statement.month.start), 13)
        lead = f", led by {account.supervisor}" if account.supervisor else ""
        self._line(f"Account {account.name}{lead}", 9)
        self._line(_STATUS[self._statement.status], 9)
        if self._statement.corrected:
            self._line("Corrected: some of it was changed after the month had been final.", 9)
        if known is not None:
            self._line(f"As known on {moment_name(moment(known))}. {self._reach()}", 9)

    def foot(self) -> None:
        """What holds for all figures."""
        self.ln(4)
        self._line(_NOTE, 8)

    def _reach(self) -> str:
        """How far the bill reaches, and how much of the use it covers."""
        through, coverage = self._statement.billed_through, self._statement.coverage
        if through is None:
            return "No bill has arrived yet."
        covers = "" if coverage is None else f" and covers {percentage(coverage)} of the node time used"
        return f"The bill reaches to {day_name(through)}{covers}."

    def figures(self, heading: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
        """A table whose last columns are figures."""
        head, *body = [tuple(heading), *map(tuple, rows)]
        if not body:
            return
        self.ln(4)
        self.set_font(_FONT, size=9)
        texts = sum(1 for name in head if name in ("", "Kind") or name == head[0])
        align = ["LEFT"] * texts + ["RIGHT"] * (len(head) - texts)
        widths = [3] * texts + [2] * (len(head) - texts)
        lines = TableBordersLayout.HORIZONTAL_LINES
        self.set_draw_color(_GREY)
        self.set_line_width(_THIN)
        with self.table(col_widths=widths, text_align=align, borders_layout=lines, line_height=_ROW) as table:
            for row in (head, *body):
                table.row(row)

    def _name(self) -> str:
        return f"{self._statement.account.name}, {month_name(self._statement.month.start)}"

    def _line(self, text: str, size: int, style: str = "") -> None:
        self.set_font(_FONT, style, size)
        self.multi_cell(0, size * 0.55, text, new_x=XPos.LMARGIN, new_y=YPos.NEXT)


def _fonts() -> Path:
    """The fonts that matplotlib ships: fpdf2's own know no names beyond Latin-1."""
    from matplotlib import get_data_path

    return Path(get_data_path()) / "fonts" / "ttf"


def _figures(statement: Statement) -> list[tuple[str, str]]:
    named: tuple[tuple[str, Decimal | None], ...] = (
        ("Spent", statement.spent),
        ("of it on jobs", statement.jobs),
        ("of it on idle nodes", statement.idle),
        ("of it on shared nodes", statement.shared),
        ("Budget", statement.budget),
        ("of it from the month before", statement.carried or None),
        ("of it approved beyond the budget", statement.approved or None),
        ("Ran since the last day of the bill", statement.unbilled or None),
        ("Left", statement.left),
        ("Expected by the end", statement.projected),
    )
    return [(name, _money(statement, amount)) for name, amount in named if amount is not None]


def _parts(statement: Statement) -> list[tuple[str, str, str, str]]:
    return [
        (
            part.name,
            _LEVELS.get(part.level, part.level),
            _money(statement, part.amount),
            percentage(part.percent),
        )
        for part in statement.parts
    ]


def _uncharged(statement: Statement) -> list[tuple[str, str]]:
    left = statement.uncharged
    named = (("Idle nodes", left.idle), ("Shared nodes", left.shared), ("Untagged", left.untagged))
    return [(name, _money(statement, amount)) for name, amount in named]


def _others(statement: Statement) -> list[tuple[str, str]]:
    return [(code, money(amount, code)) for code, amount in statement.other_currencies.items()]


def _days(statement: Statement) -> list[tuple[str, str, str]]:
    return [
        (day_name(point.day), _money(statement, point.amount), _money(statement, point.cumulative))
        for point in statement.days
    ]


def _money(statement: Statement, amount: Decimal) -> str:
    return money(amount, statement.currency)
