from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import Engine, insert

from api.db.budget_models import BurnReading
from api.db.engine import writing
from api.services.reconcile import reconcile
from hpctools.budget.month import Month
from hpctools.budget.tree import BudgetSite


class Nothing:
    """A month without a bill and without jobs."""

    name = "aws-ce"

    def rows(self, month: Month) -> Iterable[Any]:
        return ()

    def windows(self, month: Month, now: int) -> Iterable[Any]:
        return ()


@pytest.fixture
def spend(engine: Engine, site: BudgetSite, november: Month, now: int) -> Callable[[str, str], None]:
    """Nothing is billed yet, and an account has spent so much by what runs."""

    def carry_out(account: str, amount: str) -> None:
        reconcile(engine, site, november, Nothing(), Nothing(), now)
        row = {"at": now, "account": account, "per_hour": Decimal(1), "unbilled": Decimal(amount), "jobs": 1}
        with writing(engine) as session:
            session.execute(insert(BurnReading), [row])

    return carry_out
