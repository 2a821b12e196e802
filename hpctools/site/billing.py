"""The bill: where it comes from, what own nodes cost, who bears what nobody used."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator

from hpctools.site.aws_words import BucketName, RegionName
from hpctools.site.base import Model
from hpctools.site.scalars import Currency, GroupName, TagKey, matching, refuse

_RATE = matching(
    r"\d{1,9}(\.\d{1,6})?", 'an amount as text in quotes with at most six decimals, such as "1.25"'
)
_DAY = matching(r"\d{4}-\d{2}-\d{2}", "a day, for example 2026-11-01")


def _parse_day(value: object) -> date:
    text = _DAY(value)
    try:
        return date.fromisoformat(text)
    except ValueError:
        refuse("a day of the calendar, for example 2026-11-01")


Rate = Annotated[
    Decimal, BeforeValidator(lambda value: Decimal(_RATE(value))), PlainSerializer(str, return_type=str)
]
"""An exact price; written in quotes, because a YAML number would become a binary fraction."""

Day = Annotated[date, BeforeValidator(_parse_day), PlainSerializer(date.isoformat, return_type=str)]
"""A day in UTC."""

ExportWord = Annotated[
    str,
    BeforeValidator(
        matching(
            r"[A-Za-z0-9!_.*'()-]{1,128}",
            "the name of a Data Export: letters, digits and !_.*'()-, at most 128 characters",
        )
    ),
]
KeyPrefix = Annotated[
    str,
    BeforeValidator(
        matching(
            r"[A-Za-z0-9!_.*'()=-]{1,128}(/[A-Za-z0-9!_.*'()=-]{1,128}){0,9}",
            "folders in a bucket, without '/' around them, for example billing/exports",
        )
    ),
]
PayerId = Annotated[str, BeforeValidator(matching(r"[A-Za-z0-9:/_-]{1,128}", "the id of a billing account"))]

Percent = Annotated[int, Field(ge=0, le=100)]

PoolRule = Literal["unallocated", "equally", "by-use", "by-fair-share"]

_NAMES = {"cost-explorer": "aws-ce", "cur": "aws-cur", "focus": "focus"}


class BillingSource(Model):
    """One provider's bill, read in one way: the same money is never read twice."""

    kind: Literal["cost-explorer", "cur", "focus"]
    """`cost-explorer`: AWS's API, by day, tag and usage type. `cur`: a CUR 2.0 Data Export in S3, by resource
    as well. `focus`: a Data Export in S3 of FOCUS 1.0 to 1.2."""
    scope: Literal["account", "cluster"] | None = None
    """Of `cost-explorer`: the whole AWS account, or only what carries the cluster's tag (`cluster_tag`); the
    service's setting when left out."""
    by_charge: bool = False
    """Of `cost-explorer`: tell credits, refunds, tax, fees and commitments apart, by a request each. Exports
    always tell them apart."""
    bucket: BucketName | None = None
    """Of an export: its bucket."""
    region: RegionName | None = None
    """Of an export: the bucket's region."""
    prefix: KeyPrefix | None = None
    """Of an export: its folder in the bucket."""
    export: ExportWord | None = None
    """Of an export: its name."""
    billing_account: PayerId | None = None
    """Who pays: an export of somebody else is refused. Needed where there are several exports."""

    @property
    def name(self) -> str:
        """The source's name in the store."""
        return f"{_NAMES[self.kind]}-{self.billing_account}" if self.billing_account else _NAMES[self.kind]

    @model_validator(mode="after")
    def _has_what_its_kind_needs(self) -> BillingSource:
        of_export = {"bucket": self.bucket, "region": self.region, "export": self.export}
        if self.kind == "cost-explorer":
            stated = [
                name for name, value in {**of_export, "prefix": self.prefix}.items() if value is not None
            ]
            if stated or self.billing_account:
                refuse("scope and by_charge only: Cost Explorer has no export, and sees its own account")
        elif self.scope is not None or self.by_charge:
            refuse("no scope and no by_charge: an export tells the cluster and the charge of each line")
        elif missing := [name for name, value in of_export.items() if value is None]:
            refuse(f"{', '.join(missing)} as well, to find the export")
        return self


