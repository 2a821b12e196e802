"""Alerts: thresholds that were reached, each told once, with a message for everybody who is to hear of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from api.db.budget_models import AlertAttempt, AlertMessage, BudgetAlert
from api.db.engine import reading, writing
from api.services.budgets import is_new, record_site, versions
from api.services.spending import Outlook, read_outlooks
from hpctools.budget.allowance import Notify, in_effect
from hpctools.budget.money import to_places
from hpctools.budget.month import day_of, moment
from hpctools.budget.thresholds import Due, due
from hpctools.budget.tree import BudgetSite


@dataclass(frozen=True)
class Alert:
    """A threshold that was reached.

    Attributes:
        kind: `spent`, `forecast` or `enforce`.
        at: Unix seconds.
        deliveries: where it went: channel and target, and what became of it (`waiting`, `sent`, `failed`).
    """

    id: int
    account: str
    kind: str
    threshold: int
    period_first: date
    at: int
    currency: str
    allowed: Decimal
    reached: Decimal
    deliveries: tuple[tuple[str, str, str], ...] = ()


def raise_alerts(engine: Engine, site: BudgetSite, now: int) -> int:
    """Store the alerts that are due and were not told yet, with their messages; return how many.

    An alert belongs to a budget as it was set: a changed budget tells its thresholds anew. What the site file
    says of budgets is kept, whatever is due: it counts from the day on which that was seen first.
    """
    outlooks = read_outlooks(engine, site, now)
    reached = [each for each in outlooks if any(due(each.version.spec, each.position))]
    with reading(engine) as session:
        if not reached and not is_new(session, site, day_of(now)):
            return 0
    with writing(engine) as session:
        record_site(session, site, now)
        return sum(_raise(session, outlook, now) for outlook in reached)


def listed(
    engine: Engine, accounts: Iterable[str] | None, *, before: int | None = None, limit: int = 100
) -> list[Alert]:
    """Alerts of some accounts (all when None), the newest first.

    Args:
        before: only those with a smaller id.
    """
    query = select(BudgetAlert).order_by(BudgetAlert.id.desc()).limit(limit)
    if accounts is not None:
        query = query.where(BudgetAlert.account.in_(sorted(accounts)))
    if before is not None:
        query = query.where(BudgetAlert.id < before)
    with reading(engine) as session:
        return [_alert(session, row) for row in session.scalars(query).all()]


def _raise(session: Session, outlook: Outlook, now: int) -> int:
    """Under the writers' lock: nobody else adds alerts between the look and the insertion."""
    stored = in_effect(versions(session, outlook.account, day_of(now)), day_of(now))
    if stored is None or stored.id is None or stored.spec != outlook.version.spec:
        return 0  # it was changed in between: the next look judges by the new one
    told = _told(session, stored.id, outlook.period.first)
    new = [each for each in due(stored.spec, outlook.position) if (each.kind, each.threshold) not in told]
    for each in new:
        alert = _row(stored.id, outlook, each, now)
        session.add(alert)
        session.flush()
        session.add_all(_messages(alert, outlook, stored.spec.notify))
    return len(new)


def _told(session: Session, version: int, first: date) -> set[tuple[str, int]]:
    query = select(BudgetAlert.kind, BudgetAlert.threshold).where(
        BudgetAlert.version_id == version, BudgetAlert.period_first == first
    )
    return {(kind, threshold) for kind, threshold in session.execute(query)}


def _row(version: int, outlook: Outlook, reached: Due, now: int) -> BudgetAlert:
    return BudgetAlert(
        version_id=version,
        period_first=outlook.period.first,
        threshold=reached.threshold,
        kind=reached.kind,
        account=outlook.account.name,
        at=now,
        currency=outlook.spendable.currency,
        allowed=outlook.spendable.total,
        reached=reached.reached,
    )


def _messages(alert: BudgetAlert, outlook: Outlook, notify: Notify) -> Iterator[AlertMessage]:
    body = json.dumps(_body(alert, outlook), sort_keys=True)
    for channel, target in _targets(notify):
        key = hashlib.sha256(f"{alert.id}|{channel}|{target}".encode()).hexdigest()
        yield AlertMessage(
            alert_id=alert.id, channel=channel, target=target, key=key, body=body, created_at=alert.at
        )


def _targets(notify: Notify) -> Iterator[tuple[str, str]]:
    yield from (("mail", address) for address in notify.mail)
    yield from (("sns", topic) for topic in (notify.sns,) if topic)
    yield from (("webhook", url) for url in (notify.webhook,) if url)


def _body(alert: BudgetAlert, outlook: Outlook) -> dict[str, Any]:
    last = outlook.period.end - timedelta(days=1)
    return {
        "account": alert.account,
        "title": outlook.account.title,
        "kind": alert.kind,
        "threshold_percent": alert.threshold,
        "currency": alert.currency,
        "allowed": f"{alert.allowed:f}",
        "reached": f"{alert.reached:f}",
        "period": {"first": outlook.period.first.isoformat(), "last": last.isoformat()},
        "at": moment(alert.at).isoformat(),
        "text": _text(alert, outlook),
    }


def _text(alert: BudgetAlert, outlook: Outlook) -> str:
    reached, allowed = (f"{to_places(amount):f}" for amount in (alert.reached, alert.allowed))
    said = "is expected to spend" if alert.kind == "forecast" else "has spent"
    last = outlook.period.end - timedelta(days=1)
    text = (
        f"{alert.account} {said} {reached} of {allowed} {alert.currency} "
        f"({alert.threshold} % or more) from {outlook.period.first} to {last}."
    )
    return text if alert.kind != "enforce" else f"{text} {_consequence(alert, outlook)}"


def _consequence(alert: BudgetAlert, outlook: Outlook) -> str:
    """What happens to an account that used its budget up, and when; by `warn` nothing does."""
    rule = outlook.version.spec.enforcement
    if rule.policy == "warn":
        return "No job is kept from running by this."
    what = {
        "block": "no new jobs are accepted",
        "hold": "no new jobs are accepted, and those that wait are held",
        "lower-tier": f"its jobs run in the tier {rule.tier}",
    }[rule.policy]
    begin = moment(alert.at + rule.grace_seconds)
    return f"From {begin:%F %H:%M} UTC on {what}, unless its supervisor approves more. Running jobs go on."


def _alert(session: Session, row: BudgetAlert) -> Alert:
    messages = session.scalars(
        select(AlertMessage).where(AlertMessage.alert_id == row.id).order_by(AlertMessage.id)
    ).all()
    return Alert(
        row.id,
        row.account,
        row.kind,
        row.threshold,
        row.period_first,
        row.at,
        row.currency,
        row.allowed,
        row.reached,
        tuple((each.channel, each.target, _state(session, each.id)) for each in messages),
    )


def _state(session: Session, message: int) -> str:
    states = set(session.scalars(select(AlertAttempt.state).where(AlertAttempt.message_id == message)))
    return "sent" if "sent" in states else "failed" if "failed" in states else "waiting"
