"""What is behind an account's figures: entries of the ledger, and the bill's rows."""

from __future__ import annotations

from decimal import Decimal
from urllib.parse import quote

from api.pages.account import quality_of
from api.pages.breakdown import KINDS, capacity_name, reason_words
from api.pages.frame import Frame
from api.pages.render import render
from api.pages.tables import Column, Table, text
from api.pages.wording import DASH, fine_money, hours, minute_name, money
from api.services.bill_rows import BillLines
from api.services.entries import Entries, EntriesWanted
from api.services.reports import Report
from hpctools.budget.money import total
from hpctools.budget.tree import BudgetSite

PER_PAGE = 100


def entries_page(
    frame: Frame, site: BudgetSite, report: Report, found: Entries, wanted: EntriesWanted, first: bool
) -> str:
    """Entries of the ledger, a page of them.

    Args:
        found: one more than a page has, if there are more.
        first: it is the first page.
    """
    account = report.account
    told, more = found.entries[:PER_PAGE], len(found.entries) > PER_PAGE
    here = f"/accounts/{account.name}"
    kind = f"&kind={wanted.kind}" if wanted.kind else ""
    group = f"&node_group={quote(wanted.node_group)}" if wanted.node_group else ""
    sums: dict[str, Decimal] = {}
    for entry in told:
        sums[entry.currency] = total((sums.get(entry.currency, Decimal(0)), entry.amount))
    return render(
        "entries.html",
        frame=frame,
        title="Entries of the ledger",
        quality=quality_of(report),
        wanted=wanted,
        kinds=KINDS,
        groups=[each.name for each in site.node_groups],
        table=_entries_table(found, len(told)),
        together=[money(amount, code) for code, amount in sums.items()] if first and not more else [],
        later=f"{frame.period}{kind}{group}&after={told[-1].id}" if more else "",
        jobs=f"{here}/jobs{frame.period}{group}",
        bill=f"{here}/bill{frame.period}{group}" if wanted.node_group else "",
    )


def bill_page(frame: Frame, report: Report, node_group: str, found: BillLines, page: int) -> str:
    """The bill's rows of a node group that an account is charged with a part of."""
    own = total(each.amount for each in report.slices if each.node_group == node_group)
    here = f"{frame.period}&node_group={quote(node_group)}&page="
    return render(
        "bill.html",
        frame=frame,
        title=f"The bill of {node_group}",
        account=report.account,
        quality=quality_of(report),
        own=money(own, report.currency),
        together=[money(amount, code) for code, amount in found.amounts.items()],
        table=_bill_table(found),
        file=f"/accounts/{report.account.name}/bill.csv{frame.period}&node_group={quote(node_group)}",
        earlier=f"{here}{page - 1}" if page > 1 else "",
        later=f"{here}{page + 1}" if page * PER_PAGE < found.total else "",
    )


def _entries_table(found: Entries, count: int) -> Table:
    rows = tuple(
        (
            text(str(entry.day)),
            text(KINDS[entry.kind], detail=entry.account or "nobody"),
            text(
                entry.node_group or "no node", detail=capacity_name(entry.capacity) if entry.capacity else ""
            ),
            text(reason_words(entry.reason), detail=minute_name(entry.as_of)),
            text(fine_money(entry.amount, entry.currency)),
        )
        for entry in found.entries[:count]
    )
    columns = (
        Column("About"),
        Column("What"),
        Column("Node group", minor=True),
        Column("Why, and when"),
        Column("Amount", "number"),
    )
    return Table("Entries of the ledger", columns, rows)


def _bill_table(found: BillLines) -> Table:
    rows = tuple(
        (
            text(str(line.day)),
            text(line.usage, detail=line.service),
            text(line.charge, detail=capacity_name(line.capacity) if line.capacity else ""),
            text(f"{line.rows:,}"),
            text(hours(line.node_hours) if line.node_hours else DASH),
            text(money(line.amount, line.currency)),
        )
        for line in found.lines
    )
    columns = (
        Column("Day"),
        Column("Usage"),
        Column("Kind", minor=True),
        Column("Rows", "number", minor=True),
        Column("Node-hours", "number", minor=True),
        Column("Amount", "number"),
    )
    return Table("Rows of the bill", columns, rows)
