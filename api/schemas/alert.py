"""Alerts and enforcement."""

from __future__ import annotations

from datetime import date, datetime
from typing import Literal

from pydantic import BaseModel, Field

from api.schemas.account import Amount, Currency
from api.services.alerts import Alert
from api.services.enforcement import Planned
from hpctools.budget.enforcement import Step
from hpctools.budget.month import moment


class DeliveryOut(BaseModel):
    """Where an alert went."""

    channel: str = Field(examples=["mail"])
    target: str = Field(examples=["nlp-head@uni.example"])
    state: Literal["waiting", "failed", "sent"]


class AlertOut(BaseModel):
    """A threshold that was reached."""

    id: int = Field(examples=[7])
    account: str = Field(examples=["nlp"])
    kind: Literal["spent", "forecast", "enforce"] = Field(
        description="By what was spent, by what is expected, or the beginning of a policy's grace."
    )
    threshold_percent: int = Field(examples=[90])
    period_first: date
    at: datetime
    currency: Currency
    allowed: Amount
    reached: Amount
    deliveries: list[DeliveryOut]

    @classmethod
    def of(cls, alert: Alert) -> AlertOut:
        """An alert as it goes over the wire."""
        return cls.model_validate(
            {
                "id": alert.id,
                "account": alert.account,
                "kind": alert.kind,
                "threshold_percent": alert.threshold,
                "period_first": alert.period_first,
                "at": moment(alert.at),
                "currency": alert.currency,
                "allowed": f"{alert.allowed:f}",
                "reached": f"{alert.reached:f}",
                "deliveries": [
                    {"channel": channel, "target": target, "state": state}
                    for channel, target, state in alert.deliveries
                ],
            }
        )


class AlertsOut(BaseModel):
    """Alerts, the newest first."""

    alerts: list[AlertOut]
    next: str | None = Field(description="The cursor of the next page.", examples=[None])


class StepOut(BaseModel):
    """One thing that enforcement does."""

    action: Literal["take", "give", "forget"]
    kind: Literal["limit", "hold", "tier"]
    account: str = Field(examples=["nlp"])
    subject: str = Field(description="The account, or the job's id.", examples=["nlp"])
    key: str = Field(examples=["GrpSubmitJobs"])
    before: str = Field(examples=["20"])
    after: str = Field(examples=["0"])
    why: str = Field(examples=["26000 of 25000 USD are spent from 2026-11-01 to 2026-11-30"])

    @classmethod
    def of(cls, step: Step) -> StepOut:
        """A step as it goes over the wire."""
        return cls.model_validate({name: getattr(step, name) for name in cls.model_fields})


class WaitingOut(BaseModel):
    """An account whose grace is not over."""

    account: str = Field(examples=["nlp"])
    until: datetime


class EnforcementOut(BaseModel):
    """What enforcement would do, or did."""

    steps: list[StepOut]
    frozen: str | None = Field(description="Why nothing is done.", examples=[None])
    waiting: list[WaitingOut]

    @classmethod
    def of(cls, planned: Planned) -> EnforcementOut:
        """A plan as it goes over the wire."""
        return cls(
            steps=[StepOut.of(step) for step in planned.steps],
            frozen=planned.frozen or None,
            waiting=[WaitingOut(account=name, until=moment(until)) for name, until in planned.waiting],
        )
