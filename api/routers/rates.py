"""What nodes cost: so that hp-submit can say what a job will."""

from __future__ import annotations

from datetime import date

from fastapi import APIRouter
from pydantic import BaseModel, Field

from api.db.engine import reading
from api.deps import Bearer, Ctx, Site
from api.queries import StrictRoute
from api.routers import problems
from api.schemas.account import Amount, Currency
from api.services.burning import current_rates
from hpctools.budget.burn import Rate
from hpctools.budget.month import day_of
from hpctools.budget.partition_groups import partition_groups
from hpctools.budget.tree import NodeGroup

router = APIRouter(prefix="/v1/rates", tags=["budgets"], route_class=StrictRoute)


class RateOut(BaseModel):
    """A node of a group, and what an hour of it costs."""

    node_group: str = Field(examples=["reserved"])
    per_node_hour: Amount
    currency: Currency
    day: date = Field(description="The last billed day that it was worked out from.")
    cpus: int = Field(examples=[96])
    memory_mb: int = Field(examples=[1120665])
    gpus: int = Field(examples=[8])

    @classmethod
    def of(cls, rate: Rate, group: NodeGroup) -> RateOut:
        """A rate as it goes over the wire."""
        return cls(
            node_group=rate.node_group,
            per_node_hour=f"{rate.per_node_hour:f}",
            currency=rate.currency,
            day=rate.day,
            cpus=group.cpus,
            memory_mb=group.memory_mb,
            gpus=group.gpus,
        )


class RatesOut(BaseModel):
    """Rates of all node groups that the bill has hours of."""

    rates: list[RateOut]
    partitions: dict[str, list[str]] = Field(
        description="The node groups of each partition.", examples=[{"nlp": ["reserved", "shared", "spot"]}]
    )


@router.get("", responses=problems(401))
def get_rates(context: Ctx, site: Site, principal: Bearer) -> RatesOut:
    """What an hour of a node last cost, by node group; the same for everybody who has a token."""
    with reading(context.engine) as session:
        known = current_rates(session, site, day_of(context.clock()))
    groups = partition_groups(context.site_file.declared())
    return RatesOut(
        rates=[RateOut.of(rate, site.groups[name]) for name, rate in known.items() if name in site.groups],
        partitions={name: list(found) for name, found in groups.items()},
    )
