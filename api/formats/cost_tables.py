"""Accounts, and what is behind their figures, as CSV. Amounts are exact."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta

from api.formats.tables import as_table
from api.services.bill_rows import BillLine
from api.services.entries import Entry
from api.services.job_costs import JobCost
from api.services.listing import Listed
from api.services.one_job import KnownJob
from hpctools.budget.allowance import Period
from hpctools.budget.month import moment

JOB_COLUMNS = (
    *(
        "cluster",
        "job_id",
        "name",
        "account",
        "user",
        "partition",
        "qos",
        "state",
        "submitted",
        "start",
        "end",
    ),
    *("node_seconds", "currency", "amount"),
)
ENTRY_COLUMNS = (
    *("id", "run", "known_on", "reason", "day", "node_group", "kind", "account", "capacity", "currency"),
    "amount",
)

ACCOUNT_COLUMNS = (
    *("account", "title", "level", "parent", "supervisor", "first", "last", "currency", "spent"),
    *("budget", "carried", "approved"),
)
BILL_COLUMNS = (
    *("day", "node_group", "service", "usage", "charge", "capacity", "rows", "node_hours", "currency"),
    "amount",
)
JOB_DAY_COLUMNS = (
    *("cluster", "dbindex", "job_id", "name", "account", "user", "section", "run", "known_on", "reason"),
    *("day", "node_group", "capacity", "currency", "amount"),
)
"""`section` says what a row is: `day`, what it cost on one, or `entry`, a change of it. Both add up."""


def accounts_csv(period: Period, found: Iterable[Listed]) -> str:
    """Accounts, parents before children; what those below spent is in it. No budget: no figures of one."""
    days = (period.first.isoformat(), (period.end - timedelta(days=1)).isoformat())
    return as_table(ACCOUNT_COLUMNS, (_account(each, days) for each in found))


def _account(each: Listed, days: tuple[str, str]) -> tuple[str, ...]:
    account, allowed = each.account, each.allowed
    parts = (allowed.amount, allowed.carried, allowed.approved) if allowed else ()
    return (
        *(account.name, account.title, account.level, account.parent or "", account.supervisor),
        *(*days, each.currency, f"{each.spent:f}"),
        *((f"{part:f}" for part in parts) if parts else ("", "", "")),
    )


def bill_csv(node_group: str, lines: Iterable[BillLine]) -> str:
    """The bill's rows of a node group, those of a day and usage together."""
    rows = (
        (
            *(line.day.isoformat(), node_group, line.service, line.usage, line.charge, line.capacity),
            *(str(line.rows), f"{line.node_hours:f}", line.currency, f"{line.amount:f}"),
        )
        for line in lines
    )
    return as_table(BILL_COLUMNS, rows)


def job_csv(found: Iterable[KnownJob]) -> str:
    """One job: what it cost day by day, and how that became known."""
    return as_table(JOB_DAY_COLUMNS, (row for known in found for row in _job_rows(known)))


def _job_rows(known: KnownJob) -> Iterator[tuple[str, ...]]:
    job = known.cost
    head = (job.cluster, str(job.dbindex), str(job.job_id), job.name, job.account, job.user)
    for part in job.parts:
        where = (part.day.isoformat(), part.node_group, part.capacity)
        yield (*head, "day", "", "", "", *where, job.currency, f"{part.amount:f}")
    for entry in known.entries:
        told = (str(entry.run), _moment(entry.as_of), entry.reason)
        where = (entry.day.isoformat(), entry.node_group, entry.capacity)
        yield (*head, "entry", *told, *where, entry.currency, f"{entry.amount:f}")


def jobs_csv(jobs: Iterable[JobCost]) -> str:
    """Jobs, each with what it cost in the days that were asked for."""
    rows = (
        (
            *(
                job.cluster,
                str(job.job_id),
                job.name,
                job.account,
                job.user,
                job.partition,
                job.qos,
                job.state,
            ),
            *(_moment(at) for at in (job.submitted, job.start, job.end)),
            *(f"{job.node_seconds:f}", job.currency, f"{job.amount:f}"),
        )
        for job in jobs
    )
    return as_table(JOB_COLUMNS, rows)


def entries_csv(entries: Iterable[Entry]) -> str:
    """Entries of the ledger in the order in which they were posted."""
    rows = (
        (
            *(str(each.id), str(each.run), _moment(each.as_of), each.reason, each.day.isoformat()),
            *(each.node_group, each.kind, each.account, each.capacity, each.currency, f"{each.amount:f}"),
        )
        for each in entries
    )
    return as_table(ENTRY_COLUMNS, rows)


def _moment(seconds: int | None) -> str:
    return "" if seconds is None else moment(seconds).isoformat()
