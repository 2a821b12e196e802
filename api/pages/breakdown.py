"""What was spent, cut into parts: tables of an account's page. Every row leads to what is behind it."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from urllib.parse import quote

from api.pages.frame import title_of
from api.pages.tables import Cell, Column, Row, Table, bar, text
from api.pages.wording import DASH, hours, money, percentage
from api.services.reports import Report, Slice
from api.services.standing import Allowed
from api.services.waste import LOST, Ended, GroupUse
from hpctools.budget.money import percent, total
from hpctools.budget.tree import Account, BudgetSite

HEADINGS = {"site": "Departments", "department": "Labs", "lab": "People"}

_UNCHARGED = {
    "idle": ("Idle", "paid for while no job used it"),
    "shared": ("Shared", "login nodes and the like"),
    "untagged": ("Untagged", "support, tax and what the bill names no nodes for"),
}
_CAPACITIES = {"reserved": "Reserved", "on-demand": "On demand", "spot": "Spot", "": "Own nodes"}
KINDS = {
    "attributed": "Jobs",
    "idle": "Idle nodes",
    "shared": "Login nodes and the like",
    "untagged": "What names no nodes",
}
"""Kinds of entries, as people say them."""

_REASONS = {
    "first": "counted for the first time",
    "bill": "the bill changed",
    "jobs": "what is known of jobs changed",
    "policy": "the site's rules changed",
    "time": "time went on",
    "again": "counted again",
    "": "counted",
}
_STATES = {
    "COMPLETED": "Completed",
    "RUNNING": "Still running",
    "FAILED": "Failed",
    "CANCELLED": "Cancelled",
    "TIMEOUT": "Ran out of time",
    "DEADLINE": "Missed their deadline",
    "OUT_OF_MEMORY": "Ran out of memory",
    "NODE_FAIL": "Lost a node",
    "BOOT_FAIL": "Their node did not start",
    "PREEMPTED": "Gave way to others",
}


def state_name(state: str) -> str:
    """As people say it."""
    return _STATES.get(state, state.replace("_", " ").capitalize())


def capacity_name(capacity: str) -> str:
    """As people say it."""
    return _CAPACITIES.get(capacity, capacity) if capacity else DASH


def reason_words(reason: str) -> str:
    """Why something was posted, as people say it."""
    return " and ".join(_REASONS.get(word, word) for word in reason.split("+"))


def parts_table(
    site: BudgetSite, report: Report, period: str, budgets: Mapping[str, Allowed | None]
) -> Table:
    """Who spent it: departments of the site, labs of a department, people of a lab.

    Args:
        period: what addresses end with.
        budgets: of the accounts directly below.
    """
    sums = report.by(lambda each: _part_of(report, each))
    for child in site.children(report.account.name):
        sums.setdefault(f"account {child.name}", Decimal(0))
    longest = max(sums.values(), default=Decimal(0))
    with_budget = any(budgets.values())
    rows = []
    for key, spent in sums.items():
        kind, _, name = key.partition(" ")
        head = _head(site, report, kind, name, period)
        row = [head, bar(spent, longest), text(_money(report, spent)), _share(report, spent)]
        rows.append(tuple(row + _budget(report, budgets.get(name), spent)) if with_budget else tuple(row))
    more = (Column("Budget", "number", minor=True), Column("Used", "number")) if with_budget else ()
    foot = [
        text("The whole bill" if report.account.level == "site" else "Together"),
        Cell(),
        text(_money(report, report.spent)),
        Cell(),
    ]
    return Table(
        HEADINGS[report.account.level],
        (
            Column("Name"),
            Column("", "bar"),
            Column("Spent", "number"),
            Column("Share", "number", minor=True),
            *more,
        ),
        tuple(rows),
        tuple(foot + [Cell(), Cell()] * bool(with_budget)),
        "Nobody is charged with anything in these days.",
    )


def groups_table(site: BudgetSite, report: Report, period: str) -> Table:
    """On which nodes: node groups with how they are paid for, jobs and idle time apart."""
    jobs = report.by(lambda each: each.node_group if each.kind == "attributed" else None)
    idle = report.by(lambda each: each.node_group if each.kind == "idle" else None)
    together = report.by(lambda each: each.node_group)
    here = f"/accounts/{report.account.name}/entries{period}&node_group="
    rows = tuple(
        (
            text(name or "No node", f"{here}{quote(name)}" if name else "", _group_detail(site, name)),
            bar(spent, max(together.values())),
            text(_money(report, jobs[name]) if name in jobs else DASH),
            text(_money(report, idle[name]) if name in idle else DASH),
            text(_money(report, spent)),
            _share(report, spent),
        )
        for name, spent in together.items()
    )
    columns = (
        Column("Nodes"),
        Column("", "bar"),
        Column("Jobs", "number", minor=True),
        Column("Idle", "number", minor=True),
        Column("Spent", "number"),
        Column("Share", "number", minor=True),
    )
    return Table("Node groups", columns, rows)


def capacities(site: BudgetSite, report: Report) -> list[tuple[str, str, Decimal]]:
    """By kind of capacity, the largest first: name, amount, and percent of what was spent."""
    sums = report.by(lambda each: capacity_of(site, each))
    return [
        (name, _money(report, amount), percent(amount, report.spent) or Decimal(0))
        for name, amount in sums.items()
    ]


def capacity_of(site: BudgetSite, each: Slice) -> str:
    """How the nodes of a slice are paid for: as the bill tells it, else as the site declares the nodes."""
    return paid_as(site, each.node_group, each.capacity)


def paid_as(site: BudgetSite, node_group: str, capacity: str) -> str:
    """How a node group's nodes are paid for, as people say it.

    Args:
        capacity: as the bill tells it; empty where it does not.
    """
    group = site.groups.get(node_group)
    if group is None:
        return "No node"
    return "Shared" if group.role == "shared" else _CAPACITIES[capacity or group.capacity]


def ended_table(report: Report, ended: tuple[Ended, ...], period: str) -> Table:
    """How jobs ended."""
    whole = total(each.amount for each in ended)
    here = f"/accounts/{report.account.name}/jobs{period}&state="
    rows = tuple(
        (
            text(
                state_name(each.state), f"{here}{quote(each.state)}", "", "bad" if each.state in LOST else ""
            ),
            bar(each.amount, max(other.amount for other in ended)),
            text(f"{each.jobs:,}" if each.state != "RUNNING" else DASH),
            text(_money(report, each.amount)),
            text(percentage(percent(each.amount, whole))),
        )
        for each in ended
    )
    columns = (
        Column("Jobs that"),
        Column("", "bar"),
        Column("Ended", "number", minor=True),
        Column("Cost", "number"),
        Column("Share", "number"),
    )
    return Table("How jobs ended", columns, rows, empty="No job has a part of the bill in these days.")


def use_table(report: Report, groups: tuple[GroupUse, ...]) -> Table:
    """How much of the site's nodes was used, by all together."""
    rows: tuple[Row, ...] = tuple(
        (
            text(each.node_group),
            bar(_busy(each) or Decimal(0), Decimal(100)),
            text(percentage(_busy(each))),
            text(hours(each.idle_hours)),
            text(hours(each.idle_gpu_hours) if each.idle_gpu_hours else DASH),
            text(_money(report, each.idle)),
        )
        for each in groups
    )
    columns = (
        Column("Node group"),
        Column("", "bar"),
        Column("In use", "number"),
        Column("Idle node-hours", "number", minor=True),
        Column("Idle GPU-hours", "number"),
        Column("Cost of idle", "number"),
    )
    return Table("How much of the nodes was used", columns, rows)