class RateCard(Model):
    """What nodes of your own cost, always-on ones by the hour: it takes the place of a bill."""

    node_groups: Annotated[tuple[GroupName, ...], Field(min_length=1)]
    """The groups that it is for; none that a cloud's bill has."""
    currency: Currency
    """Of the prices."""
    per_node_hour: Rate = Decimal(0)
    """Price of one node for an hour."""
    per_gpu_hour: Rate = Decimal(0)
    """Price of one GPU for an hour, beside that of its node."""
    since: Day
    """The first day on which it holds."""
    until: Day | None = None
    """The first day on which it holds no more; never when left out."""

    @model_validator(mode="after")
    def _holds_sometime(self) -> RateCard:
        if self.until is not None and self.until <= self.since:
            refuse("until to be after since")
        if not self.per_node_hour and not self.per_gpu_hour:
            refuse("per_node_hour or per_gpu_hour")
        return self

    def meets(self, other: RateCard) -> bool:
        """Whether both hold on some day."""
        mine, theirs = self.until or date.max, other.until or date.max
        return self.since < theirs and other.since < mine


class Weights(Model):
    """How much of its part of a node counts for a job, in percent."""

    cpu: Percent = 100
    """Of its processors."""
    memory: Percent = 100
    """Of its memory. With 0 a job with much memory pays for its processors and GPUs only, and the rest is
    idle."""
    gpu: Percent = 100
    """Of its GPUs, or shards of them."""

    @model_validator(mode="after")
    def _something_counts(self) -> Weights:
        if not (self.cpu or self.memory or self.gpu):
            refuse("one of cpu, memory and gpu above 0: nothing else says what a job used")
        return self


class Billing(Model):
    """How the bill is read and attributed."""

    node_group_tag: TagKey = "hpctools:node-group"
    """The cost allocation tag that carries a node group's name."""
    cluster_tag: TagKey = "ClusterName"
    """The cost allocation tag that carries the cluster's name."""
    sources: tuple[BillingSource, ...] | None = None
    """Where bills come from; Cost Explorer when left out, or none where there are rate cards."""
    rate_cards: tuple[RateCard, ...] = ()
    """What own nodes cost."""
    idle: Literal["unallocated", "proportional", "partition-owner", "reservation-owner"] = "unallocated"
    """Who bears what no job used: nobody (it is shown as idle), the users of the same nodes in proportion to
    their use, the departments that have the nodes in their partition, or the accounts that a reservation
    kept nodes for (what none kept is nobody's)."""
    burst: bool = False
    """Whether groups without always-on nodes are wholly charged to those whose jobs ran on them, whatever
    `idle` says: the nodes were started for them. Of a day on which nothing ran there, to those of the day
    before."""
    weights: Weights = Weights()
    """What a job's share of a node is measured by: the largest of its parts of processors, memory and GPUs,
    each times its weight."""
    pools: dict[GroupName, PoolRule] = Field(default_factory=dict)
    """Who bears the cost of login nodes, by group: nobody (`unallocated`, and when left out), all departments
    alike (`equally`), or in proportion to their use (`by-use`) or their shares (`by-fair-share`)."""

    @property
    def read_from(self) -> tuple[BillingSource, ...]:
        """The providers' bills, with what holds where none are stated."""
        if self.sources is not None:
            return self.sources
        return () if self.rate_cards else (BillingSource(kind="cost-explorer"),)

    @model_validator(mode="after")
    def _no_money_twice(self) -> Billing:
        payers = [source.billing_account for source in self.sources or ()]
        if len(payers) > 1 and (None in payers or len(set(payers)) < len(payers)):
            refuse("one source, or exports with a billing_account each: two would count the same money twice")
        for place, card in enumerate(self.rate_cards):
            for other in self.rate_cards[:place]:
                both = sorted({*card.node_groups} & {*other.node_groups})
                if both and card.meets(other):
                    refuse(f"one rate card at a time for {', '.join(both)}")
        return self
