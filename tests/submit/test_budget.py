"""The budget, asked over real HTTP; whatever answers there, nobody waits for it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from hpctools.errors import SubmitError
from hpctools.submit import budget
from hpctools.submit.budget import Budget, ask_budget, check_budget
from hpctools.submit.prices import find_source, look

OUTLOOK = {"left": "-12.50", "currency": "USD", "last": "2026-11-30", "spent": "62.50"}


class Service:
    """An API on a free port that answers as it is told, and keeps what it was asked."""

    def __init__(self) -> None:
        self.status, self.body, self.delay = 200, json.dumps(OUTLOOK).encode(), threading.Event()
        self.delay.set()
        self.late = False
        self.asked: list[tuple[str, str]] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                service.asked.append((self.path, self.headers.get("Authorization", "")))
                if not service.delay.wait(30) or service.late:
                    return
                self.send_response(service.status)
                self.send_header("Content-Length", str(len(service.body)))
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                self.end_headers()
                self.wfile.write(service.body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()


@pytest.fixture
def service() -> Iterator[Service]:
    found = Service()
    yield found
    found.delay.set()
    found.server.shutdown()
    found.thread.join()
    found.server.server_close()


def environment(tmp_path: Path, address: str) -> dict[str, str]:
    (tmp_path / "token").write_text("s3cret\n")
    return {"HPCTOOLS_API": address, "HPCTOOLS_API_TOKEN_FILE": str(tmp_path / "token")}


def test_what_is_left_is_asked_for_with_the_token(tmp_path, service):
    found = ask_budget("nlp/lab a", environment(tmp_path, service.address + "/api/"))
    assert found == Budget("nlp/lab a", Decimal("-12.50"), "USD", "2026-11-30")
    assert service.asked == [("/api/v1/accounts/nlp%2Flab%20a/outlook", "Bearer s3cret")]


def test_an_account_in_capitals_is_the_same_one(tmp_path, service):
    """Slurm ignores their case, and charges it."""
    assert ask_budget("NLP-Lab-A", environment(tmp_path, service.address)) is not None
    source = find_source({**environment(tmp_path, service.address), "XDG_CACHE_HOME": str(tmp_path)})
    assert source is not None
    assert look(source, "NLP-LAB-A", wait=30.0).outlook is not None
    assert {path for path, _ in service.asked if "accounts" in path} == {"/v1/accounts/nlp-lab-a/outlook"}


@pytest.mark.parametrize(
    ("status", "body"),
    [(404, b"{}"), (302, json.dumps(OUTLOOK).encode()), (200, b"nonsense"), (200, b'{"left": null}'),
     (200, b'{"left": "NaN", "currency": "USD", "last": "2026-11-30"}'), (200, b"[]"), (500, b"")],
)  # fmt: skip
def test_an_answer_that_is_none_is_no_budget(tmp_path, service, status, body):
    service.status, service.body = status, body
    assert ask_budget("nlp", environment(tmp_path, service.address)) is None


def test_nobody_waits_for_an_api_that_is_slow_or_away(tmp_path, service, monkeypatch):
    monkeypatch.setattr(budget, "SECONDS", 0.2)
    service.delay.clear()
    service.late = True
    begin = time.monotonic()
    assert ask_budget("nlp", environment(tmp_path, service.address)) is None
    assert ask_budget("nlp", environment(tmp_path, "http://127.0.0.1:1")) is None
    assert time.monotonic() - begin < 5


def test_without_an_api_a_token_or_a_safe_way_nothing_is_asked(tmp_path, service):
    given = environment(tmp_path, service.address)
    assert ask_budget("nlp", {**given, "HPCTOOLS_API": ""}) is None
    assert ask_budget("nlp", {**given, "HPCTOOLS_API_TOKEN_FILE": str(tmp_path / "none")}) is None
    assert ask_budget("nlp", {**given, "HPCTOOLS_API": "http://api.example.org"}) is None
    assert service.asked == []


def test_a_run_without_money_is_refused_and_says_whom_to_ask():
    check_budget(Budget("nlp", Decimal("0.01"), "USD", "2026-11-30"))
    with pytest.raises(SubmitError) as caught:
        check_budget(Budget("nlp", Decimal("-12.50"), "USD", "2026-11-30"))
    assert str(caught.value) == (
        "account nlp has -12.50 USD left of its budget until 2026-11-30; charge another account (--account), "
        "or ask the head of its department"
    )
