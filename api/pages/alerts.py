"""The alerts page: what was told to whom, and which thresholds come next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date

from api.formats.tables import as_lines
from api.pages.frame import Frame, title_of
from api.pages.render import render
from api.pages.tables import Cell, Column, Row, Table, text
from api.pages.wording import day_name, moment_name, money, percentage
from api.services.alert_history import Delivery, Standing, Threshold, Told
from hpctools.budget.money import difference
from hpctools.budget.month import moment
from hpctools.budget.tree import BudgetSite

CSV_COLUMNS = (
    *("id", "at", "account", "kind", "threshold_percent", "period_first", "currency", "allowed", "reached"),
    *("channel", "target", "state", "attempts", "last_at", "problem"),
)

_KINDS = {
    "spent": "spent",
    "forecast": "expected by the end",
    "enforce": "spent; its policy begins",
}
_TONES = {"sent": "good", "failed": "bad", "waiting": ""}


def alerts_page(
    around: Frame, site: BudgetSite, standings: Sequence[Standing], told: Sequence[Told], older: int | None
) -> str:
    """The page.

    Args:
        older: from where the next page goes on; None on the last.
    """
    return render(
        "alerts.html",
        frame=around,
        title="Alerts",
        standings=_standings(site, standings),
        history=_history(site, told),
        older=older,
    )


def alerts_csv(told: Iterable[Told]) -> Iterator[str]:
    """One row for each message of each alert; one without a message for alerts that nobody hears of."""
    return as_lines(CSV_COLUMNS, (row for each in told for row in _csv_rows(each)))


def _standings(site: BudgetSite, standings: Sequence[Standing]) -> Table:
    columns = (
        Column("Account"),
        Column("Used", "number"),
        Column("Told in this period"),
        Column("Next"),
        Column("To go", "number"),
    )
    rows = tuple(_standing(site, each) for each in standings)
    return Table(
        "Thresholds of each budget", columns, rows, empty="No account that you may see has a budget."
    )


def _standing(site: BudgetSite, each: Standing) -> Row:
    outlook, coming = each.outlook, each.next
    told = [_name(found) for found in each.thresholds if found.told_at is not None]
    due = ", ".join(map(_name, each.due))
    to_go = difference(coming.amount, each.figure(coming)) if coming else None
    name = outlook.account.name
    return (
        text(title_of(site.by_name[name]), f"/accounts/{name}/budget", name if outlook.account.title else ""),
        text(percentage(outlook.percent_used)),
        text(", ".join(told) or "none", detail=f"at the next look: {due}" if due else ""),
        text(_name(coming) if coming else "none"),
        text("" if to_go is None else money(to_go, outlook.spendable.currency)),
    )


def _name(threshold: Threshold) -> str:
    return f"{_share(threshold.kind)}{threshold.percent} %"


def _share(kind: str) -> str:
    return {"forecast": "expected ", "enforce": "policy at "}.get(kind, "")


def _history(site: BudgetSite, told: Sequence[Told]) -> Table:
    columns = (Column("Alert"), Column("When"), Column("Reached", "number"), Column("Told to"))
    rows = tuple(_told(site, each) for each in told)
    return Table("Alerts, the newest first", columns, rows, empty="No alert was due yet.")


def _told(site: BudgetSite, each: Told) -> Row:
    row = each.row
    account = site.by_name.get(row.account)
    when = moment(row.at)
    return (
        text(
            f"{title_of(account) if account else row.account}: {row.threshold} %",
            f"/accounts/{row.account}/budget" if account else "",
            f"{_KINDS.get(row.kind, row.kind)}, period from {_day(row.period_first)}",
        ),
        text(_day(when.date()), detail=f"{when:%H:%M} UTC"),
        text(money(row.reached, row.currency), detail=f"of {money(row.allowed, row.currency)}"),
        _deliveries(each.deliveries),
    )


def _day(day: date) -> str:
    return f"{day_name(day)} {day.year}"


def _deliveries(found: Sequence[Delivery]) -> Cell:
    """Where it went; the worst of it in front."""
    if not found:
        return text("nobody", detail="The budget names nobody to be told.", tone="warn")
    order = ("failed", "waiting", "sent")
    worst = min(found, key=lambda each: order.index(each.state))
    return text(
        {"failed": "not arrived", "waiting": "on its way", "sent": "arrived"}[worst.state],
        detail="; ".join(_delivery(each) for each in found),
        tone=_TONES[worst.state],
    )


def _delivery(each: Delivery) -> str:
    where = f"{each.channel} {each.target}"
    if each.state == "sent":
        return f"{where}: arrived {moment_name(moment(each.at))}"
    if not each.attempts:
        return f"{where}: not tried yet"
    tried = f"tried {each.attempts} times" if each.attempts != 1 else "tried once"
    again = f"again at {moment_name(moment(each.next_at))}" if each.next_at is not None else "given up"
    return f"{where}: {tried}, {again}" + (f" ({each.problem})" if each.problem else "")


def _csv_rows(each: Told) -> Iterator[tuple[str, ...]]:
    row = each.row
    head = (
        *(str(row.id), moment(row.at).isoformat(), row.account, row.kind, str(row.threshold)),
        *(row.period_first.isoformat(), row.currency, f"{row.allowed:f}", f"{row.reached:f}"),
    )
    if not each.deliveries:
        yield (*head, "", "", "", "", "", "")
    for found in each.deliveries:
        last = moment(found.at).isoformat()
        yield (
            *head,
            *(found.channel, found.target, found.state, str(found.attempts), last, found.problem),
        )
