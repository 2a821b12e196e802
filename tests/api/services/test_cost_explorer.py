from __future__ import annotations

import socket
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from botocore.exceptions import ClientError

from api.services import cost_explorer
from api.services.cost_explorer import CostExplorer
from hpctools.budget.cost_explorer import parse
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
