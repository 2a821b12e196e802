"""Alerts as people look at them: which were told and arrived, and which are armed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from api.db.budget_models import AlertAttempt, AlertMessage, BudgetAlert
from api.db.engine import reading
from api.services.delivery import LEASE_SECONDS, MOST_ATTEMPTS, wait_after
from api.services.spending import Outlook, read_outlooks
from hpctools.budget.money import ZERO
from hpctools.budget.thresholds import Kind
from hpctools.budget.tree import Account, BudgetSite


@dataclass(frozen=True)
class Delivery:
    """What became of a message.

    Attributes:
        attempts: how often it was tried.
        at: the last thing that happened to it, Unix seconds.
        problem: why the last attempt failed; empty when it did not.
        next_at: when it is tried again; None when it arrived, or is given up.
    """

    channel: str
    target: str
    state: str
    attempts: int
    at: int
    problem: str = ""
    next_at: int | None = None


@dataclass(frozen=True)
class Told:
    """An alert and its messages."""

    row: BudgetAlert
    deliveries: tuple[Delivery, ...]


@dataclass(frozen=True)
class Threshold:
    """A percentage of what may be spent.

    Attributes:
        amount: that reaches it.
        told_at: when it was told, Unix seconds; None while it is armed.
    """

    kind: Kind
    percent: int
    amount: Decimal
    told_at: int | None


@dataclass(frozen=True)
class Standing:
    """An account's thresholds in its present period."""

    outlook: Outlook
    thresholds: tuple[Threshold, ...]

    @property
    def due(self) -> tuple[Threshold, ...]:
        """Those that are reached and are told at the next look."""
        return tuple(
            each for each in self.thresholds if each.told_at is None and each.amount <= self.figure(each)
        )

    @property
    def next(self) -> Threshold | None:
        """The nearest one that is not reached, of what is spent before what is expected."""
        left = [each for each in self.thresholds if each.told_at is None and each not in self.due]
        return min(left, key=lambda each: (each.kind == "forecast", each.amount), default=None)

    def figure(self, threshold: Threshold) -> Decimal:
        """What is measured by a threshold; nothing while nothing is expected yet."""
        found = self.outlook.expected if threshold.kind == "forecast" else self.outlook.spent
        return ZERO if found is None else found


def history(
    engine: Engine, accounts: Iterable[str], *, before: int | None = None, limit: int = 100
) -> list[Told]:
    """Alerts of some accounts with their deliveries, the newest first.

    Args:
        before: only those with a smaller id.
    """
    query = select(BudgetAlert).where(BudgetAlert.account.in_(sorted(accounts)))
    if before is not None:
        query = query.where(BudgetAlert.id < before)
    with reading(engine) as session:
        rows = session.scalars(query.order_by(BudgetAlert.id.desc()).limit(limit)).all()
        deliveries = _deliveries(session, [row.id for row in rows])
        session.expunge_all()
    return [Told(row, tuple(deliveries.get(row.id, ()))) for row in rows]


def undelivered(engine: Engine) -> int:
    """How many messages of all alerts have failed, and not arrived since."""
    sent = select(AlertAttempt.message_id).where(AlertAttempt.state == "sent")
    query = select(AlertAttempt.message_id).where(AlertAttempt.state == "failed").distinct()
    with reading(engine) as session:
        return len(session.scalars(query.where(AlertAttempt.message_id.not_in(sent))).all())


def standings(engine: Engine, site: BudgetSite, accounts: Iterable[Account], now: int) -> list[Standing]:
    """The thresholds of every account that has a budget today."""
    names = {account.name for account in accounts}
    found = [each for each in read_outlooks(engine, site, now) if each.account.name in names]
    with reading(engine) as session:
        told = _told(session, found)
    return [_standing(outlook, told) for outlook in found]


def _told(session: Session, outlooks: Sequence[Outlook]) -> Mapping[tuple[object, ...], int]:
    ids = [each.version.id for each in outlooks if each.version.id is not None]
    columns = (
        BudgetAlert.version_id,
        BudgetAlert.period_first,
        BudgetAlert.kind,
        BudgetAlert.threshold,
        BudgetAlert.at,
    )
    rows = session.execute(select(*columns).where(BudgetAlert.version_id.in_(ids)))
    return {tuple(row[:-1]): row[-1] for row in rows}


def _standing(outlook: Outlook, told: Mapping[tuple[object, ...], int]) -> Standing:
    spec, allowed = outlook.version.spec, outlook.spendable.total
    wanted: list[tuple[Kind, int]] = [("spent", percent) for percent in spec.alert_at]
    wanted += [("forecast", percent) for percent in spec.alert_on_forecast]
    if spec.enforcement.policy != "off":
        wanted.append(("enforce", spec.enforcement.at))
    key = (outlook.version.id, outlook.period.first)
    return Standing(
        outlook,
        tuple(
            Threshold(kind, percent, allowed * percent / 100, told.get((*key, kind, percent)))
            for kind, percent in wanted
        ),
    )


def _deliveries(session: Session, alerts: Sequence[int]) -> Mapping[int, list[Delivery]]:
    """By alert."""
    query = select(AlertMessage).where(AlertMessage.alert_id.in_(alerts)).order_by(AlertMessage.id)
    messages = session.scalars(query).all()
    tries: defaultdict[int, list[AlertAttempt]] = defaultdict(list)
    ids = [message.id for message in messages]
    attempts = select(AlertAttempt).where(AlertAttempt.message_id.in_(ids)).order_by(AlertAttempt.id)
    for attempt in session.scalars(attempts):
        tries[attempt.message_id].append(attempt)
    found: defaultdict[int, list[Delivery]] = defaultdict(list)
    for message in messages:
        found[message.alert_id].append(_delivery(message, tries[message.id]))
    return found


def _delivery(message: AlertMessage, attempts: Sequence[AlertAttempt]) -> Delivery:
    if not attempts:
        return Delivery(
            message.channel, message.target, "waiting", 0, message.created_at, "", message.created_at
        )
    last = attempts[-1]
    sent = any(each.state == "sent" for each in attempts)
    failed = any(each.state == "failed" for each in attempts)
    wait = LEASE_SECONDS if last.state == "started" else wait_after(last.number)
    again = None if sent or last.number >= MOST_ATTEMPTS else last.at + wait
    problem = next((each.detail for each in reversed(attempts) if each.state == "failed"), "")
    return Delivery(
        message.channel,
        message.target,
        "sent" if sent else "failed" if failed else "waiting",
        last.number,
        last.at,
        "" if sent else problem,
        again,
    )
