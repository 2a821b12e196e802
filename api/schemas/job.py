"""One job: what it cost, and how that became known."""

from __future__ import annotations

from datetime import date, datetime

from pydantic import BaseModel, Field

from api.schemas.account import Amount, Currency
from api.schemas.cost import JobCostOut, QualityOut
from api.services.job_costs import JobPart
from api.services.one_job import JobEntry, KnownJob
from hpctools.budget.month import moment


class JobDayOut(BaseModel):
    """What it cost on one day in one node group."""

    day: date
    node_group: str = Field(examples=["reserved"])
    capacity: str = Field(description="How the nodes were paid for, as the bill says it.", examples=["spot"])
    amount: Amount

    @classmethod
    def of(cls, part: JobPart) -> JobDayOut:
        """A part as it goes over the wire."""
        return cls.model_validate(vars(part) | {"amount": f"{part.amount:f}"})


class JobEntryOut(BaseModel):
    """A change of what it cost on one day. The sum of all is what it costs as it is known now."""

    run: int = Field(examples=[412])
    as_of: datetime = Field(description="What was known when it was posted.")
    reason: str = Field(
        description="What had changed: `first`, or of `bill`, `jobs`, `policy`, `time`.", examples=["bill"]
    )
    day: date
    node_group: str = Field(examples=["reserved"])
    capacity: str = Field(examples=["spot"])
    amount: Amount
    currency: Currency

    @classmethod
    def of(cls, entry: JobEntry) -> JobEntryOut:
        """An entry as it goes over the wire."""
        return cls.model_validate(vars(entry) | {"as_of": moment(entry.as_of), "amount": f"{entry.amount:f}"})


class JobOut(JobCostOut):
    """One job, or one run of a requeued job, with all that it ever cost."""

    quality: QualityOut
    days: list[JobDayOut]
    entries: list[JobEntryOut]

    @classmethod
    def of_known(cls, known: KnownJob) -> JobOut:
        """A job as it goes over the wire."""
        return cls(
            **JobCostOut.of(known.cost).model_dump(),
            quality=QualityOut.of(known.quality),
            days=[JobDayOut.of(part) for part in known.cost.parts],
            entries=[JobEntryOut.of(entry) for entry in known.entries],
        )


class JobsOut(BaseModel):
    """Every job with the id that the token may see, the last submitted first."""

    jobs: list[JobOut]
