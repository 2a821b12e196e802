"""Statements and overviews over HTTP at a steady rate, from a service with two years of months."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import polars as pl

from api.db.engine import connect
from api.db.migrate import upgrade
from api.services import tokens
from api.services.reconcile import reconcile
from bench.budget_client import ANSWER_SECONDS, Questions, Took
from bench.budget_month import Answers, Bill, bill, write_jobs
from bench.budget_parts import Parts
from hpctools.budget.month import Month, day_of, day_start
from hpctools.budget.tree import BudgetSite
from hpctools.slurm.run import Process, run, start

JOBS, BILL_ROWS = 20_000, 31_000
RATE, CLIENTS = 200, 16
_START_SECONDS = 180.0
_STOP_SECONDS = 60.0
_FIRSTS_SECONDS = 900.0
_TICKS = os.sysconf("SC_CLK_TCK")
_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Extent:
    """How much of it.

    Attributes:
        months: that the store has.
        seconds: of each kind of request.
    """

    months: int = 24
    seconds: int = 30


QUICK = Extent(3, 5)


@dataclass(frozen=True)
class Load:
    """What the requests took.

    Attributes:
        name: what was asked, and the database.
        p50_ms, p99_ms, most_ms: of all requests, from the moment at which each was due.
        service_ms, client_ms: processor time of the service and of the client for one request.
        first_ms: processor time of the service for what was asked once before, one after the other, and is in
            no other figure: what a run told is worked out once, a page is made once for each state of the
            store. Of statements it is one for each month: most of the others are new all the same.
        failed: requests without an answer of success; in the percentiles they count with ANSWER_SECONDS.
    """

    name: str
    p50_ms: float
    p99_ms: float
    most_ms: float
    service_ms: float
    client_ms: float
    first_ms: float = 0.0
    failed: int = 0


Asked = Callable[[random.Random, list[str], list[Month]], str]


def _statement(dice: random.Random, accounts: list[str], months: list[Month]) -> str:
    """Of any account and month: most are asked for the first time."""
    return f"/v1/accounts/{dice.choice(accounts)}/statement/{dice.choice(months)}"


def _overview(dice: random.Random, accounts: list[str], months: list[Month]) -> str:
    """The page of the whole site: every second time the present month, else any."""
    return "/" if dice.random() < 0.5 else f"/?month={dice.choice(months)}"


def _page(dice: random.Random, accounts: list[str], months: list[Month]) -> str:
    """The page of a department or lab in the present month, as their heads open it."""
    return f"/accounts/{dice.choice(accounts)}"


@dataclass(frozen=True)
class Kind:
    """A kind of request.

    Attributes:
        path: of one.
        firsts: what is asked before.
        header: says who asks.
    """

    path: Asked
    firsts: Callable[[list[str], list[Month]], Iterator[str]]
    header: str


def _statements_before(accounts: list[str], months: list[Month]) -> Iterator[str]:
    return (f"/v1/accounts/{accounts[0]}/statement/{month}" for month in months)


def _overviews_before(_: list[str], months: list[Month]) -> Iterator[str]:
    return (f"/?month={month}" for month in months)


def _pages_before(accounts: list[str], _: list[Month]) -> Iterator[str]:
    return (f"/accounts/{account}" for account in accounts)


_COOKIE = "Cookie: hpctools_token={}"
KINDS = {
    "statement": Kind(_statement, _statements_before, "Authorization: Bearer {}"),
    "overview": Kind(_overview, _overviews_before, _COOKIE),
    "account's page": Kind(_page, _pages_before, _COOKIE),
}


def under_load(
    url: str, site_file: Path, folder: Path, site: BudgetSite, extent: Extent, parts: Parts
) -> Iterator[Load]:
    """Fill a store with months, then ask for each of KINDS at 200 a second."""
    months = [Month.of(day_of(int(time.time())))]
    while len(months) < extent.months:
        months.append(months[-1].previous)
    secret = _filled(url, site, months, folder)
    accounts = [account.name for account in site.accounts]
    with served(url, site_file, folder) as (port, service):
        for name, kind in KINDS.items():
            what = f"{name}, {url.partition(':')[0]}"
            with parts.part(what):
                header, dice = kind.header.format(secret), random.Random(1)  # noqa: S311 - which is next
                firsts = tuple(kind.firsts(accounts, months))
                before = Questions(port, header, firsts, RATE, 1, limit=_FIRSTS_SECONDS)
                paths = tuple(kind.path(dice, accounts, months) for _ in range(RATE * extent.seconds))
                yield _load(service, what, before, Questions(port, header, paths, RATE, CLIENTS), parts)


def _load(service: Process, what: str, before: Questions, questions: Questions, parts: Parts) -> Load:
    firsts, first = _busy(service, before)
    took, busy = _busy(service, questions)
    for name, failed in ((f"{what}, the first time", firsts.failed), (what, took.failed)):
        if failed:
            parts.fail(name, f"{len(failed)} requests, such as {failed[0]}")
    found = load_of(what, took, busy)
    return replace(found, first_ms=first * 1000 / len(before.paths), failed=len(took.failed))


def _busy(service: Process, questions: Questions) -> tuple[Took, float]:
    """Ask, and tell the processor seconds that the service took for it."""
    before = processor_seconds(service)
    took = tried(questions)
    return took, processor_seconds(service) - before


def load_of(name: str, took: Took, busy: float) -> Load:
    """What requests took, and `busy` seconds of the service's processors for all of them."""
    ms, count = sorted(each * 1000 for each in took.seconds), len(took.seconds)
    return Load(
        name=name,
        p50_ms=ms[count // 2],
        p99_ms=ms[int(count * 0.99)],
        most_ms=ms[-1],
        service_ms=busy * 1000 / count,
        client_ms=took.processor_seconds * 1000 / count,
    )


def asked(questions: Questions) -> Took:
    """`tried`, where every answer must be a success.

    Raises:
        AssertionError: one was not.
    """
    took = tried(questions)
    assert not took.failed, f"{len(took.failed)} of {len(took.seconds)}: {took.failed[0]}"
    return took


def tried(questions: Questions) -> Took:
    """By a process of its own, so that no interpreter is shared."""
    with tempfile.TemporaryDirectory(prefix="hpctools-load-") as name:
        asked, answer = Path(name) / "questions.json", Path(name) / "answer.json"
        asked.write_text(json.dumps(asdict(questions)))
        words = [sys.executable, "-m", "bench.budget_client", str(asked), str(answer)]
        # Its own limits end it before; a connection that it waits to open may take one answer's time more.
        limit = questions.limit + 3 * ANSWER_SECONDS
        run(words, timeout=limit, env={**os.environ, "PYTHONPATH": str(_ROOT)}, cwd=_ROOT)
        told = json.loads(answer.read_text())
    return Took(tuple(told["seconds"]), told["processor_seconds"], tuple(told["failed"]))


def _filled(url: str, site: BudgetSite, months: list[Month], folder: Path) -> str:
    engine, present = connect(url), int(time.time())
    upgrade(engine)
    for month in sorted(months):
        answers = folder / f"load-{month}"
        if not answers.exists():
            answers.mkdir()
            write_jobs(site, month, JOBS, answers)
        now = min(present, day_start(month.end) + 86400)
        reconcile(engine, site, month, _until(now, bill(site, month, BILL_ROWS)), Answers(answers), now)
    secret = tokens.create(engine, "bench", None, present, None)
    engine.dispose()
    return secret


def _until(now: int, bill: Bill) -> Bill:
    return Bill(bill.table.filter(pl.col("day") <= day_of(now)))


@contextmanager
def served(url: str, site_file: Path, folder: Path) -> Iterator[tuple[int, Process]]:
    """The service as people run it, on a port that was free; it reconciles nothing meanwhile."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    settings = {
        "HPCTOOLS_API_DATABASE_URL": url,
        "HPCTOOLS_API_SITE": str(site_file),
        "HPCTOOLS_API_RECONCILE_EVERY": "0",
        "HPCTOOLS_API_WATCH_EVERY": "0",
    }
    words = [sys.executable, "-m", "api", "serve", "--port", str(port)]
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), **settings}
    with (folder / "serve.log").open("ab") as log:
        service = start(words, stdout=log.fileno(), stderr=log.fileno(), env=environment, cwd=_ROOT)
    try:
        _wait(port, service, folder / "serve.log")
        yield port, service
    finally:
        _end(service)


def _end(service: Process) -> None:
    service.terminate()
    try:
        service.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        service.kill()
        service.wait(_STOP_SECONDS)


def _wait(port: int, service: Process, log: Path) -> None:
    """Until it answers.

    Raises:
        AssertionError: it ended, or does not answer; with the end of its log.
    """
    limit = time.monotonic() + _START_SECONDS
    while not _is_healthy(port):
        told = log.read_text(errors="replace")[-2000:]
        assert service.poll() is None, f"the service has ended: {told}"
        assert time.monotonic() < limit, f"the service does not answer: {told}"
        time.sleep(0.1)


def _is_healthy(port: int) -> bool:
    try:
        with closing(HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == HTTPStatus.OK
    except (OSError, HTTPException):
        return False


def processor_seconds(service: Process) -> float:
    """Of a process and of those that it waited for."""
    words = Path(f"/proc/{service.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, words[11:15])) / _TICKS
