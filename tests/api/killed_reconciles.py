"""Kills reconciliations of the service at many points and prints, as JSON, what was found after each.

Usage: killed_reconciles.py URL AT_STATEMENTS AT_TIMES SEED FOLDER

Every reconciliation is a process of its own, forked from this one, which has read all modules and reconciles
nothing itself; so a point costs two short processes. Each starts from a store whose month is reconciled in
part, and is killed: AT_STATEMENTS times by SIGKILL before or after a random one of its statements and
commits, AT_TIMES times wherever it is after some processor time, by a signal that it does not handle (one
that comes to its end before is not counted, another takes its place). Then the next one works to its end,
and tells what there is.
"""

from __future__ import annotations

import gc
import hashlib
import itertools
import json
import os
import random
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import Engine, event, text
from sqlalchemy.orm import configure_mappers

from api.db.engine import connect, reading, writing
from api.db.migrate import upgrade
from api.schemas.statement import StatementOut
from api.services import audit, runs
from api.services.reconcile import Outcome, reconcile
from api.services.scheduler import Scheduler
from api.services.site_file import SiteFile
from api.services.statements import read_statement
from hpctools.budget.bill import BillRow
from hpctools.budget.jobs import JobWindow
from hpctools.budget.money import total
from hpctools.budget.month import Month, day_start
from hpctools.slurm.accounting import JobRecord

METRIC = "NetAmortizedCost"
NOVEMBER = Month(2026, 11)
DAYS = NOVEMBER.days[:2]
NOW = day_start(DAYS[-1]) + 80_000
LIMIT = 300.0
LOOKS = 5
SITE = SiteFile(Path(__file__).parents[2] / "slurm-conf/examples/university/site.yaml", METRIC).current()
TABLES = ("bill_day", "job_batch", "attribution_run", "attributed_day", "ledger_entry", "clearing_entry")


@dataclass(frozen=True)
class Source:
    """The bill, and the jobs in a window for each day.

    Attributes:
        whole: everything; else as it was known two hours before.
    """

    whole: bool
    name: str = "aws-ce"

    def rows(self, month: Month) -> Iterable[BillRow]:
        groups = (
            ("reserved", "480.1234567891", 24),
            ("shared", "61.5", 24),
            ("login", "9.99", 0),
            ("", "77", 0),
        )
        rows = [
            BillRow(
                "aws-ce", day, group, "use", METRIC, "USD", Decimal(amount), Decimal(hours), estimated=True
            )
            for day in DAYS
            for group, amount, hours in groups
        ]
        return rows if self.whole else [replace(row, amount=row.amount / 2) for row in rows[:-3]]

    def windows(self, month: Month, now: int) -> Iterable[JobWindow]:
        jobs = [job(number) for number in range(16 if self.whole else 9)]
        for day in DAYS:
            begin = day_start(day)
            ran = [
                each
                for each in jobs
                if (each.start or 0) < begin + 86400 and (each.end is None or each.end > begin)
            ]
            yield JobWindow.of_records(day, day, ran)


def job(number: int) -> JobRecord:
    """They follow each other on halves of two nodes; the last ones run."""
    start = day_start(DAYS[0]) + number // 4 * 40_000 + number * 7
    end = start + 37_000
    user, account, partition = (("nlp1", "nlp-lab-a", "nlp"), ("cv1", "cv-lab-a", "cv"))[number % 2]
    return JobRecord(
        cluster="uni-gpu",
        dbindex=number + 1,
        job_id=number + 1,
        user=user,
        account=account,
        partition=partition,
        qos="medium",
        submitted=start - 60,
        start=start,
        end=end if end < NOW else None,
        suspended_seconds=0,
        state="COMPLETED" if end < NOW else "RUNNING",
        cpus=48,
        memory_mb=1000,
        gpus=4,
        shards=0,
        nodes=f"reserved-{1 + number % 4 // 2}",
        reservation="",
    )


