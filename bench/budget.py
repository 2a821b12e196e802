"""What reconciling a month and reading statements cost, in both databases.

    ./dev bench budget [--quick] [--check] [--huge] [--only months|load]

A month of 1,000 nodes, 500 accounts and 93,000 bill rows, with 10,000, 100,000 and 1,000,000 jobs: the first
reconciliation and a replay of the same answers, each in a process of its own. sacct's and the provider's
answers are made before and read from files. Then statements and pages over HTTP at 200 requests a second,
over two years.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.big_site import big_site
from bench.budget_load import QUICK, Extent, Load, under_load
from bench.budget_month import bill, write_jobs
from bench.budget_parts import Parts
from bench.budget_postgres import Server, postgres
from bench.course import until_ctrl_c
from bench.report import Goal, report, table
from hpctools.budget.from_site import budget_site
from hpctools.budget.month import Month
from hpctools.budget.tree import BudgetSite
from hpctools.site import load
from hpctools.slurm.run import run

ROOT = Path(__file__).resolve().parent.parent
MONTH = Month(2026, 10)
NODES, DEPARTMENTS, USERS, BILL_ROWS = 1000, 100, 2000, 100_000
SIZES = (10_000, 100_000, 1_000_000)
QUICK_SIZES = (10_000,)
HUGE = 10_000_000
SECONDS = 3600.0
FULL, REPLAY, MEMORY, ANSWER_MS = 30.0, 3.0, 1.5, 100.0
HUGE_SECONDS, HUGE_MEMORY = 360.0, 3.0

Row = Mapping[str, Any]


def main() -> int:
    """Measure, report, and return the exit code. A part that fails is named, and the rest is told."""
    given, parts = _arguments(), Parts()
    rows: list[Row] = []
    loads: list[Load] = []
    with until_ctrl_c() as course, tempfile.TemporaryDirectory(prefix="hpctools-bench-") as name:
        folder = Path(name)
        site_file = folder / "site.yaml"
        site_file.write_text(big_site(NODES, DEPARTMENTS, USERS))
        site = budget_site(load(site_file))
        with parts.part("the bench"), postgres() as server:
            if given.only != "load":
                for size in _sizes(given):
                    rows.extend(_month(site, site_file, folder, server, size, parts))
            if given.only != "months":
                extent = QUICK if given.quick else Extent()
                for url in _urls("load", folder, server):
                    with parts.part(f"load, {url.partition(':')[0]}"):
                        loads.extend(under_load(url, site_file, folder, site, extent, parts))
    print(table([asdict(each) for each in loads]), end="")
    goals = [*_goals(rows), *_load_goals(loads), *parts.goals()]
    return report("budget", rows, goals, check=given.check, complete=course.complete)


def _sizes(given: argparse.Namespace) -> tuple[int, ...]:
    return QUICK_SIZES if given.quick else (*SIZES, *((HUGE,) if given.huge else ()))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Reconciling a month and reading statements.")
    parser.add_argument("--quick", action="store_true", help="10,000 jobs and three months only")
    parser.add_argument("--check", action="store_true", help="fail when a goal is not met")
    parser.add_argument("--only", choices=("months", "load"), help="one half of it")
    parser.add_argument("--huge", action="store_true", help="10,000,000 jobs as well")
    return parser.parse_args()


def _urls(name: str, folder: Path, server: Server) -> tuple[str, str]:
    return f"sqlite:///{folder}/{name}.sqlite", server.database(name)


def _month(
    site: BudgetSite, site_file: Path, folder: Path, server: Server, size: int, parts: Parts
) -> Iterator[Row]:
    answers = folder / str(size)
    _make(site, size, answers)
    for url in _urls(f"b{size}", folder, server):
        with parts.part(f"{size:,} jobs, {url.partition(':')[0]}"):
            yield from _reconciled(url, site_file, answers, size)
    shutil.rmtree(answers)


def _make(site: BudgetSite, size: int, folder: Path) -> None:
    folder.mkdir()
    write_jobs(site, MONTH, size, folder)
    bill(site, MONTH, BILL_ROWS).table.write_parquet(folder / "bill.parquet")


def _reconciled(url: str, site_file: Path, folder: Path, size: int) -> Iterator[Row]:
    fixed = {"jobs": size, "database": url.partition(":")[0]}
    for what in ("full", "replay"):
        yield fixed | {"run": what} | _inside(url, site_file, folder)


def _inside(url: str, site_file: Path, folder: Path) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile("r", suffix=".json") as answer:
        words = [sys.executable, "-m", "bench.budget_inside", url, str(site_file), str(folder), str(MONTH)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        run([*words, answer.name], timeout=SECONDS, env=environment, cwd=ROOT)
        told: dict[str, Any] = json.load(answer)
    return {
        "seconds": told["seconds"],
        "processor s": told["processor_seconds"],
        "peak GB": told["peak_gb"],
        "new jobs": told["jobs"],
        "entries": told["entries"],
    }


def _goals(rows: list[Row]) -> list[Goal]:
    goals = []
    for row in rows:
        if row["jobs"] not in (SIZES[-1], HUGE):
            continue
        huge, name = row["jobs"] == HUGE, f"{row['run']} of {row['jobs']:,} jobs, {row['database']}"
        limit = REPLAY if row["run"] == "replay" else FULL
        if not huge or row["run"] == "full":
            goals.append(Goal(name, row["seconds"], "s", "<=", HUGE_SECONDS if huge else limit))
            goals.append(Goal(f"peak, {name}", row["peak GB"], "GB", "<=", HUGE_MEMORY if huge else MEMORY))
    return goals


def _load_goals(loads: list[Load]) -> list[Goal]:
    return [Goal(f"p99 of {load.name}", load.p99_ms, "ms", "<=", ANSWER_MS) for load in loads]


if __name__ == "__main__":
    sys.exit(main())
