"""Pages of jobs: the list behind a figure, and one job with all that is known of its cost."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from urllib.parse import quote, urlencode

from api.pages.account import told_quality
from api.pages.breakdown import paid_as, reason_words, state_name
from api.pages.frame import Frame, Link
from api.pages.render import render
from api.pages.tables import Column, Row, Table, text
from api.pages.wording import duration, fine_money, hours, minute_name, money
from api.services.job_costs import JobCost, JobCosts, Wanted
from api.services.one_job import KnownJob
from api.services.waste import LOST
from hpctools.budget.money import to_places
from hpctools.budget.tree import Account, BudgetSite

PER_PAGE = 50

_HOUR = 3600
_STATES = ("COMPLETED", "RUNNING", *sorted(LOST), "PREEMPTED")
_ENDED = frozenset(_STATES) - {"RUNNING"}


def jobs_page(
    frame: Frame, site: BudgetSite, account: Account, found: JobCosts, wanted: Wanted, page: int
) -> str:
    """The jobs behind an account's figures, a page of them."""
    pages = -(-found.total // PER_PAGE)
    return render(
        "jobs.html",
        frame=frame,
        title="Jobs",
        account=account,
        quality=told_quality(found.quality),
        wanted=wanted,
        states=[(state, state_name(state)) for state in _STATES],
        groups=[group.name for group in site.node_groups if group.role == "compute"],
        table=_jobs_table(frame, found.jobs),
        total=found.total,
        page=page,
        pages=pages,
        earlier=_turn(frame, wanted, page - 1) if page > 1 else "",
        later=_turn(frame, wanted, page + 1) if page < pages else "",
    )


def job_page(frame: Frame, site: BudgetSite, number: str, found: Sequence[KnownJob]) -> str:
    """What one job cost; several where its id was used again, or it was requeued."""
    return render(
        "job.html",
        frame=frame,
        title=f"Job {number}",
        jobs=[_told(frame, site, known) for known in found],
        file=f"/jobs/{quote(number)}.csv{frame.period}",
    )


def _jobs_table(frame: Frame, jobs: Sequence[JobCost]) -> Table:
    rows = tuple(_row(frame, job) for job in jobs)
    columns = (
        Column("Job"),
        Column("Whose"),
        Column("Ended as"),
        Column("Started", minor=True),
        Column("Node-hours", "number", minor=True),
        Column("Cost", "number"),
    )
    return Table("Jobs", columns, rows, empty="No job like this has a part of the bill in these days.")


def _row(frame: Frame, job: JobCost) -> Row:
    return (
        text(
            job.called,
            f"/jobs/{quote(job.called)}{frame.period}",
            ", ".join(filter(None, (job.partition, job.qos))),
        ),
        text(job.user, detail=job.account),
        text(state_name(job.state) if job.state else "not known", tone="bad" if job.state in LOST else ""),
        text(minute_name(job.start), detail=_ran(job)),
        text(hours(job.node_seconds / _HOUR)),
        text(money(job.amount, job.currency)),
    )


def _ran(job: JobCost) -> str:
    if job.start is None:
        return ""
    return f"for {duration(job.end - job.start)}" if job.end is not None else f"and {_without_end(job)}"


def _without_end(job: JobCost) -> str:
    """slurmdbd may know for a while how a job ended and not yet when."""
    return "runs" if job.state not in _ENDED else "its end is not known yet"


def _told(frame: Frame, site: BudgetSite, known: KnownJob) -> dict[str, object]:
    job = known.cost
    node_hours = job.node_seconds / _HOUR
    facts = [
        ("Whose", f"{job.user}, {job.account}"),
        *([("Elastic run", job.run)] if job.run else []),
        ("Partition, QoS", ", ".join(filter(None, (job.partition, job.qos))) or "not known"),
        ("State", state_name(job.state) if job.state else "not known"),
        ("Submitted", minute_name(job.submitted or None)),
        ("Started", minute_name(job.start)),
        ("Ended", minute_name(job.end) if job.end is not None else _without_end(job)),
        ("Ran for", _ran(job).removeprefix("for ").removeprefix("and ") or "not known"),
        ("Waited", duration(job.start - job.submitted) if job.start and job.submitted else "not known"),
    ]
    return {
        "cost": money(job.amount, job.currency),
        "node_hours": hours(node_hours),
        "price": money(to_places(job.amount / node_hours), job.currency) if node_hours else "",
        "facts": facts,
        "quality": told_quality(known.quality),
        "account": Link(job.account, f"/accounts/{job.account}{frame.period}"),
        "parts": _parts_table(site, job),
        "entries": _entries_table(known),
    }


def _parts_table(site: BudgetSite, job: JobCost) -> Table:
    rows = tuple(
        (
            text(str(part.day)),
            text(part.node_group),
            text(paid_as(site, part.node_group, part.capacity)),
            text(money(part.amount, job.currency)),
        )
        for part in job.parts
    )
    columns = (Column("Day"), Column("Node group"), Column("Paid as", minor=True), Column("Cost", "number"))
    foot = (text("Together"), text(""), text(""), text(money(job.amount, job.currency)))
    return Table("What it cost, day by day", columns, rows, foot)


def _entries_table(known: KnownJob) -> Table:
    rows = tuple(
        (
            text(minute_name(entry.as_of)),
            text(str(entry.day)),
            text(entry.node_group),
            text(reason_words(entry.reason)),
            text(_change(entry.amount, entry.currency)),
        )
        for entry in known.entries
    )
    columns = (
        Column("Known since"),
        Column("About"),
        Column("Node group", minor=True),
        Column("Why"),
        Column("Change", "number"),
    )
    return Table("How it became known", columns, rows)


def _change(amount: Decimal, currency: str) -> str:
    """With its sign; what is less than a cent is written out."""
    return ("+" if amount > 0 else "") + fine_money(amount, currency)


def filters_of(wanted: Wanted) -> dict[str, str]:
    """What an address has of them."""
    return {name: value for name, value in vars(wanted).items() if value and value != "-cost"}


def _turn(frame: Frame, wanted: Wanted, page: int) -> str:
    return f"{frame.period}&{urlencode(filters_of(wanted) | {'page': str(page)})}"
