"""What the page of an account's budget shows, in one look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from api.auth.principal import Principal
from api.db.budget_models import BudgetApproval
from api.db.engine import reading
from api.services.budgets import Stored, parts_state, state_of, versions
from api.services.spending import Outlook, read_outlook
from hpctools.budget.allowance import in_effect
from hpctools.budget.month import day_of
from hpctools.budget.tree import SITE_ACCOUNT, Account, BudgetSite


@dataclass(frozen=True)
class Rights:
    """What a visitor may do with an account's budget."""

    set: bool
    split: bool
    approve: bool

    @classmethod
    def of(cls, site: BudgetSite, visitor: Principal, account: Account) -> Rights:
        """A budget is given by who holds the account above; the site has none of its own."""
        whole = account.level == "site"
        own = not whole and visitor.may("write", site, account.name)
        above = account.parent or SITE_ACCOUNT
        return cls(
            set=not whole and visitor.may("write", site, above),
            split=own and bool(site.children(account.name)),
            approve=own,
        )


@dataclass(frozen=True)
class BudgetView:
    """An account's budget.

    Attributes:
        outlook: None when it has no budget today.
        present: the budget in effect.
        currency: of its amounts, and of one that is to come.
        state: for `Change.seen`; `parts_state`: for that of a split.
        approvals: the newest first.
        children: the accounts directly below, each with its budget.
    """

    account: Account
    outlook: Outlook | None
    present: Stored | None
    currency: str
    state: str
    parts_state: str
    versions: tuple[Stored, ...]
    approvals: tuple[BudgetApproval, ...]
    children: tuple[tuple[Account, Stored | None], ...]


def read_budget(engine: Engine, site: BudgetSite, account: Account, now: int) -> BudgetView:
    """All that is known of an account's budget.

    Raises:
        UnreachableError: the database does not answer.
    """
    today = day_of(now)
    outlook = read_outlook(engine, site, account, now) if account.level != "site" else None
    with reading(engine) as session:
        known = versions(session, account, today)
        children = tuple(
            (child, in_effect(versions(session, child, today), today))
            for child in site.children(account.name)
        )
        granted = _approvals(session, account)
        present = in_effect(known, today)
        session.expunge_all()
        return BudgetView(
            account=account,
            outlook=outlook,
            present=present,
            currency=present.spec.currency if present else site.currency,
            state=state_of(session, account, today),
            parts_state=parts_state(session, site, account, today),
            versions=tuple(reversed(known)),
            approvals=tuple(granted),
            children=children,
        )


def _approvals(session: Session, account: Account) -> Sequence[BudgetApproval]:
    query = select(BudgetApproval).where(BudgetApproval.account == account.name)
    return session.scalars(query.order_by(BudgetApproval.id.desc())).all()
