"""What was paid for without use."""

from __future__ import annotations

from decimal import Decimal

from pydantic import BaseModel, Field

from api.schemas.account import Amount, Currency
from api.schemas.cost import PeriodOut, QualityOut
from api.services.waste import LOST, Ended, GroupUse, Waste
from hpctools.budget.allowance import Period

_MILLI = Decimal("0.001")


class EndedOut(BaseModel):
    """The account's jobs in one state, those of the accounts below it among them."""

    state: str = Field(description="Slurm's; `RUNNING` for those that have not ended.", examples=["FAILED"])
    lost: bool = Field(description="Their result is probably lost.", examples=[True])
    jobs: int = Field(
        description="That ended in these days and cost something in this currency; 0 for `RUNNING`.",
        examples=[17],
    )
    amount: Amount = Field(description="What they cost in these days.")

    @classmethod
    def of(cls, ended: Ended) -> EndedOut:
        """Jobs as they go over the wire."""
        return cls(state=ended.state, lost=ended.state in LOST, jobs=ended.jobs, amount=f"{ended.amount:f}")


class GroupUseOut(BaseModel):
    """How much of a node group was used, by all accounts of the site together."""

    node_group: str = Field(examples=["reserved"])
    used_hours: Amount = Field(description="Node-hours that jobs held.", examples=["1812.5"])
    idle_hours: Amount | None = Field(
        description="Node-hours that were paid for while no job held them; null where no bill tells what one "
        "costs.",
        examples=["311.25"],
    )
    idle_gpu_hours: Amount | None = Field(description="The same in GPUs.", examples=["2490"])
    idle: Amount = Field(description="What these hours cost.")

    @classmethod
    def of(cls, use: GroupUse) -> GroupUseOut:
        """A node group as it goes over the wire."""
        return cls(
            node_group=use.node_group,
            used_hours=_hours(use.used_hours),
            idle_hours=None if use.idle_hours is None else _hours(use.idle_hours),
            idle_gpu_hours=None if use.idle_gpu_hours is None else _hours(use.idle_gpu_hours),
            idle=f"{use.idle:f}",
        )


class WasteOut(BaseModel):
    """Jobs by how they ended, the dearest first, and node groups by what their idle hours cost.

    There is a handful of each, so all of them stand in one answer.
    """

    period: PeriodOut
    quality: QualityOut
    currency: Currency
    jobs: list[EndedOut]
    node_groups: list[GroupUseOut]

    @classmethod
    def of(cls, period: Period, waste: Waste) -> WasteOut:
        """Waste as it goes over the wire."""
        return cls(
            period=PeriodOut.of(period),
            quality=QualityOut.of(waste.quality),
            currency=waste.currency,
            jobs=[EndedOut.of(ended) for ended in waste.ended],
            node_groups=[GroupUseOut.of(use) for use in waste.groups],
        )


def _hours(hours: Decimal) -> str:
    """To three places: what follows from money has no end of digits."""
    return f"{hours.quantize(_MILLI):f}"
