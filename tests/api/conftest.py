from __future__ import annotations

import random
import shutil
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
from sqlalchemy import Engine

from api.app import create_app
from api.auth.principal import Scope
from api.db.engine import connect
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
from tests.api.campus import campus
from tests.api.databases import (
    database_url,
    engine,
    own_postgres,
    postgres,
    postgresql_tables,
    sqlite_tables,
)

__all__ = [
    "campus",
    "database_url",
    "engine",
    "own_postgres",
    "postgres",
    "postgresql_tables",
    "sqlite_tables",
]

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
    return _university_bills()


def _university_bills() -> Bills:
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
    app.state.limits_of = lambda cluster: QuietSlurm()
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
def sqlite_service(tmp_path: Path, site_path: Path, sqlite_tables: Path) -> Iterator[Service]:
    """For what does not depend on the database."""
    with _sqlite_service(tmp_path, site_path, sqlite_tables) as service:
        yield service


@pytest.fixture(scope="session")
def november_store(site: BudgetSite, sqlite_tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the university's November reconciled, to copy."""
    path = tmp_path_factory.mktemp("november") / "store.sqlite"
    shutil.copyfile(sqlite_tables, path)
    engine = connect(f"sqlite:///{path}")
    reconcile(engine, site, NOVEMBER, _university_bills(), Jobs(list(_university_jobs())), NOW)
    engine.dispose()
    return path


@pytest.fixture
def november_service(tmp_path: Path, site_path: Path, november_store: Path) -> Iterator[Service]:
    """The service with the university's November reconciled."""
    with _sqlite_service(tmp_path, site_path, november_store) as service:
        yield service


@contextmanager
def _sqlite_service(folder: Path, site_path: Path, store: Path) -> Iterator[Service]:
    shutil.copyfile(store, folder / "service.sqlite")
    url = f"sqlite:///{folder}/service.sqlite"
    engine = connect(url)
    with _service(url, engine, site_path) as service:
        yield service
    engine.dispose()
