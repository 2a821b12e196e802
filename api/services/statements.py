"""Statements out of the ledger."""

from __future__ import annotations

from sqlalchemy import Engine

from api.db.engine import reading
from api.db.ledger import charges, knowledge
from hpctools.budget.month import Month
from hpctools.budget.statement import Statement, statement
from hpctools.budget.tree import Account, BudgetSite


def read_statement(engine: Engine, site: BudgetSite, account: Account, month: Month) -> Statement:
    """One account's month as it is known now.

    Raises:
        UnreachableError: the database does not answer.
    """
    with reading(engine) as session:
        known = knowledge(session, month, site.metric)
        return statement(site, account, month, charges(session, month, site.metric), known)
