"""What a department or a lab may spend, who is told of it, and what happens when it is used up."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from hpctools.site.base import Model
from hpctools.site.scalars import Currency, Duration, Money, TierName, refuse

_MONTH_DAYS = {1: 31, 2: 28, 3: 31, 4: 30, 5: 31, 6: 30, 7: 31, 8: 31, 9: 30, 10: 31, 11: 30, 12: 31}


def _day_of_year(text: str) -> str:
    month, day = (int(part) for part in text.split("-"))
    if not 1 <= day <= _MONTH_DAYS.get(month, 0):
        refuse("a day of every year such as 10-01")
    return text


def _calendar_day(text: str) -> str:
    try:
        date.fromisoformat(text)
    except ValueError:
        refuse("a day such as 2026-10-01")
    return text


Percentages = Annotated[tuple[Annotated[int, Field(ge=1, le=1000)], ...], Field(max_length=20)]
DayOfYear = Annotated[str, Field(pattern=r"^\d\d-\d\d$"), AfterValidator(_day_of_year)]
CalendarDay = Annotated[str, Field(pattern=r"^20\d\d-\d\d-\d\d$"), AfterValidator(_calendar_day)]
MailAddress = Annotated[str, Field(pattern=r"^[^@\s<>,;:]+@[A-Za-z0-9.-]+$", max_length=254)]
TopicArn = Annotated[str, Field(pattern=r"^arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:[A-Za-z0-9_-]{1,256}$")]
WebhookUrl = Annotated[str, Field(pattern=r"^https://[^\s@]+$", max_length=2000)]


class Notify(Model):
    """Who is told when a threshold is reached."""

    mail: tuple[MailAddress, ...] = ()
    """Mail addresses."""
    sns: TopicArn | None = None
    """The ARN of a topic of Amazon SNS."""
    webhook: WebhookUrl | None = None
    """An https address that alerts are posted to, signed (docs/budgets.md)."""


class Enforce(Model):
    """What happens when a budget is used up. No policy ends jobs that run."""

    policy: Literal["off", "warn", "block", "hold", "lower-tier"] = "off"
    """Nothing; an alert; no new jobs; pending jobs wait as well; or jobs run in `tier`."""
    at: Annotated[int, Field(ge=1, le=1000)] = 100
    """The percentage of what may be spent."""
    grace: Annotated[Duration, Field(ge=0, le=31_536_000)] = 0
    """Time in which the supervisor may approve more, before it begins."""
    tier: TierName | None = None
    """The tier of `lower-tier`."""

    @model_validator(mode="after")
    def _tier_for_lower_tier(self) -> Enforce:
        if (self.policy == "lower-tier") != (self.tier is not None):
            refuse("tier beside policy: lower-tier, and only there")
        return self


class Budget(Model):
    """What a department or a lab may spend."""

    amount: Money
    """The amount for one period, in quotes."""
    currency: Currency = "USD"
    """ISO 4217 code."""
    period: Literal["monthly", "quarterly", "yearly", "terms", "once"] = "monthly"
    """How often it starts anew. An academic year is `yearly` with `starts`."""
    starts: tuple[DayOfYear, ...] = ()
    """The days (`MM-DD`) on which periods begin: one for `quarterly` and `yearly` (`01-01` when left out),
    two or more for `terms`."""
    first: CalendarDay | None = None
    """The first day of `once`."""
    last: CalendarDay | None = None
    """The last day of `once`."""
    carry_over: Literal["none", "surplus", "balance"] = "none"
    """What goes into the next period: nothing, what is left, or also what was overspent."""
    carry_at_most: Money | None = None
    """The most that is carried over, in quotes."""
    over_commit: bool = False
    """The budgets below it may add up to more than this one."""
    alert_at: Percentages = (50, 75, 90, 100)
    """Percentages of what may be spent, with what was carried over and approved, at which those in `notify`
    are told (nobody where that is left out); rising."""
    alert_on_forecast: Percentages = ()
    """The same, of what is expected to be spent by the period's end."""
    enforce: Enforce = Enforce()
    """What happens when it is used up."""
    notify: Notify = Notify()
    """Who is told of alerts."""

    @model_validator(mode="after")
    def _rising(self) -> Budget:
        for name in ("alert_at", "alert_on_forecast"):
            if list(getattr(self, name)) != sorted(set(getattr(self, name))):
                refuse(f"rising percentages in {name}")
        return self

    @model_validator(mode="after")
    def _periods(self) -> Budget:
        if self.starts != tuple(sorted(set(self.starts))):
            refuse("rising days in starts")
        fits = {"terms": len(self.starts) >= 2, "monthly": not self.starts, "once": not self.starts}
        if not fits.get(self.period, len(self.starts) <= 1):
            refuse("as many days in starts as its period has: none, one, or for terms two or more")
        if self.period == "quarterly" and any(int(day[3:]) > 28 for day in self.starts):
            refuse("a day in starts that every month has")
        given = self.first is not None and self.last is not None
        if given != (self.period == "once") or (self.first is None) != (self.last is None):
            refuse("first and last for period: once, and only there")
        if self.first is not None and self.last is not None and self.first > self.last:
            refuse("first before last")
        return self

    @model_validator(mode="after")
    def _carry(self) -> Budget:
        if self.carry_at_most is not None and self.carry_over == "none":
            refuse("carry_over beside carry_at_most")
        return self