def _busy(use: GroupUse) -> Decimal | None:
    if use.idle_hours is None:
        return None
    return percent(use.used_hours, use.used_hours + use.idle_hours)


def _part_of(report: Report, each: Slice) -> str:
    if not each.part:
        return f"nobody {each.kind}"
    if each.part != report.account.name:
        return f"account {each.part}"
    if report.account.level == "lab" and each.user:
        return f"person {each.user}"
    return f"own {each.kind}" if report.account.level == "lab" else "own "


def _head(site: BudgetSite, report: Report, kind: str, name: str, period: str) -> Cell:
    here = f"/accounts/{report.account.name}"
    if kind == "nobody":
        label, detail = _UNCHARGED[name]
        return text(label, f"{here}/entries{period}&kind={name}", detail)
    if kind == "person":
        return text(name, f"{here}/jobs{period}&user={quote(name)}")
    if kind == "own":
        labels = {"idle": "Share of idle nodes", "shared": "Share of login nodes and the like"}
        label = labels.get(name, "Charged to the account itself")
        return text(label, f"{here}/entries{period}" + (f"&kind={name}" if name else ""))
    account = site.by_name.get(name)
    if account is None:
        return text(name, detail="no longer in the site file")
    return text(title_of(account), f"/accounts/{name}{period}", _detail(account))


def _detail(account: Account) -> str:
    lead = f"led by {account.supervisor}" if account.supervisor else ""
    return ", ".join(filter(None, (account.name if account.title else "", lead)))


def _group_detail(site: BudgetSite, name: str) -> str:
    group = site.groups.get(name)
    if group is None:
        return "not a node group of the site file" if name else "support, tax and the like"
    kind = "shared by all" if group.role == "shared" else _CAPACITIES[group.capacity].lower()
    return ", ".join(filter(None, (group.instance_type, kind)))


def _budget(report: Report, allowed: Allowed | None, spent: Decimal) -> list[Cell]:
    if allowed is None:
        return [text(DASH), text(DASH)]
    used = percent(spent, allowed.total)
    return [text(money(allowed.total, allowed.currency)), text(percentage(used), tone=used_tone(used))]


def used_tone(used: Decimal | None) -> str:
    """How much of a budget is used, as a colour."""
    return "" if used is None or used < 90 else "warn" if used <= 100 else "bad"


def _share(report: Report, amount: Decimal) -> Cell:
    return text(percentage(percent(amount, report.spent)))


def _money(report: Report, amount: Decimal) -> str:
    return money(amount, report.currency)
