from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from hpctools.budget.bill import BillRow
from hpctools.budget.month import day_start
from hpctools.budget.tree import Account, Allowance, BudgetSite, NodeGroup
from hpctools.slurm.accounting import JobRecord

DAY = date(2026, 11, 10)


@pytest.fixture
def day() -> date:
    return DAY


@pytest.fixture
def midnight() -> int:
    """Unix seconds of 10 November 2026, 00:00 UTC."""
    return day_start(DAY)


@pytest.fixture(scope="session")
def make_site() -> Callable[..., BudgetSite]:
    """Two departments, two labs in the first; two 8-GPU nodes `big-1`, `big-2`; one shared login node."""

    def make(**changes: Any) -> BudgetSite:
        accounts = (
            Account("nlp", "department", "root", "nlp-head", Allowance(Decimal(3000), "USD", (50, 90))),
            Account("nlp-a", "lab", "nlp"),
            Account("nlp-b", "lab", "nlp"),
            Account("cv", "department", "root", "cv-head", Allowance(Decimal(600), "USD")),
        )
        groups = (
            NodeGroup("big", "compute", ("big-1", "big-2"), 2, cpus=96, memory_mb=1000, gpus=8),
            NodeGroup("small", "compute", ("small-1",), 1, cpus=48, memory_mb=500, gpus=4, shards=16),
            NodeGroup("login", "shared", ("login-1",), 1, cpus=16, memory_mb=64),
        )
        values: dict[str, Any] = {"cluster": "uni", "accounts": accounts, "node_groups": groups}
        return BudgetSite(**values | changes)

    return make


@pytest.fixture(scope="session")
def make_job() -> Callable[..., JobRecord]:
    """A finished job; by default the whole of `big-1`."""

    def make(dbindex: int, start: int | None, end: int | None, **changes: Any) -> JobRecord:
        values: dict[str, Any] = {
            "cluster": "uni",
            "dbindex": dbindex,
            "job_id": 1000 + dbindex,
            "user": "nlp1",
            "account": "nlp-a",
            "partition": "nlp",
            "qos": "medium",
            "submitted": start or 0,
            "start": start,
            "end": end,
            "suspended_seconds": 0,
            "state": "COMPLETED" if end else "RUNNING",
            "cpus": 96,
            "memory_mb": 1000,
            "gpus": 8,
            "shards": 0,
            "nodes": "big-1",
            "reservation": "",
        }
        return JobRecord(**values | changes)

    return make


@pytest.fixture(scope="session")
def make_row() -> Callable[..., BillRow]:
    """48 node-hours of `big` on 10 November for 480 USD."""

    def make(amount: str = "480", **changes: Any) -> BillRow:
        values: dict[str, Any] = {
            "source": "aws-ce",
            "day": DAY,
            "node_group": "big",
            "usage": "USE1-Cluster:ml.p4d.24xlarge",
            "metric": "NetAmortizedCost",
            "currency": "USD",
            "amount": Decimal(amount),
            "node_hours": Decimal(48),
        }
        return BillRow(**values | changes)

    return make
