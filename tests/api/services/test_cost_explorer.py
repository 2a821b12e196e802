from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from botocore.exceptions import ClientError

from api.services import cost_explorer
from api.services.cost_explorer import CostExplorer
from hpctools.budget.cost_explorer import REQUESTED, ClusterTag, parse
from hpctools.budget.month import Month
from hpctools.errors import BudgetError, SandboxError, UnreachableError
from hpctools.sandbox.bill import METRIC, cost_and_usage, queue, seed
from hpctools.site import load

TAG = "hpctools:node-group"


@pytest.fixture
def source() -> CostExplorer:
    return CostExplorer(METRIC, TAG)


def test_the_sandbox_bill_reaches_the_ingest_whatever_the_order(
    aws: str, source: CostExplorer, site_path: Path, november: Month, now: int
) -> None:
    site = load(site_path)
    seed(site, aws, now)
    for month in (november, november.previous, november):
        rows = source.rows(month)
        assert rows == parse([cost_and_usage(site, month, now, {})], METRIC, TAG)
        assert {row.estimated for row in rows} == {month == november}
    assert source.rows(november.next) == ()


def test_seeding_twice_leaves_nothing_in_the_queue(
    aws: str, source: CostExplorer, site_path: Path, november: Month, now: int
) -> None:
    site = load(site_path)
    seed(site, aws, now)
    before = source.rows(november)
    seed(site, aws, now + 3600)
    assert source.rows(november) == before
    assert source.rows(Month(2020, 1)) == ()


def test_the_sandbox_bill_goes_past_a_proxy(
    aws: str,
    source: CostExplorer,
    site_path: Path,
    november: Month,
    now: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        for name in ("http_proxy", "HTTP_PROXY"):
            patch.setenv(name, "http://127.0.0.1:9")
        seed(load(site_path), aws, now)
    assert source.rows(november)


def test_a_moto_that_hangs_up_is_an_error_of_the_sandbox() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            connection, _ = listener.accept()
            asked = b""
            while b'results"' not in asked:
                asked += connection.recv(4096)
            connection.close()

        thread = Thread(target=hang_up)
        thread.start()
        with pytest.raises(SandboxError, match="does not take a bill"):
            queue(f"http://127.0.0.1:{listener.getsockname()[1]}", {})
        thread.join(10)


def test_pages_are_followed(
    aws: str, source: CostExplorer, site_path: Path, november: Month, now: int
) -> None:
    answer = cost_and_usage(load(site_path), november, now, {})
    first, second = dict(answer), dict(answer)
    first["ResultsByTime"] = answer["ResultsByTime"][:9]
    first["NextPageToken"] = "page-2"
    second["ResultsByTime"] = answer["ResultsByTime"][9:]
    queue(aws, first)
    queue(aws, second)
    assert source.rows(november) == parse([answer], METRIC, TAG)


def test_nobody_listens(
    source: CostExplorer, november: Month, aws: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(cost_explorer, "_ATTEMPTS", 1)
    with pytest.raises(UnreachableError, match="check the network and AWS_ENDPOINT_URL"):
        source.rows(november)


def test_seeding_where_nobody_listens() -> None:
    with pytest.raises(SandboxError, match="does not take a bill"):
        queue("http://127.0.0.1:9", {})


def test_without_credentials(
    source: CostExplorer, november: Month, aws: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(BudgetError, match="there are no AWS credentials"):
        source.rows(november)


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("AccessDeniedException", "allow ce:GetCostAndUsage"),
        ("RequestChangedException", "try again"),
        ("SomethingNew", "see the AWS Cost Explorer API reference"),
    ],
)
def test_what_aws_refuses_comes_with_a_remedy(code: str, remedy: str) -> None:
    class Refusing:
        def get_cost_and_usage(self, **_: Any) -> Any:
            raise ClientError({"Error": {"Code": code, "Message": "no"}}, "GetCostAndUsage")

    with pytest.raises(BudgetError, match=remedy):
        cost_explorer._ask(Refusing(), {})


@contextmanager
def answering(
    monkeypatch: pytest.MonkeyPatch, answers: list[tuple[int, dict[str, Any]]]
) -> Iterator[list[Any]]:
    """An AWS that gives these answers one after the other; yields what it was asked."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            status, body = answers.pop(0)
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        with monkeypatch.context() as patch:
            patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
            yield asked
        server.shutdown()
        thread.join(10)


def costs(amount: str, day: str = "2026-11-01", page: str | None = None) -> tuple[int, dict[str, Any]]:
    group = {
        "Keys": [f"{TAG}$big", "x"],
        "Metrics": {
            METRIC: {"Amount": amount, "Unit": "USD"},
            "UsageQuantity": {"Amount": "1", "Unit": "N/A"},
        },
    }
    period = {"Start": day, "End": "2026-12-01"}
    result = {"TimePeriod": period, "Total": {}, "Groups": [group], "Estimated": True}
    return 200, {"ResultsByTime": [result]} | ({"NextPageToken": page} if page else {})


def refused(code: str) -> tuple[int, dict[str, Any]]:
    return 400, {"__type": code, "message": "no"}


def test_a_bill_that_changes_between_two_pages_is_read_again_from_the_first(
    aws: str, source: CostExplorer, november: Month, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = refused("RequestChangedException")
    answers = [costs("1", page="2"), changed, costs("7", page="2"), costs("8", "2026-11-02")]
    with answering(monkeypatch, answers) as asked:
        assert [row.amount for row in source.rows(november)] == [7, 8]
    assert [call.get("NextPageToken") for call in asked] == [None, "2", None, "2"]


def test_a_bill_that_never_stays_is_an_error(
    aws: str, source: CostExplorer, november: Month, monkeypatch: pytest.MonkeyPatch
) -> None:
    with answering(monkeypatch, [refused("RequestChangedException")] * 3) as asked:
        with pytest.raises(BudgetError, match="AWS changed the bill while it was read"):
            source.rows(november)
        assert len(asked) == 3


def test_too_many_requests_are_waited_for(
    aws: str, source: CostExplorer, november: Month, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [refused("LimitExceededException"), refused("ThrottlingException"), costs("5")]
    with answering(monkeypatch, answers) as asked:
        assert [row.amount for row in source.rows(november)] == [5]
    assert len(asked) == 3


def test_a_month_that_aws_has_no_more(
    aws: str, source: CostExplorer, november: Month, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        answering(monkeypatch, [refused("BillExpirationException")]),
        pytest.raises(BudgetError, match="ask for a month within the last 14"),
    ):
        source.rows(november)


def test_kinds_of_money_are_asked_for_one_by_one(
    aws: str, november: Month, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = CostExplorer(METRIC, TAG, ClusterTag("ClusterName", "uni"), by_charge=True)
    amounts = dict(zip(REQUESTED, ("100", "-10", "-1", "8", "3", "5"), strict=True))
    with answering(monkeypatch, [costs(amount) for amount in amounts.values()]) as asked:
        rows = source.rows(november)
    assert {row.charge: str(row.amount) for row in rows} == amounts
    assert {row.cluster for row in rows} == {"uni"}
    assert len({json.dumps(call["Filter"]) for call in asked}) == 6
