"""One reconciliation in a process of its own: seconds, peak memory, and what it did."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import polars as pl

from api.db.engine import connect
from api.db.migrate import upgrade
from api.services.reconcile import reconcile
from bench.budget_month import Answers, Bill
from hpctools.budget.from_site import budget_site
from hpctools.budget.month import Month, day_start
from hpctools.site import load


def main(url: str, site_file: str, folder: str, month_name: str, answer: str) -> None:
    """Reconcile what `bench.budget` has made."""
    site = budget_site(load(Path(site_file)))
    month = Month.parse(month_name)
    bill = Bill(pl.read_parquet(Path(folder) / "bill.parquet"))
    engine = connect(url)
    upgrade(engine)
    begin, busy = time.perf_counter(), time.process_time()
    done = reconcile(engine, site, month, bill, Answers(Path(folder)), day_start(month.end) + 86400)
    told = {
        "seconds": time.perf_counter() - begin,
        "processor_seconds": time.process_time() - busy,
        "peak_gb": _peak_bytes() / 1e9,
        "jobs": done.jobs,
        "entries": done.entries,
    }
    engine.dispose()
    Path(answer).write_text(json.dumps(told))


def _peak_bytes() -> int:
    """The most memory that this program had; `ru_maxrss` begins with that of whoever started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


if __name__ == "__main__":
    main(*sys.argv[1:6])
