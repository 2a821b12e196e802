"""Budgets for people on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

Words = dict[str, Any]


def outlooks(found: Sequence[Words]) -> str:
    """A line for each account."""
    if not found:
        return "no account that you may see has a budget\n"
    head = ("account", "until", "spent", "of", "left", "used", "expected", "enforce")
    return _table([head, *(_outlook(each) for each in found)])


def versions(answer: Words) -> str:
    """All budgets of an account."""
    return "".join(version(answer["account"], each) for each in answer["versions"]) or "no budget\n"


def version(account: str, made: Words) -> str:
    """One budget."""
    budget = made["budget"]
    why = f" ({made['why']})" if made["why"] else ""
    carry = f", carries over its {budget['carry_over']}" if budget["carry_over"] != "none" else ""
    return (
        f"{account}: {budget['amount']} {budget['currency']} {budget['period']}{carry}, "
        f"enforce {budget['enforce']['policy']}, from {made['effective']}, by {made['made_by']}{why}\n"
    )


def alerts(found: Sequence[Words]) -> str:
    """A line for each alert."""
    if not found:
        return "no alerts\n"
    head = ("at", "account", "kind", "threshold", "reached", "of", "told")
    return _table([head, *(_alert(each) for each in found)])


def forecast(account: str, found: Words) -> str:
    """One sentence."""
    return (
        f"{account}: {_money(found['expected'])} expected, {found['covers_percent']} % between "
        f"{_money(found['low'])} and {_money(found['high'])} (from {found['days']} days)\n"
    )


def jobs(answer: Words) -> str:
    """A line for each job, and what all of them cost."""
    head = ("job", "user", "account", "state", "start", "node hours", "cost")
    lines = [
        (each["job_id"], each["user"], each["account"], each["state"], _minute(each["start"]), *_cost(each))
        for each in answer["jobs"]
    ]
    return _listed([head, *lines], answer, "jobs") + "".join(
        f"{_money(each['amount'])} {each['currency']} in all\n" for each in answer["sums"]
    )


def runs(answer: Words) -> str:
    """A line for each elastic run."""
    head = ("run", "user", "account", "jobs", "start", "node hours", "cost")
    lines = [
        (each["run"], each["user"], each["account"], str(each["jobs"]), _minute(each["start"]), *_cost(each))
        for each in answer["runs"]
    ]
    return _listed([head, *lines], answer, "runs")


def job(found: Words) -> str:
    """A job, its days, and how they became known."""
    when = f"{_minute(found['start'])} to {_minute(found['end']) if found['end'] else 'now'}"
    cost = f"{_money(found['amount'])} {found['currency']} ({found['quality']['status']})"
    about = (
        f"job {found['job_id']} of {found['user']} in {found['account']}, {found['state']}, {when}: {cost}\n"
    )
    days = [
        (each["day"], each["node_group"], each["capacity"], _money(each["amount"])) for each in found["days"]
    ]
    told = [
        (_minute(each["as_of"]), each["day"], each["node_group"], each["reason"], _money(each["amount"]))
        for each in found["entries"]
    ]
    return (
        about
        + _table([("day", "node group", "capacity", "cost"), *days])
        + "how it became known:\n"
        + _table([("known on", "day", "node group", "reason", "change"), *told])
    )


def _listed(rows: Sequence[tuple[str, ...]], answer: Words, what: str) -> str:
    shown = len(rows) - 1
    if not shown:
        return f"no {what} with a bill\n"
    more = answer["total"] - shown
    return _table(rows) + (f"... and {more} more {what}\n" if more else "")


def _cost(found: Words) -> tuple[str, str]:
    return f"{Decimal(found['node_hours']):.1f}", f"{_money(found['amount'])} {found['currency']}"


def _minute(moment: str | None) -> str:
    return moment[:16].replace("T", " ") if moment else "-"


def enforcement(answer: Words) -> str:
    """What is done, what waits, and why nothing is done."""
    frozen = f"frozen: {answer['frozen']}\n" if answer["frozen"] else ""
    waiting = "".join(f"{each['account']}: in grace until {each['until']}\n" for each in answer["waiting"])
    return frozen + waiting + (steps(answer["steps"]) if not frozen else "")


def steps(found: Iterable[Words]) -> str:
    """A line for each step."""
    return "".join(_step(each) for each in found) or "nothing to do\n"


def _step(step: Words) -> str:
    what = {"limit": f"{step['key']} of {step['subject']}", "hold": f"job {step['subject']}: hold"}
    name = what.get(step["kind"], f"job {step['subject']}: QoS")
    change = (
        f" {step['before'] or 'not set'} -> {step['after'] or 'not set'}" if step["kind"] != "hold" else ""
    )
    return f"{step['action']} {name}{change}" + (f" ({step['why']})" if step["why"] else "") + "\n"


def _outlook(found: Words) -> tuple[str, ...]:
    ahead = found["forecast"]
    return (
        found["account"],
        found["last"],
        _money(found["spent"]),
        f"{_money(found['allowed'])} {found['currency']}",
        _money(found["left"]),
        "-" if found["percent_used"] is None else f"{found['percent_used']} %",
        f"{_money(ahead['low'])} to {_money(ahead['high'])}" if ahead else "-",
        found["policy"],
    )


def _alert(found: Words) -> tuple[str, ...]:
    told = ", ".join(f"{each['target']} {each['state']}" for each in found["deliveries"])
    threshold, currency = f"{found['threshold_percent']} %", found["currency"]
    amounts = (_money(found["reached"]), f"{_money(found['allowed'])} {currency}")
    return (found["at"][:16], found["account"], found["kind"], threshold, *amounts, told or "nobody")


def _money(text: str) -> str:
    return f"{Decimal(text):.2f}"


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "".join(f"{line.rstrip()}\n" for line in lines)