@dataclass(frozen=True)
class Point:
    """Where a process dies.

    Attributes:
        statement: at this one, counted twice for before and after; never when 0.
        seconds: of processor time; never when 0.
    """

    statement: int = 0
    seconds: float = 0.0


# --- what a child does -------------------------------------------------------------------------------------


def begin(engine: Engine) -> None:
    """The store as the killed ones find it."""
    upgrade(engine)
    reconcile(engine, SITE, NOVEMBER, Source(False), Source(False), NOW - 7200)
    engine.dispose()


def serve(engine: Engine) -> int:
    """What the service does when somebody asks for the month; how many runs it carried out."""

    def work(month: Month, now: int) -> Outcome:
        return reconcile(engine, SITE, month, Source(True), Source(True), now)

    with writing(engine) as session:
        runs.ask(session, NOVEMBER, "head", NOW)
    return Scheduler(engine, work, METRIC, 0, lambda: NOW).tick()


def killed(engine: Engine, point: Point) -> None:
    """Reconcile, and die at a point; tells how much there was to do if it does not."""
    began = time.process_time()
    count = stops(engine, point.statement)
    if point.seconds:
        signal.setitimer(signal.ITIMER_PROF, point.seconds)
    serve(engine)
    signal.setitimer(signal.ITIMER_PROF, 0)
    tell({"statements": count(), "seconds": time.process_time() - began})


