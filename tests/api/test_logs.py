from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from api.logs import REQUEST_ID, JsonFormatter, request_id


def line(message: str, *arguments: Any, **extra: Any) -> dict[str, Any]:
    record = logging.makeLogRecord(
        {
            "name": "x",
            "levelname": "INFO",
            "msg": message,
            "args": arguments,
            "created": 1_795_262_400.5,
            **extra,
        }
    )
    text = JsonFormatter().format(record)
    assert "\n" not in text
    found: dict[str, Any] = json.loads(text)
    return found


def test_a_line_is_one_object_and_nobody_can_forge_another() -> None:
    mark = REQUEST_ID.set("r-1")
    try:
        assert line("%s failed", 'a\n{"level": "error"}', status=500) == {
            "time": "2026-11-21T12:00:00.500+00:00",
            "level": "info",
            "logger": "x",
            "message": 'a\n{"level": "error"} failed',
            "request_id": "r-1",
            "status": 500,
        }
    finally:
        REQUEST_ID.reset(mark)


def test_a_traceback_is_part_of_its_line() -> None:
    try:
        raise ZeroDivisionError("here")
    except ZeroDivisionError:
        found = line("bug", exc_info=sys.exc_info())
    assert "ZeroDivisionError: here" in found["exception"]
    assert "request_id" not in found


@pytest.mark.parametrize("given", ["abc", "A.b_c-9", "x" * 64])
def test_a_plain_id_is_kept(given: str) -> None:
    assert request_id(given) == given


@pytest.mark.parametrize("given", [None, "", "a b", "x" * 65, "a\n", "é", '"}'])
def test_others_get_one_of_ours(given: str | None) -> None:
    assert request_id(given) != request_id(given)


def test_a_request_is_told_without_its_secrets(sqlite_service: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    client = sqlite_service.client(None)
    secret = client.headers["Authorization"].split()[1]
    answer = client.get("/v1/accounts?token=hidden", headers={"X-Request-ID": "mine"})
    assert answer.headers["X-Request-ID"] == "mine"
    (record,) = (record for record in caplog.records if record.name == "hpctools.access")
    told = vars(record)
    assert (told["method"], told["path"], told["status"]) == ("GET", "/v1/accounts", 422)
    # What the client of the test writes into its log is its own.
    ours = [JsonFormatter().format(record) for record in caplog.records if record.name.startswith("hpctools")]
    assert len(ours) == 1
    assert "hidden" not in ours[0]
    assert secret not in ours[0]
