"""What is behind a figure: jobs, entries, and how sure they are."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Literal, TypeVar

from pydantic import BaseModel, Field

from api.schemas.access import Next
from api.schemas.account import Amount, Currency
from api.services.books import Quality
from api.services.entries import Entry
from api.services.job_costs import JobCost
from api.services.one_job import JobEntry
from api.services.run_costs import RunCost
from hpctools.budget.allowance import Period
from hpctools.budget.attribution import Kind
from hpctools.budget.month import moment

_MILLI = Decimal("0.001")
_HOUR = 3600


class QualityOut(BaseModel):
    """How sure the figures are."""

    status: Literal["none", "estimated", "final"] = Field(examples=["estimated"])
    corrected: bool = Field(description="Something changed after a month had been final.")
    coverage_percent: Amount | None = Field(
        description="Part of the account's node time whose bill has arrived.", examples=["98.4"]
    )
    as_of: datetime | None = Field(description="When bill and jobs were read last.")

    @classmethod
    def of(cls, quality: Quality) -> QualityOut:
        """A quality as it goes over the wire."""
        return cls(
            status=quality.status,
            corrected=quality.corrected,
            coverage_percent=None if quality.coverage is None else f"{quality.coverage:f}",
            as_of=moment_or_none(quality.as_of),
        )


class PeriodOut(BaseModel):
    """Whole UTC days, both included."""

    first: date = Field(examples=["2026-11-01"])
    last: date = Field(examples=["2026-11-30"])

    @classmethod
    def of(cls, period: Period) -> PeriodOut:
        """A period as it goes over the wire."""
        return cls(first=period.first, last=max(period.first, date.fromordinal(period.end.toordinal() - 1)))


class JobCostOut(BaseModel):
    """What one job cost in the period. A job that was requeued is one for each time it ran."""

    job_id: str = Field(description="As users know it: 48211, 48211_4, 48211+1.", examples=["48211_4"])
    run: str | None = Field(description="The elastic run that it belongs to.", examples=["train-1a2b3c"])
    cluster: str = Field(examples=["uni-gpu"])
    dbindex: int = Field(
        description="With `cluster` the job's name for ever; job ids recycle.", examples=[98231]
    )
    account: str = Field(examples=["nlp-lab-a"])
    user: str = Field(examples=["nlp1"])
    partition: str = Field(examples=["nlp"])
    qos: str = Field(examples=["medium"])
    state: str = Field(description="Slurm's; empty when slurmdbd did not tell.", examples=["COMPLETED"])
    submitted: datetime | None
    start: datetime | None
    end: datetime | None = Field(description="null while it runs.")
    node_hours: Amount = Field(description="Of whole nodes, in its share of them.", examples=["12.5"])
    amount: Amount
    currency: Currency

    @classmethod
    def of(cls, job: JobCost) -> JobCostOut:
        """A job as it goes over the wire."""
        return cls(
            job_id=job.called,
            run=job.run or None,
            cluster=job.cluster,
            dbindex=job.dbindex,
            account=job.account,
            user=job.user,
            partition=job.partition,
            qos=job.qos,
            state=job.state,
            submitted=moment_or_none(job.submitted or None),
            start=moment_or_none(job.start),
            end=moment_or_none(job.end),
            node_hours=hours(job.node_seconds),
            amount=f"{job.amount:f}",
            currency=job.currency,
        )


class SumOut(BaseModel):
    """An amount in one currency."""

    amount: Amount
    currency: Currency


class JobCostsOut(BaseModel):
    """A page of jobs."""

    period: PeriodOut
    quality: QualityOut
    total: int = Field(description="Jobs on all pages.", examples=[1342])
    sums: list[SumOut] = Field(description="What the jobs on all pages cost, by currency.")
    jobs: list[JobCostOut]
    next: Next


class RunCostOut(BaseModel):
    """What the jobs of an elastic run cost in the period, those that were replaced among them."""

    run: str = Field(examples=["train-1a2b3c"])
    account: str = Field(examples=["nlp-lab-a"])
    user: str = Field(examples=["nlp1"])
    jobs: int = Field(examples=[7])
    start: datetime | None
    end: datetime | None = Field(description="null while one of its jobs runs.")
    node_hours: Amount = Field(examples=["96.125"])
    amount: Amount
    currency: Currency

    @classmethod
    def of(cls, run: RunCost) -> RunCostOut:
        """A run as it goes over the wire."""
        return cls(
            run=run.run,
            account=run.account,
            user=run.user,
            jobs=run.jobs,
            start=moment_or_none(run.start),
            end=moment_or_none(run.end),
            node_hours=hours(run.node_seconds),
            amount=f"{run.amount:f}",
            currency=run.currency,
        )


class RunCostsOut(BaseModel):
    """A page of elastic runs, the dearest first."""

    period: PeriodOut
    quality: QualityOut
    total: int = Field(description="Runs on all pages.", examples=[12])
    runs: list[RunCostOut]
    next: Next


class PlacedOut(BaseModel):
    """An amount of one day and node group."""

    day: date
    node_group: str = Field(description="Empty for what the bill assigns to no group.", examples=["reserved"])
    capacity: str = Field(description="How nodes were paid for, as the bill says it.", examples=["reserved"])
    amount: Amount


Posted = TypeVar("Posted", bound="PostedOut")


class PostedOut(PlacedOut):
    """A change of what was known of one day."""

    run: int = Field(description="The reconciliation that posted it.", examples=[412])
    as_of: datetime = Field(description="What was known when it was posted.")
    reason: str = Field(
        description="What had changed since the day was divided before: `first`, or of `bill`, `jobs`, "
        "`policy` (the site file's rules) and `time` (running jobs are counted further), with `+` between.",
        examples=["bill+jobs"],
    )
    currency: Currency

    @classmethod
    def of(cls: type[Posted], entry: Entry | JobEntry) -> Posted:
        """An entry as it goes over the wire."""
        return cls.model_validate(vars(entry) | {"as_of": moment(entry.as_of), "amount": f"{entry.amount:f}"})


class EntryOut(PostedOut):
    """An entry of the ledger. The sum of all entries of a day, kind and account is what is known now."""

    id: int = Field(examples=[31744])
    kind: Kind
    account: str = Field(description="Empty when nobody is charged.", examples=["nlp-lab-a"])


class EntriesOut(BaseModel):
    """A page of entries, in the order they were posted."""

    period: PeriodOut
    entries: list[EntryOut]
    next: Next


def hours(node_seconds: Decimal) -> str:
    """Node-hours to three places: they are measured to the nanosecond, which nobody needs to read."""
    return f"{(node_seconds / _HOUR).quantize(_MILLI):f}"


def moment_or_none(seconds: int | None) -> datetime | None:
    """Unix seconds as a moment."""
    return None if seconds is None else moment(seconds)
