"""Where 200 people a second are to log in: the service asked over HTTP, on SQLite and on PostgreSQL."""

from __future__ import annotations

import json
import tempfile
import time
from functools import partial
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
SECONDS, QUICK_SECONDS = 30, 2
PROBES = 100
AT_MOST = 2.0
"""How much longer than meant asking may take: what a machine cannot do in time is not asked of it at all."""


def placements(quick: bool) -> list[Load]:
    """Ask both stores at 200 a second, each for somebody else; 50 nodes have 40 sessions each."""
    with tempfile.TemporaryDirectory(prefix="hpctools-login-") as name, postgres() as server:
        folder = Path(name)
        urls = (f"sqlite:///{folder}/login.sqlite", server.database("login"))
        return [_asked_at(url, folder, QUICK_SECONDS if quick else SECONDS) for url in urls]


def _asked_at(url: str, folder: Path, seconds: int) -> Load:
    secret = _filled(url, hold=20 * seconds + 300)
    with served(url, SITE, folder) as (port, service):
        questions = partial(_questions, port, f"Authorization: Bearer {secret}")
        # Connections, statements and the site's rules are made ready by the first ones.
        asked(questions("first", CLIENTS))
        at_once = asked(questions("probe", PROBES, rate=PROBES * 1000))
        count = affordable(PROBES / max(at_once.seconds), seconds)
        before = processor_seconds(service)
        took = asked(questions("user", count))
        busy = processor_seconds(service) - before
    some = "" if count == RATE * seconds else f" ({count} of {RATE * seconds}: it does not keep up)"
    return load_of(f"placement, {url.partition(':')[0]}{some}", took, busy)


def _questions(port: int, header: str, who: str, count: int, rate: int = RATE) -> Questions:
    """Each for somebody else."""
    bodies = tuple(json.dumps({"user": f"{who}{number}"}) for number in range(count))
    return Questions(port, header, ("/v1/login/sessions",) * count, rate, CLIENTS, bodies)


def affordable(possible: float, seconds: int) -> int:
    """How many are asked: all, or what a service that does not keep up answers in `AT_MOST` of the time.

    Args:
        possible: a second, when all are asked at once.
    """
    return max(PROBES, min(RATE * seconds, int(possible * AT_MOST * seconds)))


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