def stops(engine: Engine, point: int) -> Callable[[], int]:
    """Die after so many statements and commits; returns how many there were so far."""
    seen = 0

    def on(*_: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == point:
            os.kill(os.getpid(), signal.SIGKILL)

    for name in ("before_cursor_execute", "after_cursor_execute", "commit", "checkin"):
        event.listen(engine.pool if name == "checkin" else engine, name, on)
    return lambda: seen


def again(engine: Engine) -> None:
    """Reconcile to the end, and tell what there is.

    What the killed one asked PostgreSQL last may be carried out after its death, and be the lock: then this
    one finds it taken, and looks again as the service does.
    """
    for _ in range(LOOKS):
        if engine.dialect.name == "postgresql":
            wait_for_lock(engine)
        if serve(engine):
            break
    tell(state(engine))


def wait_for_lock(engine: Engine) -> None:
    """PostgreSQL may not have seen yet that the one which held it is dead."""
    with engine.connect() as connection:
        connection.execute(text("SELECT pg_advisory_lock(1752195957)"))
        connection.execute(text("SELECT pg_advisory_unlock(1752195957)"))


def state(engine: Engine) -> dict[str, Any]:
    with reading(engine) as session:
        waiting = len(runs.waiting(session))
        states = session.execute(text("SELECT state FROM reconciliation_event ORDER BY id")).scalars()
        counts = {name: session.scalar(text(f"SELECT count(*) FROM {name}")) for name in TABLES}
        amounts = [
            Decimal(each)
            for name in ("ledger_entry", "clearing_entry")
            for each in session.scalars(text(f"SELECT amount FROM {name}"))
        ]
        is_whole = audit.verify(session) is None
    texts = [
        StatementOut.of(read_statement(engine, SITE, account, NOVEMBER)).model_dump_json()
        for account in SITE.by_name.values()
    ]
    return {
        "statements": hashlib.sha256("\n".join(texts).encode()).hexdigest(),
        "spent": json.loads(texts[0])["spent"],
        "rows": counts,
        "waiting": waiting,
        "last": list(states)[-1],
        "balance": f"{total(amounts):f}",
        "audit": is_whole,
    }


def tell(value: Any) -> None:
    os.write(PIPE[1], json.dumps(value).encode())


# --- processes and stores ----------------------------------------------------------------------------------

PIPE = os.pipe()


def forked(what: Callable[[], None]) -> Any:
    """Do something in a process of its own; return what it told, None when it was killed."""
    pid = os.fork()
    if pid == 0:
        try:
            what()
        except BaseException as error:  # noqa: BLE001 - told by the exit code
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(1)
        os._exit(0)
    descriptor = os.pidfd_open(pid)
    if not select.select([descriptor], [], [], LIMIT)[0]:
        os.kill(pid, signal.SIGKILL)
        raise SystemExit(f"a process did not end within {LIMIT:g} seconds")
    os.close(descriptor)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code not in (0, -signal.SIGKILL, -signal.SIGPROF):
        raise SystemExit(f"a process ended with {code}")
    return json.loads(os.read(PIPE[0], 1 << 16)) if select.select([PIPE[0]], [], [], 0)[0] else None


class File:
    """SQLite: a store is a file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.engine = connect(f"sqlite:///{folder}/store.sqlite")

    def keep(self) -> None:
        shutil.copy(self._folder / "store.sqlite", self._folder / "kept")

    def restore(self) -> None:
        for path in self._folder.glob("store.sqlite*"):
            path.unlink()
        shutil.copy(self._folder / "kept", self._folder / "store.sqlite")


class Database:
    """PostgreSQL: a store is a database; as it was is beside it, in another schema.

    Copies of a whole database cost more than all the rest.
    """

    def __init__(self, url: str) -> None:
        with psycopg.connect(url, autocommit=True) as admin:
            # The server may be that of another test which ran this program.
            admin.execute("DROP DATABASE IF EXISTS killed WITH (FORCE)")
            admin.execute("CREATE DATABASE killed")
        place = url.replace("/postgres?", "/killed?")
        self.engine = connect(place)
        self._admin = psycopg.connect(place, autocommit=True)
        # Neither append-only tables nor references shall keep us from putting back what was there.
        self._admin.execute("SET session_replication_role = replica")

    def keep(self) -> None:
        tables = self._asked("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        self._asked("CREATE SCHEMA kept")
        back = [f"LOCK TABLE {', '.join(name for (name,) in tables)}"]
        for (name,) in tables:
            self._asked(f"CREATE TABLE kept.{name} AS TABLE {name}")
            back += [f"DELETE FROM {name}", f"INSERT INTO {name} OVERRIDING SYSTEM VALUE TABLE kept.{name}"]
        for (name,) in self._asked("SELECT sequencename FROM pg_sequences WHERE schemaname = 'public'"):
            for value, called in self._asked(f"SELECT last_value, is_called FROM {name}"):
                back.append(f"SELECT setval('{name}', {value}, {called})")
        self._back = "; ".join(["BEGIN", *back, "COMMIT"])

    def restore(self) -> None:
        """Waits for the transactions of those who are dead."""
        self._admin.execute(self._back)

    def _asked(self, query: str) -> list[Any]:
        cursor = self._admin.execute(query)
        return cursor.fetchall() if cursor.description else []


def prepare() -> None:
    """What each process would do first; nothing that starts a thread, which would not be forked."""
    configure_mappers()
    gc.collect()
    gc.freeze()
    gc.disable()


def main(url: str, at_statements: int, at_times: int, seed: int, folder: Path) -> None:
    prepare()
    dice = random.Random(seed)
    store = File(folder) if url.startswith("sqlite") else Database(url)
    forked(lambda: begin(store.engine))
    store.keep()
    most = forked(lambda: killed(store.engine, Point()))
    expected = forked(lambda: again(store.engine))
    points = [Point(statement=dice.randint(1, most["statements"])) for _ in range(at_statements)]
    times = (Point(seconds=dice.uniform(0.001, most["seconds"])) for _ in range(4 * at_times))
    wrong, count = [], 0
    for point in itertools.chain(points, times):
        store.restore()
        count += forked(partial(killed, store.engine, point)) is None
        found = forked(lambda: again(store.engine))
        if found != expected:
            wrong.append({**asdict(point), "found": found})
        if count == at_statements + at_times:
            break
    print(json.dumps({"expected": expected, "most": most, "killed": count, "wrong": wrong}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
