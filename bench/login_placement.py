"""Where 200 people a second are to log in: the service asked over HTTP, on SQLite and on PostgreSQL."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

from api.db.engine import connect
from api.db.login_store import LoginStore
from api.db.migrate import upgrade
from api.services import tokens
from api.services.login_reports import OpenSession, Report, take
from api.services.login_rules import Rules
from bench.budget_client import Questions
from bench.budget_load import CLIENTS, RATE, Load, asked, load_of, processor_seconds, served
from bench.budget_postgres import postgres
from hpctools.site import load

NODES, SESSIONS = 50, 40
SITE = Path(__file__).resolve().parent.parent / "slurm-conf/examples/university/site.yaml"
SECONDS, QUICK_SECONDS = 30, 5


def placements(quick: bool) -> list[Load]:
    """Ask both stores at 200 a second, each for somebody else; 50 nodes have 40 sessions each."""
    with tempfile.TemporaryDirectory(prefix="hpctools-login-") as name, postgres() as server:
        folder = Path(name)
        urls = (f"sqlite:///{folder}/login.sqlite", server.database("login"))
        return [_asked_at(url, folder, QUICK_SECONDS if quick else SECONDS) for url in urls]


def _asked_at(url: str, folder: Path, seconds: int) -> Load:
    secret = _filled(url, hold=seconds + 60)
    bodies = tuple(json.dumps({"user": f"user{number}"}) for number in range(RATE * seconds))
    paths = ("/v1/login/sessions",) * len(bodies)
    header = f"Authorization: Bearer {secret}"
    with served(url, SITE, folder) as (port, service):
        # Connections, statements and the site's rules are made ready by the first ones.
        asked(Questions(port, header, paths[:CLIENTS], RATE, CLIENTS, bodies[:CLIENTS]))
        before = processor_seconds(service)
        took = asked(Questions(port, header, paths, RATE, CLIENTS, bodies))
        busy = processor_seconds(service) - before
    return load_of(f"placement, {url.partition(':')[0]}", took, busy)


def _filled(url: str, hold: int) -> str:
    """A store with nodes that tell nothing for so long that they count as well all the while."""
    engine, now = connect(url), int(time.time())
    upgrade(engine)
    store, rules = LoginStore(engine, lambda: now + hold), Rules.of(load(SITE))
    for number in range(NODES):
        node = f"login-{number:02}"
        sessions = tuple(_session(number, each) for each in range(SESSIONS))
        report = Report(node, "bench-agent", 1, 0.0, "", 32, 0.2, 0.3, False, False, sessions)
        take(store, engine, rules, report, "bench")
    secret = tokens.create(engine, "bench", "root", now, None, ("login",))
    engine.dispose()
    return secret


def _session(node: int, number: int) -> OpenSession:
    return OpenSession(f"{number + 1}-1", f"known{node}-{number}", "ssh", "192.0.2.7", 60.0, False)
