from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen
from uuid import uuid4

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from moto.server import ThreadedMotoServer
from sqlalchemy import Engine, create_engine

from api.app import create_app
from api.auth.principal import Scope
from api.db.engine import connect
from api.db.migrate import upgrade
from api.routers.enforcement import get_slurm
from api.services import tokens
from api.services.reconcile import reconcile
from api.services.site_file import SiteFile
from api.settings import Settings
from hpctools.budget import cost_explorer
from hpctools.budget.bill import BillRow
from hpctools.budget.enforcement import Live
from hpctools.budget.jobs import JobWindow
from hpctools.budget.month import Month, day_start
from hpctools.budget.tree import BudgetSite
from hpctools.sandbox.bill import METRIC, cost_and_usage
from hpctools.site import load
from hpctools.slurm.accounting import JobRecord
from hpctools.slurm.run import run
from tests.api.campus import campus

__all__ = ["campus"]

UNIVERSITY = Path(__file__).parents[2] / "slurm-conf/examples/university/site.yaml"
NOVEMBER = Month(2026, 11)
NOW = int(datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc).timestamp())


@pytest.fixture
def now() -> int:
    """Noon of 21 November 2026, UTC."""
    return NOW


@pytest.fixture
def november() -> Month:
    return NOVEMBER


@pytest.fixture(scope="session")
def site_path() -> Path:
    return UNIVERSITY


@pytest.fixture(scope="session")
def site() -> BudgetSite:
    return SiteFile(UNIVERSITY, METRIC).current()


# --- databases: the same tests run on both ---------------------------------------------------------------


@dataclass(frozen=True)
class Postgres:
    """A private PostgreSQL server that listens on a Unix socket only."""

    socket: Path
    control: tuple[str, ...]

    def start(self) -> None:
        log, options = self.socket.parent / "log", f"-k {self.socket} -c listen_addresses='' {_FAST}"
        run([*self.control, "-l", str(log), "-o", options, "-w", "start"], timeout=60, cwd=self.socket.parent)

    def stop(self) -> None:
        """At once, as if it had crashed; whatever it was at."""
        run([*self.control, "-m", "immediate", "stop"], timeout=60, check=False, cwd=self.socket.parent)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self.socket}"

    def execute(self, statement: str) -> None:
        engine = create_engine(self.url().replace("postgresql:", "postgresql+psycopg:"))
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(statement)
        engine.dispose()


_FAST = "-c fsync=off -c autovacuum=off"


def _binaries() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        pytest.fail("PostgreSQL is missing: apt-get install --no-install-recommends postgresql")
    return found[-1].parent


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with _private_postgres() as server:
        yield server


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    """For a test that stops it."""
    with _private_postgres() as server:
        yield server


@contextmanager
def _private_postgres() -> Iterator[Postgres]:
    """PostgreSQL refuses to run as root: it runs as `postgres` then."""
    binaries = _binaries()
    folder = Path(tempfile.mkdtemp(prefix="hpctools-pg-"))
    as_postgres = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    if as_postgres:
        shutil.chown(folder, "postgres", "postgres")
    data, socket = folder / "data", folder / "run"
    server = Postgres(socket, (*as_postgres, str(binaries / "pg_ctl"), "-D", str(data)))
    try:
        initdb = [
            str(binaries / "initdb"),
            "-D",
            str(data),
            "-U",
            "postgres",
            "-A",
            "trust",
            "--no-sync",
            "-E",
            "UTF8",
        ]
        run([*as_postgres, *initdb, "--no-locale"], timeout=60, cwd=folder)
        run([*as_postgres, "mkdir", str(socket)], timeout=10, cwd=folder)
        server.start()
        yield server
    finally:
        try:
            server.stop()
        finally:
            shutil.rmtree(folder)


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/store.sqlite"
        return
    server: Postgres = request.getfixturevalue("postgres")
    name = f"t{uuid4().hex}"
    server.execute(f"CREATE DATABASE {name}")
    yield server.url(name)
    server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """A database with its tables."""
    engine = connect(database_url)
    upgrade(engine)
    yield engine
    engine.dispose()


# --- a month of a university -----------------------------------------------------------------------------


@dataclass
class Bills:
    """A bill that tests may restate."""

    months: dict[Month, tuple[BillRow, ...]]
    name: str = "aws-ce"

    def rows(self, month: Month) -> Iterable[BillRow]:
        return self.months.get(month, ())


@dataclass
class Jobs:
    """slurmdbd's records that tests may change."""

    records: list[JobRecord] = field(default_factory=list)

    def windows(self, month: Month, now: int) -> Iterable[JobWindow]:
        return [JobWindow.of_records(month.start, month.end, self.records)]


@pytest.fixture
def bills() -> Bills:
    answer = cost_and_usage(load(UNIVERSITY), NOVEMBER, NOW, {})
    return Bills({NOVEMBER: cost_explorer.parse([answer], METRIC, "hpctools:node-group")})


@pytest.fixture
def jobs() -> Jobs:
    return Jobs(list(_university_jobs()))


@pytest.fixture
def reconcile_november(engine: Engine, site: BudgetSite, bills: Bills, jobs: Jobs) -> Callable[..., Any]:
    def carry_out(now: int = NOW) -> Any:
        return reconcile(engine, site, NOVEMBER, bills, jobs, now)

    return carry_out


