"""One job: what it cost, and how that became known."""

from __future__ import annotations

from pydantic import BaseModel

from api.schemas.cost import JobCostOut, PlacedOut, PostedOut, QualityOut
from api.services.job_costs import JobPart
from api.services.one_job import KnownJob


class JobDayOut(PlacedOut):
    """What it cost on one day in one node group."""

    @classmethod
    def of(cls, part: JobPart) -> JobDayOut:
        """A part as it goes over the wire."""
        return cls.model_validate(vars(part) | {"amount": f"{part.amount:f}"})


class JobEntryOut(PostedOut):
    """A change of what it cost on one day. The sum of all is what it costs as it is known now."""


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
