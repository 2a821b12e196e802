"""What is behind figures, as CSV: jobs and entries of the ledger. Amounts are exact."""

from __future__ import annotations

from collections.abc import Iterable

from api.formats.tables import as_table
from api.services.entries import Entry
from api.services.job_costs import JobCost
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
