"""A budget in the words of the site file, as plain data: what the API takes and the store keeps."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from pydantic import ValidationError

from hpctools.budget.allowance import Spec
from hpctools.budget.from_site import spec_of
from hpctools.errors import BudgetError
from hpctools.site.budget import Budget
from hpctools.site.scalars import spell_duration


def parse_spec(words: Mapping[str, Any]) -> Spec:
    """Read a budget; times are seconds here, all else is as in the site file.

    Raises:
        BudgetError: says every key that cannot be used, and what it should be.
    """
    enforce = dict(words.get("enforce") or {})
    if isinstance(enforce.get("grace"), int):
        enforce["grace"] = spell_duration(enforce["grace"])
    try:
        return spec_of(Budget.model_validate({**_tuples(words), "enforce": enforce}))
    except ValidationError as error:
        told = [f"{'.'.join(map(str, each['loc'])) or 'budget'}: {each['msg']}" for each in error.errors()]
        remedy = "see docs/site-file.md, Budget"
        raise BudgetError(f"this budget cannot be: {'; '.join(told)}", remedy) from None


def spell_spec(spec: Spec) -> dict[str, Any]:
    """Write a budget; `parse_spec` reads it back."""
    calendar, enforcement, notify = spec.calendar, spec.enforcement, spec.notify
    return {
        "amount": f"{spec.amount:f}",
        "currency": spec.currency,
        "period": calendar.kind,
        "starts": [f"{month:02d}-{day:02d}" for month, day in calendar.starts],
        "first": calendar.first.isoformat() if calendar.first else None,
        "last": (calendar.end - timedelta(days=1)).isoformat() if calendar.end else None,
        "carry_over": spec.carry,
        "carry_at_most": None if spec.carry_at_most is None else f"{spec.carry_at_most:f}",
        "over_commit": spec.over_commit,
        "alert_at": list(spec.alert_at),
        "alert_on_forecast": list(spec.alert_on_forecast),
        "enforce": {
            "policy": enforcement.policy,
            "at": enforcement.at,
            "grace": enforcement.grace_seconds,
            "tier": enforcement.tier or None,
        },
        "notify": {
            "mail": list(notify.mail),
            "sns": notify.sns or None,
            "webhook": notify.webhook or None,
        },
    }


def _tuples(value: Any) -> Any:
    """Lists as the site file's models want them."""
    if isinstance(value, Mapping):
        return {key: _tuples(each) for key, each in value.items()}
    return tuple(_tuples(each) for each in value) if isinstance(value, list) else value
