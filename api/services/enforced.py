"""Enforcement as people look at it: which budgets are at which step, what is taken, what was done."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from api.db.budget_models import EnforcementAct
from api.db.engine import reading
from api.services.budgets import tier_is_open
from api.services.enforcement import STALE_SECONDS, grace_ends
from api.services.spending import Outlook, read_outlooks
from hpctools.budget.thresholds import reaches
from hpctools.budget.tree import Account, BudgetSite

Stage = Literal["within", "warned", "no-tier", "grace", "due", "kept", "given-back"]


@dataclass(frozen=True)
class Kept:
    """An account whose budget has a policy.

    Attributes:
        stage: `within` what its policy allows; above it and `warned` only, with `no-tier` that the site file
            opens to it, in its `grace`, `due` at the next look, or `kept` to its budget already; `given-back`
            at the next look.
        until: of a grace, Unix seconds.
        acts: what is taken for it, by what was read back last.
        stale: nothing is taken or given back, for what is known is too old.
    """

    outlook: Outlook
    stage: Stage
    until: int | None
    acts: tuple[EnforcementAct, ...]
    stale: bool


def kept_accounts(engine: Engine, site: BudgetSite, accounts: Iterable[Account], now: int) -> list[Kept]:
    """Every account whose budget has a policy today, or for whose budget something is taken."""
    names = {account.name for account in accounts}
    outlooks = [each for each in read_outlooks(engine, site, now) if each.account.name in names]
    with reading(engine) as session:
        taken = _taken(session)
        graces = {each.account.name: grace_ends(session, each, now) for each in outlooks}
        session.expunge_all()
    kept: list[Kept] = []
    for outlook in outlooks:
        name = outlook.account.name
        acts = tuple(act for act in taken if act.account == name)
        if outlook.version.spec.enforcement.policy != "off" or acts:
            stage, until = _stage(outlook, graces[name], acts, now)
            kept.append(Kept(outlook, stage, until, acts, outlook.is_stale(now, STALE_SECONDS)))
    return kept


def acts_of(
    engine: Engine, accounts: Iterable[str], limit: int = 50, *, before: int | None = None
) -> list[EnforcementAct]:
    """What was done for the budgets of some accounts, the newest first.

    Args:
        before: only those with a smaller id.
    """
    query = select(EnforcementAct).where(EnforcementAct.account.in_(sorted(accounts)))
    if before is not None:
        query = query.where(EnforcementAct.id < before)
    query = query.where(EnforcementAct.state != "begun").order_by(EnforcementAct.id.desc()).limit(limit)
    with reading(engine) as session:
        found = list(session.scalars(query))
        session.expunge_all()
        return found


def _taken(session: Session) -> list[EnforcementAct]:
    """The last act on each limit and job, where it was not given back."""
    rows = session.scalars(select(EnforcementAct).order_by(EnforcementAct.id))
    last = {(row.kind, row.subject, row.submitted, row.key): row for row in rows}
    return [row for row in last.values() if row.state in ("begun", "held")]


def _stage(outlook: Outlook, ends: int, acts: Sequence[EnforcementAct], now: int) -> tuple[Stage, int | None]:
    rule = outlook.version.spec.enforcement
    if rule.policy == "off" or not reaches(outlook.spent, rule.at, outlook.spendable.total):
        return ("given-back" if acts else "within"), None
    if not tier_is_open(outlook.account, outlook.version):
        return ("given-back" if acts else "no-tier"), None
    if rule.policy == "warn":
        return "warned", None
    if ends > now:
        return "grace", ends
    return ("kept" if acts else "due"), None
