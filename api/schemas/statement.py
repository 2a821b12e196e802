"""Statements."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Literal

from pydantic import BaseModel, Field

from api.schemas.account import AccountOut, Amount, Currency
from hpctools.budget.month import moment
from hpctools.budget.statement import Statement


class DayOut(BaseModel):
    """One day of the trend."""

    day: date
    amount: Amount
    cumulative: Amount
    expected: Amount | None = Field(description="The budget's part at an even pace.", examples=["833.33"])


class PartOut(BaseModel):
    """One row of the breakdown."""

    name: str = Field(examples=["nlp-lab-a"])
    level: Literal["department", "lab", "user", "own", "other"] = Field(examples=["lab"])
    amount: Amount
    percent: Amount | None = Field(examples=["62.5"])


class UnchargedOut(BaseModel):
    """What nobody is charged with, of the whole site's bill."""

    idle: Amount
    shared: Amount
    untagged: Amount


class OtherCurrency(BaseModel):
    """An amount in another currency; never added to the rest."""

    amount: Amount
    currency: Currency


class StatementOut(BaseModel):
    """One account's month. Amounts are exact, in `currency`."""

    account: AccountOut
    month: str = Field(pattern=r"^\d{4}-\d{2}$", examples=["2026-11"])
    currency: Currency
    status: Literal["none", "estimated", "final"] = Field(examples=["estimated"])
    corrected: bool = Field(description="Something changed after the month had been final.")
    as_of: datetime | None = Field(description="When bill and jobs were read last.")
    billed_through: date | None
    coverage_percent: Amount | None = Field(description="Part of the node time whose bill has arrived.")
    budget: Amount | None = Field(description="All that may be spent, `carried` and `approved` included.")
    carried: Amount | None = Field(description="From the month before.", examples=["0"])
    approved: Amount | None = Field(description="Beyond the budget.", examples=["2000.00"])
    spent: Amount
    spent_on_jobs: Amount
    spent_on_idle: Amount
    spent_on_shared: Amount = Field(
        description="Its part of login nodes, storage and the like, by the site's rules."
    )
    unbilled: Amount = Field(description="What ran since the last day of the bill.", examples=["81.20"])
    left: Amount | None = Field(description="Of the budget, less what was spent and what is unbilled.")
    percent_used: Amount | None
    projected: Amount | None = Field(
        description="Spent at the month's end if spending goes on as it went: `expected` of the forecast."
    )
    alerts_reached: list[int] = Field(examples=[[50]])
    days: list[DayOut]
    parts: list[PartOut]
    uncharged: UnchargedOut
    other_currencies: list[OtherCurrency]

    @classmethod
    def of(cls, statement: Statement) -> StatementOut:
        """A statement as it goes over the wire; checked all at once, which takes half of one by one."""
        return cls.model_validate(
            {
                "account": AccountOut.of(statement.account),
                "month": str(statement.month),
                "currency": statement.currency,
                "status": statement.status,
                "corrected": statement.corrected,
                "as_of": moment(statement.as_of) if statement.as_of is not None else None,
                "billed_through": statement.billed_through,
                "coverage_percent": _optional(statement.coverage),
                "budget": _optional(statement.budget),
                "carried": _optional(statement.carried),
                "approved": _optional(statement.approved),
                "spent": _text(statement.spent),
                "spent_on_jobs": _text(statement.jobs),
                "spent_on_idle": _text(statement.idle),
                "spent_on_shared": _text(statement.shared),
                "unbilled": _text(statement.unbilled),
                "left": _optional(statement.left),
                "percent_used": _optional(statement.percent_used),
                "projected": _optional(statement.projected),
                "alerts_reached": list(statement.reached),
                "days": _days(statement),
                "parts": _parts(statement),
                "uncharged": UnchargedOut(
                    idle=_text(statement.uncharged.idle),
                    shared=_text(statement.uncharged.shared),
                    untagged=_text(statement.uncharged.untagged),
                ),
                "other_currencies": [
                    OtherCurrency(amount=_text(amount), currency=code)
                    for code, amount in statement.other_currencies.items()
                ],
            }
        )


def _days(statement: Statement) -> list[dict[str, object]]:
    return [
        {
            "day": point.day,
            "amount": _text(point.amount),
            "cumulative": _text(point.cumulative),
            "expected": _optional(point.expected),
        }
        for point in statement.days
    ]


def _parts(statement: Statement) -> list[dict[str, object]]:
    return [
        {
            "name": part.name,
            "level": part.level,
            "amount": _text(part.amount),
            "percent": _optional(part.percent),
        }
        for part in statement.parts
    ]


def _text(amount: Decimal) -> str:
    return f"{amount:f}"


def _optional(amount: Decimal | None) -> str | None:
    return None if amount is None else _text(amount)
