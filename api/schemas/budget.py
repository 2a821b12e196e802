"""Budgets, what is left of them, and where they lead."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from api.schemas.account import Amount, Currency
from api.services.budgets import Stored
from api.services.spending import Outlook
from hpctools.budget.forecast import COVERS, Forecast
from hpctools.budget.month import moment
from hpctools.budget.spec_words import spell_spec

Money = Annotated[
    str,
    Field(
        pattern=r"^[0-9]{1,15}(\.[0-9]{1,2})?$", description="At most two decimals.", examples=["25000.00"]
    ),
]
Why = Annotated[
    str,
    Field(
        min_length=1,
        max_length=1000,
        pattern=r"^[^\x00-\x1f\x7f]+$",
        description="For those who read the audit trail.",
        examples=["agreed with the dean"],
    ),
]
_FIRST, _END = date(2000, 1, 1), date(2200, 1, 1)


def _day(value: object) -> date:
    """A day as ISO 8601 writes it; pydantic alone would take numbers and moments as well."""
    if not isinstance(value, str) or not re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
        raise ValueError("a day such as 2026-11-30 is expected")
    day = date.fromisoformat(value)
    if not _FIRST <= day < _END:
        raise ValueError("a day from 2000 to 2199 is expected")
    return day


Day = Annotated[date, BeforeValidator(_day)]
Percentages = Annotated[list[Annotated[int, Field(ge=1, le=1000)]], Field(max_length=20)]
_SHARED = ConfigDict(extra="forbid", strict=True)


class EnforceWords(BaseModel):
    """What happens when a budget is used up."""

    model_config = _SHARED

    policy: Literal["off", "warn", "block", "hold", "lower-tier"] = "off"
    at: Annotated[int, Field(ge=1, le=1000, description="Percent of what may be spent.")] = 100
    grace: Annotated[int, Field(ge=0, le=31_536_000, description="Seconds.")] = 0
    tier: Annotated[str | None, Field(max_length=64, description="For `lower-tier`.")] = None


class NotifyWords(BaseModel):
    """Who is told of alerts."""

    model_config = _SHARED

    mail: Annotated[list[str], Field(max_length=20)] = []
    sns: Annotated[str | None, Field(max_length=400)] = None
    webhook: Annotated[str | None, Field(max_length=2000)] = None


class BudgetWords(BaseModel):
    """A budget, in the words of the site file."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [
                {
                    "amount": "25000.00",
                    "currency": "USD",
                    "period": "monthly",
                    "carry_over": "surplus",
                    "carry_at_most": "5000.00",
                    "alert_at": [50, 75, 90, 100],
                    "enforce": {"policy": "block", "at": 100, "grace": 259200},
                    "notify": {"mail": ["nlp-head@uni.example"]},
                }
            ]
        },
    )

    amount: Money
    currency: Currency = "USD"
    period: Literal["monthly", "quarterly", "yearly", "terms", "once"] = "monthly"
    starts: list[Annotated[str, Field(pattern=r"^[0-9]{2}-[0-9]{2}$")]] = Field(default=[], max_length=12)
    first: str | None = Field(None, description="The first day of `once`.", max_length=10)
    last: str | None = Field(None, description="The last day of `once`.", max_length=10)
    carry_over: Literal["none", "surplus", "balance"] = "none"
    carry_at_most: Money | None = None
    over_commit: bool = False
    alert_at: Percentages = [50, 75, 90, 100]
    alert_on_forecast: Percentages = []
    enforce: EnforceWords = EnforceWords()
    notify: NotifyWords = NotifyWords()

    def words(self) -> dict[str, Any]:
        """As `spec_words.parse_spec` reads it."""
        return self.model_dump()


class BudgetIn(BaseModel):
    """Another budget for an account."""

    model_config = ConfigDict(extra="forbid")

    budget: BudgetWords
    effective: Annotated[
        Day | None,
        Field(description="It counts for the whole period that this day lies in; today's when left out."),
    ] = None
    why: Why


class SplitIn(BaseModel):
    """Parts of a budget for the accounts directly below."""

    model_config = ConfigDict(extra="forbid")

    parts: dict[str, Money] = Field(
        min_length=1, max_length=500, examples=[{"nlp-lab-a": "15000.00", "nlp-lab-b": "10000.00"}]
    )
    why: Why


