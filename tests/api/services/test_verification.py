"""A store that was changed past the service is noticed, wherever it was changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import polars as pl
import pytest
from polars.exceptions import PanicException
from sqlalchemy import Engine, text

from api.db.engine import reading, writing
from api.services import audit
from api.services.verification import Verified, verify
from hpctools.budget.month import Month
from hpctools.budget.tree import BudgetSite

SOURCES = ("aws-ce",)


@pytest.fixture
def filled(engine: Engine, reconcile_november: Callable[..., Any], jobs: Any, now: int) -> Engine:
    """Two runs, the second with a late job; and an entry of the audit trail."""
    jobs.records = [job for job in jobs.records if job.end is not None]
    late = jobs.records.pop()
    reconcile_november()
    jobs.records.append(late)
    reconcile_november(now + 60)
    with writing(engine) as session:
        audit.record(session, "head", "budget.set", "nlp", None, {"amount": "1"}, at=now)
    return engine


def look(engine: Engine, site: BudgetSite, month: Month | None = None) -> Verified:
    with reading(engine) as session:
        return verify(session, site, SOURCES, month)


def test_a_store_that_nobody_touched_is_whole(filled: Engine, site: BudgetSite, november: Month) -> None:
    found = look(filled, site)
    with filled.connect() as connection:
        documents = sum(
            connection.scalar(text(f"SELECT count(*) FROM {table}")) or 0
            for table in ("bill_day", "job_batch")
        )
    assert asdict(found) == {
        "months": 1,
        "days": 21,
        "runs": 2,
        "documents": documents + 21,
        "waiting": 0,
        "findings": [],
    }
    assert look(filled, site, november).findings == []
    assert look(filled, site, november.previous).days == 0


def test_what_waits_for_the_next_run_is_no_damage(filled: Engine, site: BudgetSite) -> None:
    found = look(filled, replace(site, idle="unallocated"))
    assert (found.waiting, found.findings) == (21, [])


DAMAGE = {
    "an entry's amount": (
        "ledger_entry",
        "UPDATE ledger_entry SET amount = '1234567' WHERE id = 1",
        ["run 1", "2026-11-01"],
    ),
    "a missing entry": ("ledger_entry", "DELETE FROM ledger_entry WHERE id = 1", ["run 1", "2026-11-01"]),
    "a clearing entry": ("clearing_entry", "DELETE FROM clearing_entry WHERE run_id = 1", ["run 1"]),
    "a pair that cancels out": (
        "ledger_entry",
        "UPDATE ledger_entry SET account = 'cv' WHERE id = (SELECT min(id) FROM ledger_entry "
        "WHERE account = 'nlp-lab-a')",
        ["2026-11-01", "2026-11-01"],
    ),
    "a bill's digest": (
        "bill_day",
        f"UPDATE bill_day SET digest = '{'0' * 64}' WHERE id = 3",
        ["bill document 3"],
    ),
    "a day's jobs": (
        "job_batch",
        f"UPDATE job_batch SET digest = '{'0' * 64}' WHERE id = 2",
        ["jobs document 2"],
    ),
    "parts of another day": (
        "attributed_day",
        "UPDATE attributed_day SET charges = (SELECT charges FROM attributed_day WHERE id = 2) WHERE id = 1",
        ["parts of 2026-11-01"],
    ),
    "parts with a digest that fits": (
        "attributed_day",
        "UPDATE attributed_day SET charges = (SELECT charges FROM attributed_day WHERE id = 2), "
        "jobs = (SELECT jobs FROM attributed_day WHERE id = 2), use = (SELECT use FROM attributed_day "
        "WHERE id = 2), places = (SELECT places FROM attributed_day WHERE id = 2), costs_digest = "
        "(SELECT costs_digest FROM attributed_day WHERE id = 2) WHERE id = 1",
        ["2026-11-01"],
    ),
    "the audit trail": ("audit_entry", "UPDATE audit_entry SET principal = 'somebody'", ["audit entry 1"]),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_found(filled: Engine, site: BudgetSite, what: str) -> None:
    table, statement, expected = DAMAGE[what]
    with filled.begin() as connection:
        _allow(connection, table)
        connection.exec_driver_sql(statement)
    where = [finding.where for finding in look(filled, site).findings]
    assert where, what
    assert all(any(place.startswith(begin) for place in where) for begin in expected), where
    assert all(any(place.startswith(begin) for begin in expected) for place in where), where


def test_damage_that_polars_gives_up_at_is_found_as_well(
    filled: Engine, site: BudgetSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One in a hundred documents with a few wrong bytes: what it raises is not among Python's own errors."""

    def give_up(*_: Any) -> None:
        raise PanicException("called `Result::unwrap()` on an `Err` value")

    monkeypatch.setattr(pl, "read_parquet", give_up)
    where = {finding.where.rpartition(" of ")[0] for finding in look(filled, site).findings}
    assert {"bill document 1", "bill document 21", ""} <= where


def _allow(connection: Any, table: str) -> None:
    """As who owns the database can."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"ALTER TABLE {table} DISABLE TRIGGER USER")
        return
    query = text("SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = :table")
    for name in connection.execute(query, {"table": table}).scalars().all():
        connection.exec_driver_sql(f"DROP TRIGGER {name}")
