"""Notices of a cloud, from a stand-in of the instance metadata service that speaks IMDSv2 over HTTP."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest
from metadata_service import Handler, Service, serving, spot_at

from hpctools.elastic import notices
from hpctools.elastic.notices import REBALANCE_PATH, SPOT_PATH, Lookout, Metadata, NoService, Notice


@pytest.fixture
def service() -> Iterator[Service]:
    with serving() as server:
        yield server


def test_nothing_is_announced(service: Service) -> None:
    assert Metadata(service.endpoint).notice() is None
    assert service.requests == [
        "PUT /latest/api/token 200",
        f"GET {SPOT_PATH} 404",
        f"GET {REBALANCE_PATH} 404",
    ]


def test_an_interruption_has_its_time_and_is_more_urgent_than_a_rebalance(service: Service) -> None:
    metadata = Metadata(service.endpoint)
    service.documents[REBALANCE_PATH] = json.dumps({"noticeTime": "2026-11-21T08:22:00Z"})
    assert metadata.notice() == Notice("rebalance")
    service.documents[SPOT_PATH] = json.dumps({"action": "stop", "time": "2026-11-21T08:24:00Z"})
    expected = datetime(2026, 11, 21, 8, 24, tzinfo=timezone.utc).timestamp()
    assert metadata.notice() == Notice("spot", expected)
    service.documents[SPOT_PATH] = '{"action": "terminate"}'
    assert metadata.notice() == Notice("spot", None), "without a time it is still a notice"


def test_a_token_that_has_ended_is_renewed(service: Service) -> None:
    metadata = Metadata(service.endpoint)
    assert metadata.notice() is None
    service.tokens.clear()
    service.documents[REBALANCE_PATH] = "{}"
    assert metadata.notice() == Notice("rebalance")
    assert [each for each in service.requests if each.startswith("PUT")] == ["PUT /latest/api/token 200"] * 2


def test_somebody_else_on_that_address_is_no_service(service: Service) -> None:
    service.RequestHandlerClass = type("Other", (Handler,), {"do_PUT": lambda self: self._answer(403, "no")})
    with pytest.raises(NoService):
        Metadata(service.endpoint).notice()
    with pytest.raises(NoService):
        Metadata("http://127.0.0.1:1").notice()


@pytest.fixture
def no_collection() -> Iterator[None]:
    """What other tests left behind is not finalised where the stack has no room for it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize(
    "body", ["<html>Please log in</html>", "", "[]", '"terminate"', "null", "[" * 16000, '{"a":' * 3000]
)
@pytest.mark.parametrize("path", [SPOT_PATH, REBALANCE_PATH])
def test_an_answer_that_is_no_document_is_no_notice(service: Service, path: str, body: str) -> None:
    """Who answers every question with its own page would have all nodes leave at once."""
    service.documents[path] = body
    with pytest.raises(NoService):
        Metadata(service.endpoint).notice()


@pytest.mark.parametrize("time", ["soon", "", 7, None, [], "0001-01-01T00:00:00", "9999-12-31T23:59:59"])
def test_an_interruption_at_a_time_that_is_none_is_still_one(service: Service, time: Any) -> None:
    service.documents[SPOT_PATH] = json.dumps({"action": "terminate", "time": time})
    notice = Metadata(service.endpoint).notice()
    assert notice is not None
    assert notice.what == "spot"


def test_the_lookout_tells_once_and_again_when_it_changes(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[dict[str, Any]] = []
    environ = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": service.endpoint}
    lookout = Lookout(lambda kind, **fields: said.append({"kind": kind, **fields}), environ, 0.01)
    service.documents[REBALANCE_PATH] = "{}"

    async def scene() -> None:
        keeping = asyncio.ensure_future(lookout.keep())
        try:
            await until(lambda: len(service.requests) > 12)
            assert said == [{"kind": "notice", "what": "rebalance", "seconds": None}]
            service.documents[SPOT_PATH] = spot_at(120)
            await until(lambda: len(said) > 1)
            monkeypatch.setattr(notices, "REPEAT_SECONDS", 0.0)
            await until(lambda: len(said) > 2)
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])

    async def until(condition: Any) -> None:
        deadline = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)

    asyncio.run(scene())
    assert [each["what"] for each in said[1:3]] == ["spot", "spot"], "told again to who may have come since"
    assert said[1]["seconds"] == pytest.approx(120, abs=5)


def test_where_the_node_has_no_thread_left_for_now_a_notice_is_still_seen(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Any] = []
    environ = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": service.endpoint}
    lookout = Lookout(lambda kind, **fields: said.append(fields["what"]), environ, 0.01)
    service.documents[REBALANCE_PATH] = "{}"
    start, refusals = threading.Thread.start, ["can't start new thread"]

    def refuse(thread: threading.Thread) -> None:
        if refusals and thread.name.startswith("elastic"):
            raise RuntimeError(refusals.pop())
        start(thread)

    async def scene() -> None:
        monkeypatch.setattr(threading.Thread, "start", refuse)
        keeping = asyncio.ensure_future(lookout.keep())
        try:
            while not (said or keeping.done()):
                await asyncio.sleep(0.01)
        finally:
            keeping.cancel()

    asyncio.run(scene())
    assert (said, refusals) == (["rebalance"], [])


@pytest.mark.parametrize(
    "environ",
    [
        {"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1"},
        {"AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://{'x' * 70}"},
        {"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://no host"},
        {"AWS_EC2_METADATA_DISABLED": "true"},
        {"AWS_EC2_METADATA_DISABLED": "true", "AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://h:port"},
    ],
)
def test_where_there_is_no_service_it_ends(
    environ: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor is anything said of it: on most machines there is none."""
    lookout = Lookout(lambda *_, **__: pytest.fail("there is nothing to tell"), environ, 0.01)
    asyncio.run(asyncio.wait_for(lookout.keep(), 10))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("endpoint", ["http://h:port", "http://h:99999", "h:-1", "http://[::1"])
def test_an_endpoint_that_is_no_url_is_told_once_and_ends_nothing(
    endpoint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    environ = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": endpoint}
    lookout = Lookout(lambda *_, **__: pytest.fail("there is nothing to tell"), environ, 0.01)
    asyncio.run(asyncio.wait_for(lookout.keep(), 10))
    said = capsys.readouterr().err
    assert said.startswith(f"elastic: AWS_EC2_METADATA_SERVICE_ENDPOINT={endpoint} is no URL (")
    assert len(said.splitlines()) == 1


def test_a_service_that_is_away_for_a_while_is_asked_again(service: Service) -> None:
    """Once it has answered, silence is a fault of the moment."""
    said: list[Any] = []
    lookout = Lookout(
        lambda kind, **fields: said.append(fields),
        {"AWS_EC2_METADATA_SERVICE_ENDPOINT": service.endpoint},
        0.01,
    )

    async def scene() -> None:
        keeping = asyncio.ensure_future(lookout.keep())
        try:
            while len(service.requests) < 6:  # the first look is complete
                await asyncio.sleep(0.01)
            service.RequestHandlerClass = type(
                "Ill", (Handler,), {"do_GET": lambda self: self._answer(500, "")}
            )
            begun = len(service.requests)
            while len(service.requests) < begun + 8:
                await asyncio.sleep(0.01)
            service.RequestHandlerClass = Handler
            service.documents[SPOT_PATH] = spot_at(60)
            while not said:
                await asyncio.sleep(0.01)
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])

    asyncio.run(asyncio.wait_for(scene(), 20))
    assert said[0]["what"] == "spot"
