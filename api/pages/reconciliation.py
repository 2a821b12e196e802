"""The page of reconciliation: whether the books are kept, and what to do where they are not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from api.formats.tables import as_lines
from api.pages.frame import Frame
from api.pages.render import render
from api.pages.tables import Cell, Column, Row, Table, text
from api.pages.wording import day_name, money, month_name, percentage, time_name
from api.services.reconciliation_health import JobsState, MonthState, ReconciliationHealth, Restatement
from api.services.runs import Run
from hpctools.budget.money import percent, to_places
from hpctools.budget.month import DAY_SECONDS, day_start, moment

CSV_COLUMNS = (
    *("id", "month", "state", "principal", "requested_at", "started_at", "ended_at"),
    *("bill_days", "jobs", "entries", "error", "remedy"),
)
LEAST_COVERAGE = 0.9
MOST_UNTAGGED = Decimal(5)
BILL_LATE_SECONDS = 2 * DAY_SECONDS
_NEVER_FINAL_DAYS = 20
_STATES = {
    "queued": ("waits", ""),
    "running": ("runs", ""),
    "done": ("done", "good"),
    "failed": ("failed", "bad"),
    "lost": ("cut off", "bad"),
}


@dataclass(frozen=True)
class Finding:
    """Something that is not well.

    Attributes:
        next: what to do about it.
    """

    tone: str
    what: str
    next: str


@dataclass(frozen=True)
class Settings:
    """What the service was told.

    Attributes:
        every: seconds between two runs of the present month; 0 when it begins none by itself.
        undelivered: how many messages of alerts did not arrive.
    """

    every: int
    undelivered: int


def reconciliation_page(
    around: Frame, health: ReconciliationHealth, runs: Sequence[Run], settings: Settings, now: int, form: str
) -> str:
    """The page.

    Args:
        runs: the newest ones.
        form: the token of forms.
    """
    found = list(findings(health, settings, now))
    return render(
        "reconciliation.html",
        frame=around,
        title="Reconciliation",
        findings=found,
        months=_months(health.months),
        sources=_sources(health),
        jobs=_jobs(health.jobs),
        restatements=_restatements(health.restatements),
        runs=_runs(runs),
        choices=[(str(each.month), month_name(each.month.start)) for each in health.months],
        form=form,
    )


def findings(health: ReconciliationHealth, settings: Settings, now: int) -> Iterator[Finding]:
    """What is not well, the most pressing first."""
    present, *earlier = health.months
    yield from _of_runs(present, settings, now)
    yield from _of_bill(health, now)
    yield from _of_jobs(health.jobs)
    yield from _of_tags(present)
    for month in earlier:
        yield from _of_closing(month, now)
    if settings.undelivered:
        yield Finding(
            "warn",
            "A message of an alert has not arrived."
            if settings.undelivered == 1
            else f"{settings.undelivered} messages of alerts have not arrived.",
            "See the page of alerts for where and why; check the mail relay and the addresses.",
        )


def runs_csv(runs: Iterable[Run]) -> Iterator[str]:
    """Runs as rows."""
    return as_lines(CSV_COLUMNS, map(_csv_row, runs))


def _of_runs(present: MonthState, settings: Settings, now: int) -> Iterator[Finding]:
    last, done_at = present.last, present.done_at
    if last is not None and last.state in ("failed", "lost"):
        yield Finding(
            "bad",
            f"The last run ended {time_name(last.ended_at)} without success: {last.error or 'unknown'}.",
            f"{_remedy(last)} Nothing was half posted.",
        )
    if done_at is None:
        yield Finding("bad", f"{month_name(present.month.start)} was never reconciled.", _START)
    elif settings.every and now - done_at > 3 * settings.every:
        yield Finding(
            "bad",
            f"The last success is from {time_name(done_at)}: nothing is brought up to date since.",
            "See the service's log, and whether another replica holds the lock: journalctl -u hpctools-api.",
        )
    if not settings.every:
        yield Finding(
            "warn",
            "The service begins no runs by itself (HPCTOOLS_API_RECONCILE_EVERY=0).",
            "Run hpctools-api reconcile by a timer, or set the variable.",
        )


_START = "Reconcile below; the run's error then says what is missing."


def _of_bill(health: ReconciliationHealth, now: int) -> Iterator[Finding]:
    for source in health.sources:
        if source.pulled_at is None:
            yield Finding(
                "bad",
                f"Nothing was ever read of {source.name}.",
                "See docs/budgets.md, Connect AWS: the export, its bucket and the service's role.",
            )
            continue
        through = source.billed_through
        if through is None:
            yield Finding(
                "warn",
                f"{source.name} has no rows of this month yet.",
                "At a month's beginning wait a day; else check the export's delivery, or the tag filter.",
            )
        elif now - day_start(through) - DAY_SECONDS > BILL_LATE_SECONDS:
            yield Finding(
                "bad",
                f"The bill of {source.name} ends on {day_name(through)}.",
                "Providers are about a day late, not more: check the export's last delivery and the role.",
            )


def _of_jobs(jobs: JobsState) -> Iterator[Finding]:
    if jobs.missing:
        days = _days(jobs.missing[0], jobs.missing[-1])
        yield Finding(
            "bad",
            f"slurmdbd was not asked for {len(jobs.missing)} days ({days}): their node time counts as idle.",
            "Check sacct as the service's account and slurmdbd; then reconcile the month below.",
        )


def _of_tags(present: MonthState) -> Iterator[Finding]:
    statement = present.statement
    untagged = percent(statement.uncharged.untagged, statement.spent)
    if untagged is not None and untagged > MOST_UNTAGGED:
        yield Finding(
            "warn",
            f"{percentage(untagged)} of the bill "
            f"({money(statement.uncharged.untagged, statement.currency)}) names no node group.",
            "Tag the nodes and activate the cost allocation tag: docs/budgets.md, Connect AWS.",
        )
    if present.coverage is not None and present.coverage < LEAST_COVERAGE:
        yield Finding(
            "warn",
            f"The bill has arrived for {_ratio(present.coverage)} of the node time that jobs used.",
            "A day late is usual; if it stays, a node group's tag or instance type is not what the bill has.",
        )


def _of_closing(month: MonthState, now: int) -> Iterator[Finding]:
    late = now - day_start(month.month.end) > _NEVER_FINAL_DAYS * DAY_SECONDS
    if late and month.statement.status == "estimated":
        yield Finding(
            "warn",
            f"{month_name(month.month.start)} is still estimated.",
            "Its invoice is not out, or a job of it still runs: see the sources below, and squeue.",
        )


def _months(months: Sequence[MonthState]) -> Table:
    columns = (
        *(Column("Month"), Column("State"), Column("Last success"), Column("Took", "number")),
        *(Column("Bill through"), Column("Coverage", "number"), Column("Untagged", "number")),
    )
    return Table("Books, month by month", columns, tuple(map(_month, months)))


def _month(each: MonthState) -> Row:
    statement, done = each.statement, each.done
    status = {"none": "not reconciled", "estimated": "estimated", "final": "final"}[statement.status]
    took = done.ended_at - done.started_at if done and done.ended_at and done.started_at else None
    untagged = statement.uncharged.untagged
    through = statement.billed_through
    return (
        text(month_name(each.month.start), f"/accounts/root?period={each.month}"),
        text(
            status + (", corrected" if statement.corrected else ""),
            tone="good" if status == "final" else "",
        ),
        text(time_name(each.done_at) or "never"),
        text("" if took is None else f"{took:,} s"),
        text(day_name(through) if through else "none"),
        text("" if each.coverage is None else _ratio(each.coverage)),
        text(
            money(untagged, statement.currency),
            detail=percentage(percent(untagged, statement.spent)) if statement.spent else "",
        ),
    )


def _sources(health: ReconciliationHealth) -> Table:
    columns = (
        *(Column("Source"), Column("Last read"), Column("Bill through"), Column("State")),
        *(Column("Rows", "number"), Column("Days changed", "number")),
    )
    rows = tuple(
        (
            text(source.name),
            text(time_name(source.pulled_at) or "never", tone="" if source.pulled_at else "bad"),
            text(day_name(source.billed_through) if source.billed_through else "none"),
            text("may still change" if source.estimated else "invoiced"),
            text(f"{source.row_count:,}"),
            text(f"{source.changed_days:,}"),
        )
        for source in health.sources
    )
    return Table("Sources of the bill", columns, rows, empty="The site file names no source of bills.")


def _jobs(jobs: JobsState) -> Table:
    columns = (Column("What slurmdbd told"), Column("When"))
    rows: list[Row] = [(text("Something new, last"), text(time_name(jobs.told_at) or "never"))]
    rows += [
        (
            text(f"Records of {_days(first, last)}", detail="late; the days were divided anew"),
            text(time_name(seen), tone="warn"),
        )
        for first, last, seen in jobs.late
    ]
    return Table("slurmdbd", columns, tuple(rows))


def _restatements(found: Sequence[Restatement]) -> Table:
    columns = (
        *(Column("Month"), Column("Known on"), Column("Because of")),
        *(Column("Days", "number"), Column("Entries", "number"), Column("Bill changed by", "number")),
    )
    rows = tuple(
        (
            text(each.month, detail="after it had been final" if each.after_final else ""),
            text(time_name(each.at)),
            text(_reason(each.reason)),
            text(f"{each.days:,}"),
            text(f"{each.entries:,}"),
            text(money(each.amount, each.currency) if to_places(each.amount, 2) else "nothing"),
        )
        for each in found
    )
    return Table(
        "Changes of what had been posted", columns, rows, empty="Nothing that was posted was changed since."
    )


def _reason(reason: str) -> str:
    words = {"bill": "the bill", "jobs": "late or changed jobs", "policy": "the site's rules", "time": "time"}
    return " and ".join(words.get(part, part) for part in reason.split("+") if part != "time") or "time"


def _runs(runs: Sequence[Run]) -> Table:
    columns = (
        *(Column("Run"), Column("State"), Column("Asked for"), Column("Took", "number")),
        Column("What was new, or why not"),
    )
    return Table("Runs, the newest first", columns, tuple(map(_run, runs)), empty="There was none yet.")


def _run(run: Run) -> Row:
    word, tone = _STATES[run.state]
    took = run.ended_at - run.started_at if run.ended_at and run.started_at else None
    return (
        text(f"{run.id}: {run.month}"),
        text(word, tone=tone),
        text(time_name(run.requested_at), detail=f"by {run.principal}"),
        text("" if took is None else f"{took:,} s"),
        _outcome(run),
    )


def _outcome(run: Run) -> Cell:
    if run.outcome is None:
        return text(run.error or "", detail=run.remedy)
    if run.outcome.superseded:
        return text("a newer run was there already")
    found = run.outcome
    return text(f"{found.bill_days} bill days, {found.jobs:,} jobs, {found.entries:,} ledger entries")


def _csv_row(run: Run) -> tuple[str, ...]:
    times = (run.requested_at, run.started_at, run.ended_at)
    done = run.outcome
    counts = (done.bill_days, done.jobs, done.entries) if done else ("", "", "")
    return (
        *(str(run.id), str(run.month), run.state, run.principal),
        *("" if at is None else moment(at).isoformat() for at in times),
        *map(str, counts),
        *(run.error or "", run.remedy),
    )


def _ratio(part: float) -> str:
    # Down, not up: what is not whole must not look whole.
    return f"{int(part * 1000) / 10:.1f}\N{NO-BREAK SPACE}%"


def _remedy(run: Run) -> str:
    """What to do after a run without success, in sentences."""
    if not run.remedy:
        return "Mend what it names and reconcile again below."
    return f"{run.remedy[0].upper()}{run.remedy[1:]}. Then reconcile again below."


def _days(first: date, last: date) -> str:
    return day_name(first) if first == last else f"{day_name(first)} to {day_name(last)}"