_PEOPLE = (
    *(("nlp1", "nlp-lab-a", "nlp"),) * 4,
    *(("nlp2", "nlp-lab-a", "nlp"),) * 3,
    *(("nlp3", "nlp-lab-b", "nlp"),) * 3,
    *(("cv1", "cv-lab-a", "cv"),) * 3,
    ("cv2", "cv-lab-a", "cv"),
    ("dl1", "dl-lab-a", "dl"),
    ("nlp-head", "nlp", "nlp"),
)


def _university_jobs() -> Iterator[JobRecord]:
    """Three weeks of jobs, one after the other on half a node each; fewer at weekends. Always the same."""
    dice = random.Random(20261101)
    number = 0
    lanes = [(f"reserved-{n}", half) for n in range(1, 5) for half in range(2)] + [
        ("shared-1", 0),
        ("shared-2", 0),
    ]
    for node, _ in lanes:
        clock = day_start(date(2026, 10, 31)) + dice.randrange(20_000)
        while clock < NOW:
            weekend = datetime.fromtimestamp(clock, timezone.utc).weekday() >= 5
            clock += dice.randrange(600, 40_000 if weekend else 9_000)
            end = clock + dice.randrange(1_800, 36_000)
            number += 1
            yield _university_job(number, node, clock, end if end <= NOW else None, dice)
            clock = end


def _university_job(number: int, node: str, start: int, end: int | None, dice: random.Random) -> JobRecord:
    user, account, partition = dice.choice(_PEOPLE)
    return JobRecord(
        cluster="uni-gpu",
        dbindex=number,
        job_id=100 + number,
        user=user,
        account=account,
        partition=partition,
        qos="medium",
        submitted=start - 60,
        start=start,
        end=end,
        suspended_seconds=0,
        state="RUNNING" if end is None else dice.choice(["COMPLETED", "COMPLETED", "FAILED", "CANCELLED"]),
        cpus=24 if node.startswith("shared") else 48,
        memory_mb=1000,
        gpus=2 if node.startswith("shared") else 4,
        shards=0,
        nodes=node,
        reservation="",
    )


# --- AWS ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def moto_server() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def aws(moto_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """An AWS without a past; returns its address."""
    urlopen(Request(f"{moto_server}/moto-api/reset", method="POST"), timeout=10).close()
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto_server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return moto_server


# --- the service -----------------------------------------------------------------------------------------


@dataclass
class Service:
    """The application over a database, and its tokens."""

    app: FastAPI
    engine: Engine

    def token(
        self,
        account: str | None,
        expires_at: int | None = None,
        now: int = NOW,
        scopes: tuple[Scope, ...] = ("read",),
        name: str = "",
        user: str | None = None,
    ) -> str:
        named = name or f"t-{uuid4().hex}"
        return tokens.create(self.engine, named, account, now, expires_at, scopes, user)

    def client(self, account: str | None, *scopes: Scope, user: str | None = None) -> TestClient:
        """A program that holds a token: an administrator's for None, otherwise one that reads.

        Args:
            user: whose own it is.
        """
        client = self.anonymous()
        token = self.token(account, scopes=scopes or ("read",), user=user)
        client.headers["Authorization"] = f"Bearer {token}"
        return client

    def browser(self, account: str | None, *scopes: Scope) -> TestClient:
        """A browser that has signed in; its token reads unless it is an administrator's."""
        client = self.anonymous()
        client.headers["Accept"] = "text/html"
        token = self.token(account, scopes=scopes or ("read",))
        assert client.post("/login", data={"token": token}).status_code == 303
        return client

    def anonymous(self) -> TestClient:
        return TestClient(self.app, follow_redirects=False, raise_server_exceptions=False)


class QuietSlurm:
    """A cluster in which nothing waits and nothing was taken; tests/system has the real one."""

    def live(self, accounts: Iterable[str]) -> Live:
        return Live({}, {})


@contextmanager
def _service(url: str, engine: Engine, site_path: Path) -> Iterator[Service]:
    app = create_app(
        Settings(database_url=url, site=site_path, reconcile_every=0, watch_every=0), clock=lambda: NOW
    )
    app.dependency_overrides[get_slurm] = QuietSlurm
    yield Service(app, engine)
    app.state.context.engine.dispose()


@pytest.fixture
def serve_at(site_path: Path) -> Callable[[str, Engine], AbstractContextManager[Service]]:
    """The service over any database that has its tables."""
    return lambda url, engine: _service(url, engine, site_path)


@pytest.fixture
def service(database_url: str, engine: Engine, site_path: Path) -> Iterator[Service]:
    with _service(database_url, engine, site_path) as service:
        yield service


@pytest.fixture
def sqlite_service(tmp_path: Path, site_path: Path) -> Iterator[Service]:
    """For what does not depend on the database."""
    url = f"sqlite:///{tmp_path}/service.sqlite"
    engine = connect(url)
    upgrade(engine)
    with _service(url, engine, site_path) as service:
        yield service
    engine.dispose()


@pytest.fixture
def november_service(sqlite_service: Service, site: BudgetSite, bills: Bills, jobs: Jobs) -> Service:
    """The service with the university's November reconciled."""
    reconcile(sqlite_service.engine, site, NOVEMBER, bills, jobs, NOW)
    return sqlite_service