class ApprovalIn(BaseModel):
    """More than the budget."""

    model_config = ConfigDict(extra="forbid")

    amount: Money
    until: Day = Field(description="The first day on which it no longer counts.", examples=["2026-12-24"])
    why: Why


class VersionOut(BaseModel):
    """A budget as somebody set it."""

    budget: BudgetWords
    effective: date
    from_site_file: bool
    made_at: datetime | None
    made_by: str = Field(examples=["jane.doe"])
    why: str = Field(examples=["agreed with the dean"])

    @classmethod
    def of(cls, version: Stored) -> VersionOut:
        """A version as it goes over the wire."""
        return cls(
            budget=BudgetWords.model_validate(spell_spec(version.spec)),
            effective=version.effective,
            from_site_file=version.from_site,
            made_at=moment(version.made_at) if version.made_at is not None else None,
            made_by=version.made_by,
            why=version.why,
        )


class VersionsOut(BaseModel):
    """All budgets that an account had and has, by the day from which they count."""

    account: str = Field(examples=["nlp"])
    versions: list[VersionOut]


class PartOut(BaseModel):
    """What an account has of the budget of the one above it."""

    account: str = Field(examples=["nlp-lab-a"])
    version: VersionOut | None = Field(description="The budget in effect; null for none.")

    @classmethod
    def of(cls, account: str, version: Stored | None) -> PartOut:
        """A part as it goes over the wire."""
        return cls(account=account, version=VersionOut.of(version) if version else None)


class SplitOut(BaseModel):
    """How an account's budget is split."""

    account: str = Field(examples=["nlp"])
    parts: list[PartOut] = Field(description="Of all accounts directly below it.")


class ForecastOut(BaseModel):
    """What will have been spent at the period's end."""

    expected: Amount
    low: Amount
    high: Amount
    covers_percent: int = Field(description="Of periods that end between low and high.", examples=[COVERS])
    days: int = Field(description="It was worked out from so many of the last days.", examples=[28])

    @classmethod
    def of(cls, found: Forecast) -> ForecastOut:
        """A forecast as it goes over the wire."""
        amounts = (_text(amount) for amount in (found.expected, found.low, found.high))
        expected, low, high = amounts
        return cls(expected=expected, low=low, high=high, covers_percent=COVERS, days=found.days)


class BurnOut(BaseModel):
    """What runs now, at its node groups' last rates."""

    jobs: int = Field(examples=[12])
    per_hour: Amount
    unbilled: Amount = Field(description="Since the last billed day; gives way to the bill when it arrives.")


class OutlookOut(BaseModel):
    """How far an account is in its budget's period."""

    account: str = Field(examples=["nlp"])
    currency: Currency
    first: date
    last: date
    amount: Amount = Field(description="The budget itself.")
    carried: Amount = Field(description="From the period before.")
    approved: Amount = Field(description="Beyond the budget.")
    allowed: Amount = Field(description="All three.")
    billed: Amount
    spent: Amount = Field(description="Billed, and unbilled at its last rate.")
    left: Amount
    percent_used: Amount | None
    burn: BurnOut
    forecast: ForecastOut | None
    policy: Literal["off", "warn", "block", "hold", "lower-tier"]
    as_of: datetime | None
    billed_through: date | None

    @classmethod
    def of(cls, found: Outlook) -> OutlookOut:
        """An outlook as it goes over the wire."""
        may, burn = found.spendable, found.burn
        return cls(
            account=found.account.name,
            currency=may.currency,
            first=found.period.first,
            last=found.period.end - timedelta(days=1),
            amount=_text(may.amount),
            carried=_text(may.carried),
            approved=_text(may.approved),
            allowed=_text(may.total),
            billed=_text(found.billed),
            spent=_text(found.spent),
            left=_text(found.left),
            percent_used=None if found.percent_used is None else _text(found.percent_used),
            burn=BurnOut(jobs=burn.jobs, per_hour=_text(burn.per_hour), unbilled=_text(burn.unbilled)),
            forecast=ForecastOut.of(found.forecast) if found.forecast else None,
            policy=found.version.spec.enforcement.policy,
            as_of=moment(found.as_of) if found.as_of is not None else None,
            billed_through=found.billed_through,
        )


class ApprovalOut(BaseModel):
    """More than the budget, granted."""

    account: str = Field(examples=["nlp"])
    amount: Amount
    granted: date
    until: date


def _text(amount: Decimal) -> str:
    return f"{amount:f}"
