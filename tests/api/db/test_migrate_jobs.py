"""What the first release had of jobs and entries, brought to documents and pairs, and back."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from sqlalchemy import Engine, text

from api.db.engine import connect, reading
from api.db.job_store import current_jobs
from api.db.ledger import charges
from api.db.migrate import _run, downgrade, upgrade
from hpctools.budget.attribution_table import amount
from hpctools.budget.month import Month, day_start
from hpctools.slurm.accounting_table import to_records

NOVEMBER = Month(2026, 11)
START = day_start(NOVEMBER.start)
_JOB = {
    "cluster": "uni",
    "job_id": 7,
    "user": "u",
    "account": "a",
    "partition": "p",
    "qos": "q",
    "submitted": START,
    "start": START + 5,
    "suspended_seconds": 0,
    "state": "COMPLETED",
    "cpus": 1,
    "memory_mb": 2,
    "gpus": 3,
    "shards": 4,
    "nodes": "n-1",
    "reservation": "",
}
_ENTRY = {
    "run_id": 1,
    "month": "2026-11",
    "metric": "m",
    "day": "2026-11-01",
    "node_group": "big",
    "kind": "attributed",
    "user": "u",
    "cluster": "uni",
    "job_id": 7,
    "currency": "USD",
}


def insert(engine: Engine, table: str, **values: Any) -> None:
    names = ", ".join(f'"{name}"' for name in values)
    with engine.begin() as connection:
        marks = ", ".join(f":{name}" for name in values)
        connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({marks})"), values)


def read(engine: Engine, query: str) -> list[Any]:
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(query))]


def test_jobs_and_entries_of_the_first_release_go_up_and_down(database_url: str) -> None:
    engine = connect(database_url)
    _run(engine, "upgrade", "v0001")
    versions = ((1, 1, 100, None, "RUNNING"), (1, 2, 200, START + 50, "FAILED"), (2, 1, 100, None, "RUNNING"))
    for dbindex, version, seen_at, end, state in versions:
        told = {"dbindex": dbindex, "version": version, "seen_at": seen_at, "end": end, "digest": "d"}
        insert(engine, "job_version", **_JOB | told | {"state": state})
    insert(engine, "attribution_run", id=1, month="2026-11", metric="m", as_of=200, estimated=True)
    for dbindex, account, money in ((1, "a", "1.25"), (2, "b", "0.0000000001"), (1, "a", "-0.25")):
        insert(engine, "ledger_entry", **_ENTRY, dbindex=dbindex, account=account, amount=money)

    upgrade(engine)
    with reading(engine) as session:
        jobs = {job.dbindex: (job.end, job.state) for job in to_records(current_jobs(session, NOVEMBER))}
        table, places = charges(session, NOVEMBER, "m", 1)
    assert jobs == {1: (START + 50, "FAILED"), 2: (None, "RUNNING")}
    sums = {row["account"]: amount(row["units"], places) for row in table.iter_rows(named=True)}
    assert sums == {"a": Decimal(1), "b": Decimal("1e-10")}
    ((day, cleared),) = read(engine, "SELECT day, amount FROM clearing_entry")
    assert (str(day), Decimal(cleared)) == ("2026-11-01", Decimal("-1.0000000001"))

    downgrade(engine, "v0001")
    kept = 'SELECT dbindex, seen_at, "end", state, gpus FROM job_version ORDER BY dbindex'
    assert read(engine, kept) == [(1, 200, START + 50, "FAILED", 3), (2, 100, None, "RUNNING", 3)]
    assert len(read(engine, "SELECT id FROM ledger_entry")) == 3
    upgrade(engine)
    with reading(engine) as session:
        assert current_jobs(session, NOVEMBER).height == 2
    engine.dispose()
