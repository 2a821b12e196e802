from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

TABLES = (
    "bill_day",
    "bill_pull",
    "job_batch",
    "job_pull",
    "reservation_pull",
    "own_nodes_note",
    "attribution_run",
    "run_coverage",
    "attributed_day",
    "ledger_entry",
    "clearing_entry",
)


@pytest.fixture
def filled(engine: Engine, reconcile_november: Callable[[], Any]) -> Engine:
    reconcile_november()
    # Only the first release wrote this one.
    names = "run_id, account, billed, used"
    change(engine, f"INSERT INTO run_coverage ({names}) SELECT id, 'nlp', 1, 1 FROM attribution_run")
    # Only sites whose reservations' owners bear idle cost have some.
    change(
        engine,
        "INSERT INTO reservation_pull (month, seen_at, digest, content) VALUES ('2026-11', 1, '', '[]')",
    )
    # Only sites with nodes of their own have some.
    change(
        engine,
        'INSERT INTO own_nodes_note (first, "end", noted_at, content) '
        "VALUES ('2026-11-01', '2026-12-01', 1, '{}')",
    )
    return engine


def change(engine: Engine, statement: str) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(statement)


def test_history_cannot_be_changed_or_removed(filled: Engine) -> None:
    for table in TABLES:
        column = "account" if table == "run_coverage" else "id"
        for statement in (f"UPDATE {table} SET {column} = {column}", f"DELETE FROM {table}"):
            with pytest.raises(DBAPIError, match=f"{table} is append-only"):
                change(filled, statement)


def test_history_cannot_be_truncated(filled: Engine) -> None:
    if filled.dialect.name == "sqlite":
        pytest.skip("SQLite has no TRUNCATE")
    for table in TABLES:
        with pytest.raises(DBAPIError, match=f"{table} is append-only"):
            change(filled, f"TRUNCATE {table} CASCADE")


def test_the_same_entry_cannot_be_stored_twice(filled: Engine) -> None:
    with pytest.raises(DBAPIError, match=r"(?i)unique"):
        change(
            filled,
            "INSERT INTO bill_day (source, metric, day, version, fetched_at, digest, row_count, estimated, "
            "content) SELECT source, metric, day, version, fetched_at, digest, row_count, "
            "estimated, content FROM bill_day",
        )
