"""Clocks that are minutes apart: of replicas of the service, and of login nodes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine

from api.db import login_store
from api.db.engine import connect
from api.db.login_store import LoginStore
from api.db.migrate import upgrade
from api.services.login_leases import Asked, open_lease, sessions
from api.services.login_rules import Rules
from hpctools.login.agent.load import Counters, Load
from hpctools.login.agent.reporting import Reporter, Self
from hpctools.login.agent.sample import Sample
from hpctools.login.agent.sessions import open_sessions
from hpctools.site import load
from tests.login.node_processes import connection

HOUR = 3600
APART = 7 * 60


@pytest.fixture
def books(postgres: Any, tmp_path: Path) -> Iterator[Engine]:
    """A database server, whose clock is this machine's."""
    postgres.execute("DROP DATABASE IF EXISTS clocks")
    postgres.execute("CREATE DATABASE clocks")
    engine = connect(postgres.url("clocks"))
    upgrade(engine)
    yield engine
    engine.dispose()


@contextmanager
def clock_off_by(seconds: float) -> Iterator[None]:
    """On a machine whose clock is wrong."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(login_store, "time", SimpleNamespace(time=lambda: time.time() + seconds))
        yield


def replica(books: Engine, off_by: float) -> LoginStore:
    return LoginStore(books, lambda: int(time.time() + off_by))


def test_replicas_whose_clocks_are_apart_count_together(books: Engine, site_path: Path) -> None:
    """The database's clock counts: no lease is stale for one of them, and none is from tomorrow."""
    rules = Rules.of(load(site_path))
    for number in range(rules.per_user):
        off_by = (-APART, APART)[number % 2]
        with clock_off_by(off_by):
            assert open_lease(replica(books, off_by), rules, Asked("login-1", f"{number}-1", "nlp1")) is None
    for off_by in (-APART, 0, APART):
        with clock_off_by(off_by):
            refused = open_lease(replica(books, off_by), rules, Asked("login-2", "9-1", "nlp1"))
            assert refused is not None
            assert all(0 <= each.since < rules.lease_seconds for each in refused.sessions)
            assert len(sessions(replica(books, off_by), {"nlp1"})) == rules.per_user


class Line:
    """The service as an agent asks it."""

    def __init__(self, client: TestClient) -> None:
        self._client = client

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        answer = self._client.request(method, path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.mark.parametrize("off_by", [-APART, APART])
def test_a_node_whose_clock_is_off_is_up_and_its_sessions_are_as_old_as_they_are(
    sqlite_service: Any, now: int, off_by: int
) -> None:
    """It tells ages. Its boot time is off with its clock: the kernel reckons it from that."""
    processes = connection(40, "nlp1", 1001)
    boot = now - HOUR + off_by
    seen = Sample(
        7.0,
        now + off_by,
        boot,
        processes,
        open_sessions(processes, boot),
        Load(4, 0, 0),
        Counters(4, 0, 0, 1, 1),
    )
    client = sqlite_service.client("root", "login")
    heard = Reporter(Self("login-1"), Line(client), lambda: 7.0).report(seen, draining=False, unlimited=False)
    assert heard is not None
    (told,) = sqlite_service.client(None).get("/v1/login/sessions").json()["sessions"]
    assert (told["user"], told["since"]) == ("nlp1", "2026-11-21T11:00:40Z")
    (node,) = client.get("/v1/login/nodes").json()["nodes"]
    assert (node["state"], node["heard_seconds_ago"]) == ("up", 0)
