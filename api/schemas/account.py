"""Accounts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from hpctools.budget.tree import Account

Amount = Annotated[
    str, Field(pattern=r"^-?\d+(\.\d+)?$", description="An exact decimal number.", examples=["1234.567891"])
]
Currency = Annotated[str, Field(pattern="^[A-Z]{3}$", description="ISO 4217.", examples=["USD"])]


class Budget(BaseModel):
    """What an account may spend in a month."""

    amount: Amount
    currency: Currency
    period: Literal["monthly"] = "monthly"
    alert_at: list[int] = Field(
        description="Percentages at which somebody is told.", examples=[[50, 75, 90, 100]]
    )


class AccountOut(BaseModel):
    """One account."""

    name: str = Field(examples=["nlp"])
    title: str | None = Field(description="What people call it.", examples=["Natural Language Processing"])
    level: Literal["site", "department", "lab"] = Field(examples=["department"])
    parent: str | None = Field(examples=["root"])
    supervisor: str | None = Field(examples=["nlp-head"])
    budget: Budget | None

    @classmethod
    def of(cls, account: Account) -> AccountOut:
        """An account as it goes over the wire."""
        return cls(
            name=account.name,
            title=account.title or None,
            level=account.level,
            parent=account.parent,
            supervisor=account.supervisor or None,
            budget=_budget(account),
        )


class AccountsOut(BaseModel):
    """All accounts that the token may see, parents before children."""

    accounts: list[AccountOut]


def _budget(account: Account) -> Budget | None:
    if account.budget is None:
        return None
    return Budget(
        amount=f"{account.budget.amount:f}",
        currency=account.budget.currency,
        alert_at=list(account.budget.alert_at),
    )
