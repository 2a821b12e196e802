"""Statements over HTTP at a steady rate, from a service with two years of months."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

from api.db.engine import connect
from api.db.migrate import upgrade
from api.services import tokens
from api.services.reconcile import reconcile
from bench.budget_month import Answers, bill, write_jobs
from hpctools.budget.month import Month, day_start
from hpctools.budget.tree import BudgetSite
from hpctools.slurm.run import start

MONTHS, JOBS, BILL_ROWS = 24, 20_000, 31_000
RATE, SECONDS, CLIENTS = 200, 30, 16
LAST = Month(2026, 10)
_LIMIT = 60.0


@dataclass(frozen=True)
class Load:
    """What the requests took.

    Attributes:
        name: of the database.
        p99_ms: of all requests, from the moment at which each was due.
    """

    name: str
    p99_ms: float


def statements_under_load(url: str, site_file: Path, folder: Path, site: BudgetSite) -> Load:
    """Fill a store with two years, then ask for statements of any account and month at 200 a second."""
    months = [LAST]
    while len(months) < MONTHS:
        months.append(months[-1].previous)
    secret = _filled(url, site, months, folder)
    with _served(url, site_file, folder) as port:
        took = _asked(port, secret, [account.name for account in site.accounts], months)
    return Load(url.partition(":")[0], sorted(took)[int(len(took) * 0.99)] * 1000)


def _filled(url: str, site: BudgetSite, months: list[Month], folder: Path) -> str:
    engine = connect(url)
    upgrade(engine)
    for month in months:
        answers = folder / f"load-{month}"
        answers.mkdir(exist_ok=True)
        write_jobs(site, month, JOBS, answers)
        now = day_start(month.end) + 86400
        reconcile(engine, site, month, bill(site, month, BILL_ROWS), Answers(answers), now)
    secret = tokens.create(engine, "bench", None, int(time.time()), None)
    engine.dispose()
    return secret


@contextmanager
def _served(url: str, site_file: Path, folder: Path) -> Iterator[int]:
    """The service as people run it, on a port that was free."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    settings = {"HPCTOOLS_API_DATABASE_URL": url, "HPCTOOLS_API_SITE": str(site_file)}
    words = [sys.executable, "-m", "api", "serve", "--port", str(port)]
    with (folder / "serve.log").open("ab") as log:
        service = start(words, stdout=log.fileno(), stderr=log.fileno(), env={**os.environ, **settings})
    try:
        _wait(port)
        yield port
    finally:
        service.terminate()
        service.wait(30)


def _wait(port: int) -> None:
    limit = time.monotonic() + _LIMIT
    while True:
        try:
            _get(HTTPConnection("127.0.0.1", port, timeout=5), "/healthz", "")
        except OSError:
            if time.monotonic() > limit:
                raise
            time.sleep(0.1)
        else:
            return


def _asked(port: int, secret: str, accounts: list[str], months: list[Month]) -> list[float]:
    dice = random.Random(1)  # noqa: S311 - which account comes next
    paths = [
        f"/v1/accounts/{dice.choice(accounts)}/statement/{dice.choice(months)}" for _ in range(RATE * SECONDS)
    ]
    took: list[float] = []
    begin = time.monotonic() + 0.5
    threads = [
        threading.Thread(target=_ask, args=(port, secret, paths, place, begin, took))
        for place in range(CLIENTS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(took) == len(paths), "a request failed"
    return took


def _ask(port: int, secret: str, paths: list[str], place: int, begin: float, took: list[float]) -> None:
    """Every so many requests, each at its own moment whatever became of those before."""
    connection = HTTPConnection("127.0.0.1", port, timeout=_LIMIT)
    for number in range(place, len(paths), CLIENTS):
        due = begin + number / RATE
        time.sleep(max(0.0, due - time.monotonic()))
        _get(connection, paths[number], secret)
        took.append(time.monotonic() - due)


def _get(connection: HTTPConnection, path: str, secret: str) -> None:
    connection.request("GET", path, headers={"Authorization": f"Bearer {secret}"})
    answer = connection.getresponse()
    answer.read()
    if answer.status != 200:
        raise AssertionError(f"{path} answered {answer.status}")
