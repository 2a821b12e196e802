"""`hpctools-api reconcile`, killed after all of its rows and before the end of its transaction."""

from __future__ import annotations

import json
import os
import select
import sys
from pathlib import Path
from typing import Any

import pytest

from api.db.engine import connect
from hpctools.sandbox.bill import seed
from hpctools.site import load
from hpctools.slurm.run import run, start

_STOPPED = """
import os
import signal
import api.services.reconcile as service

post = service.post

def stop(*arguments):
    post(*arguments)
    os.write(1, b"posted")
    signal.pause()

service.post = stop
from api.commands.main import main
main(["reconcile", "--month", "2026-11"])
"""
_LINE = (
    "{0}|uni-gpu|{0}|cv1|cv-lab-a|cv|medium|2026-11-03T12:00:00|2026-11-03T12:00:00|2026-11-0{1}T18:00:00|00:00:00|"
    "COMPLETED|cpu=96,gres/gpu=8,mem=1G,node=1|reserved-1|"
)
_POSTED = ("attribution_run", "ledger_entry", "clearing_entry", "attributed_day")


@pytest.fixture
def environment(aws: str, tmp_path: Path, site_path: Path, monkeypatch: pytest.MonkeyPatch, now: int) -> None:
    lines = "\n".join(_LINE.format(number, 3 + number) for number in range(1, 5))
    sacct = tmp_path / "sacct"
    sacct.write_text(f"#!/bin/sh\ncat <<'END'\n{lines}\nEND\n")
    sacct.chmod(0o755)
    monkeypatch.setenv("HPCTOOLS_API_SITE", str(site_path))
    monkeypatch.setenv("HPCTOOLS_API_SACCT", str(sacct))
    seed(load(site_path), aws, now)


def api(url: str, *arguments: str) -> str:
    environment = dict(os.environ) | {"HPCTOOLS_API_DATABASE_URL": url}
    return run([sys.executable, "-m", "api", *arguments], timeout=60, env=environment).stdout


def statements(url: str) -> list[Any]:
    answers = [
        json.loads(api(url, "statement", "--month", "2026-11", "--account", account, "--json"))
        for account in ("root", "cv-lab-a")
    ]
    return [answer | {"as_of": None} for answer in answers]


def kill_in_the_middle(url: str) -> None:
    reader, writer = os.pipe()
    environment = dict(os.environ) | {"HPCTOOLS_API_DATABASE_URL": url}
    process = start([sys.executable, "-c", _STOPPED], stdout=writer, env=environment)
    os.close(writer)
    try:
        ready, _, _ = select.select([reader], [], [], 60)
        assert ready
        assert os.read(reader, 100) == b"posted"
    finally:
        process.kill()
        process.wait(20)
        os.close(reader)


@pytest.mark.usefixtures("environment")
@pytest.mark.slow
def test_nothing_is_posted_and_the_next_run_makes_the_same_statements(
    database_url: str, tmp_path: Path
) -> None:
    kill_in_the_middle(database_url)
    engine = connect(database_url)
    with engine.connect() as connection:
        stored = [connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar() for table in _POSTED]
    engine.dispose()
    assert stored == [0] * len(_POSTED)

    undisturbed = f"sqlite:///{tmp_path}/undisturbed.sqlite"
    # The bill and the jobs were there already.
    assert "0 bill days, 0 jobs" in api(database_url, "reconcile", "--month", "2026-11")
    assert "21 bill days, 4 jobs" in api(undisturbed, "reconcile", "--month", "2026-11")
    assert statements(database_url) == statements(undisturbed)
