from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import boto3
import polars as pl
import pytest

from api.services import exports
from api.services.export_files import FileLimits
from api.services.exports import DataExport
from hpctools.budget.bill import BillRow
from hpctools.budget.bill_table import rows_of
from hpctools.budget.manifest import Export
from hpctools.budget.month import Month, day_start
from hpctools.errors import BudgetError, UnreachableError
from tests.budget.exports_lines import CLUSTER_TAG, TAG, as_parquet, cur_line, focus_line, frame

NOVEMBER = Month(2026, 11)
EXPORT = Export("bills", "cur/uni", "daily")
DATA = "cur/uni/daily/data/BILLING_PERIOD=2026-11/"
MANIFEST = "cur/uni/daily/metadata/BILLING_PERIOD=2026-11/daily-Manifest.json"
CUR_PLACE = {"user_hpctools_node_group": "big"}
LINES = [
    cur_line(CUR_PLACE, line_item_usage_start_date=f"2026-11-{day:02d}T01:00:00.000Z") for day in range(1, 8)
]


@dataclass
class Bucket:
    """AWS's side: what an export delivers."""

    client: Any
    folder: Path

    def put(self, key: str, content: bytes) -> None:
        self.client.put_object(Bucket=EXPORT.bucket, Key=key, Body=content)

    def csv(self, lines: Sequence[Mapping[str, Any]]) -> bytes:
        return gzip.compress(frame(*lines).write_csv().encode())

    def parquet(self, lines: Sequence[Mapping[str, Any]]) -> bytes:
        return as_parquet(lines, self.folder / "made.parquet").read_bytes()

    def announce(self, *names: str, folder: str = DATA, manifest: str = MANIFEST, id: str = "e-1") -> None:
        files = [f"s3://{EXPORT.bucket}/{folder}{name}" for name in names]
        self.put(manifest, json.dumps({"executionId": id, "dataFiles": files}).encode())

    def deliver(self, files: Mapping[str, bytes], folder: str = DATA) -> None:
        for name, content in files.items():
            self.put(folder + name, content)
        self.announce(*files, folder=folder)


@pytest.fixture
def bucket(aws: str, tmp_path: Path) -> Iterator[Bucket]:
    client = boto3.client("s3", region_name="us-east-1")
    client.create_bucket(Bucket=EXPORT.bucket)
    yield Bucket(client, tmp_path)
    client.close()


@pytest.fixture
def source() -> DataExport:
    return DataExport(
        name="aws-cur",
        kind="cur",
        export=EXPORT,
        region="us-east-1",
        metric="NetAmortizedCost",
        node_group_tag=TAG,
        cluster_tag=CLUSTER_TAG,
        clock=lambda: day_start(date(2026, 11, 21)),
    )


def read(source: DataExport, month: Month = NOVEMBER) -> list[BillRow]:
    table = source.rows(month)
    assert table is not None
    return rows_of(table)


def total(rows: Sequence[BillRow]) -> Decimal:
    return sum((row.amount for row in rows), Decimal(0))


def test_several_files_of_both_kinds_are_one_bill(bucket: Bucket, source: DataExport) -> None:
    bucket.deliver({"daily-00001.csv.gz": bucket.csv(LINES[:3]), "daily-00002.csv.gz": bucket.csv(LINES[3:])})
    packed = read(source)
    assert [(row.day.day, row.node_group, row.amount) for row in packed] == [
        (day, "big", Decimal("37.688")) for day in range(1, 8)
    ]
    bucket.deliver(
        {"a.snappy.parquet": bucket.parquet(LINES[2:]), "b.csv": frame(*LINES[:2]).write_csv().encode()}
    )
    assert read(source) == packed


def test_an_export_of_focus(bucket: Bucket, source: DataExport) -> None:
    lines = [focus_line({TAG: "big"}), focus_line({}, ChargeCategory="Tax", EffectiveCost="2.5")]
    bucket.deliver({"f.snappy.parquet": bucket.parquet(lines)})
    rows = read(replace(source, kind="focus", name="focus"))
    assert [(row.charge, row.node_group, row.amount) for row in rows] == [
        ("tax", "", Decimal("2.5")),
        ("usage", "big", Decimal("30.1")),
    ]


def test_only_the_newest_delivery_of_an_export_that_keeps_all_counts(
    bucket: Bucket, source: DataExport
) -> None:
    bucket.deliver({"daily-00001.csv.gz": bucket.csv(LINES)}, DATA + "20261110T010101Z-e-1/")
    bucket.deliver({"daily-00001.csv.gz": bucket.csv(LINES[:2])}, DATA + "20261111T010101Z-e-2/")
    assert len(read(source)) == 2


def test_files_that_the_manifest_does_not_list_and_emptied_chunks_do_not_count(
    bucket: Bucket, source: DataExport
) -> None:
    bucket.put(DATA + "daily-00003.csv.gz", bucket.csv(LINES))
    headers = gzip.compress(frame(*LINES[:1]).clear().write_csv().encode())
    bucket.deliver(
        {
            "daily-00001.csv.gz": bucket.csv(LINES[:1]),
            "daily-00002.csv.gz": b"",
            "daily-00004.csv.gz": gzip.compress(b"", mtime=0),
            "daily-00005.csv.gz": headers,
        }
    )
    assert total(read(source)) == Decimal("37.688")


def test_a_month_that_was_never_delivered_is_unknown_and_not_free(bucket: Bucket, source: DataExport) -> None:
    bucket.deliver({"daily-00001.csv.gz": bucket.csv(LINES)})
    assert source.rows(NOVEMBER.next) is None


@pytest.mark.parametrize(
    "name", ["BILLING_PERIOD=2026-11/Manifest.json", "billing_period=2026-11/daily-Manifest.json"]
)
def test_other_places_of_the_manifest(bucket: Bucket, source: DataExport, name: str) -> None:
    bucket.put(DATA + "x.csv.gz", bucket.csv(LINES))
    bucket.announce("x.csv.gz", manifest=f"cur/uni/daily/metadata/{name}")
    assert len(read(source)) == 7


def test_a_file_that_is_missing(bucket: Bucket, source: DataExport) -> None:
    bucket.put(DATA + "one.csv.gz", bucket.csv(LINES))
    bucket.announce("one.csv.gz", "two.csv.gz")
    with pytest.raises(BudgetError, match=r"two\.csv\.gz is missing, though the manifest lists it"):
        source.rows(NOVEMBER)


def test_a_delivery_that_is_under_way_is_not_mixed_with_the_one_before(
    bucket: Bucket, source: DataExport, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.deliver({"daily-00001.csv.gz": bucket.csv(LINES)})
    save = exports._save

    def overtaken(*arguments: Any) -> None:
        save(*arguments)
        bucket.announce("daily-00001.csv.gz", "daily-00002.csv.gz", id="e-2")

    with monkeypatch.context() as patch:
        patch.setattr(exports, "_save", overtaken)
        with pytest.raises(BudgetError, match="a delivery is under way; try again"):
            source.rows(NOVEMBER)
    with pytest.raises(BudgetError, match=r"daily-00002\.csv\.gz is missing"):
        source.rows(NOVEMBER)


def test_files_that_are_newer_than_their_manifest_wait_for_the_next(
    bucket: Bucket, source: DataExport, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.deliver({"daily-00001.csv.gz": bucket.csv(LINES)})
    get = exports._Bucket._get

    def later(self: Any, key: str) -> Any:
        answer = get(self, key)
        if answer and not key.endswith(".json"):
            answer["LastModified"] = answer["LastModified"].replace(year=2099)
        return answer

    monkeypatch.setattr(exports._Bucket, "_get", later)
    with pytest.raises(BudgetError, match="a delivery is under way"):
        source.rows(NOVEMBER)


@pytest.mark.parametrize(
    "name",
    [
        "s3://bills/cur/uni/daily/data/../../../other/x.csv.gz",
        "s3://bills/cur/uni/daily/data/%2e%2e/x.csv.gz",
        "s3://bills/cur/uni/daily/data/a\\..\\x.csv.gz",
        "s3://other/cur/uni/daily/data/x.csv.gz",
        "s3://bills/cur/uni/daily-secret/data/x.csv.gz",
        "/etc/passwd.csv",
        "s3://bills/cur/uni/daily/data//x.csv.gz",
        "s3://bills/cur/uni/daily/data/x.sh",
        7,
    ],
)
def test_a_manifest_cannot_name_other_files(bucket: Bucket, source: DataExport, name: Any) -> None:
    bucket.put(MANIFEST, json.dumps({"dataFiles": [name]}).encode())
    with pytest.raises(BudgetError, match=r"Manifest.json: .* is (not a file|no data)"):
        source.rows(NOVEMBER)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a manifest"),
        (b"[]", "is not a manifest"),
        (b"[" * 100_000, "is not a manifest"),
        (b"{}", "does not list its files"),
        (b'{"dataFiles": "x"}', "does not list its files"),
        (json.dumps({"dataFiles": [f"s3://bills/{DATA}x.csv"] * 2}).encode(), "lists a file twice"),
    ],
)
def test_what_is_no_manifest(bucket: Bucket, source: DataExport, content: bytes, message: str) -> None:
    bucket.put(MANIFEST, content)
    with pytest.raises(BudgetError, match=message):
        source.rows(NOVEMBER)


SMALL = FileLimits(packed=100_000, unpacked=1_000_000, lines=5)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv.gz", gzip.compress(b"a,b\n" * 1_000_000, mtime=0), "expands to more than 1000000 bytes"),
        (
            "x.csv.gz",
            gzip.compress(b"a,b\n1," + b"x" * 3_000_000, mtime=0),
            "expands to more than|has a line of more",
        ),
        ("x.csv.gz", b"not gzip", "cannot be read"),
        ("x.csv.gz", gzip.compress(b"a,b\n1,2\n", mtime=0)[:-9], "cannot be read"),
        ("x.csv", frame(*LINES[:1]).write_csv().encode() + b"," * 40, "fields, expected"),
        (
            "x.csv",
            frame(*LINES[:2]).write_csv().encode().rpartition(b",")[0],
            "line 3 has .* fields, expected",
        ),
        ("x.csv", b"a,b\n1,2,3\n", "line 2 has 3 fields, expected 2"),
        ("x.csv", b"a,a\n1,2\n", "has the column 'a' twice"),
        ("x.csv", b"\na,b\n1,2\n", "its first line names no columns"),
        ("x.csv", b"\xff\xfe\x00,b\n1,2\n", "cannot be read|no CUR 2.0 export"),
        ("x.csv", b"a,b\n1,2\n", "no CUR 2.0 export: the columns bill_billing_period_start_date, "),
        ("x.csv", b"x" * 100_001, "larger than 100000 bytes"),
        ("x.snappy.parquet", b"PAR1 nothing PAR1", "cannot be read"),
        ("x.snappy.parquet", b"PAR1" + b"\xff" * 64 + b"\xff\xff\xff\x7fPAR1", "cannot be read"),
    ],
)
def test_hostile_files_are_refused(
    bucket: Bucket, source: DataExport, name: str, content: bytes, message: str
) -> None:
    bucket.deliver({"good.csv.gz": bucket.csv(LINES), name: content})
    with pytest.raises(BudgetError, match=message) as caught:
        replace(source, limits=SMALL).rows(NOVEMBER)
    assert len(str(caught.value)) < 1500


def test_a_field_without_an_end_is_refused(bucket: Bucket, source: DataExport) -> None:
    bucket.deliver({"x.csv.gz": gzip.compress(b"a,b\n1," + b"x" * 3_000_000, mtime=0)})
    with pytest.raises(BudgetError, match="has a line of more than 1048576 bytes"):
        source.rows(NOVEMBER)


def test_more_lines_than_a_bill_can_have(bucket: Bucket, source: DataExport) -> None:
    bucket.deliver({"x.snappy.parquet": bucket.parquet(LINES)})
    with pytest.raises(BudgetError, match="has 7 lines, expected at most 5"):
        replace(source, limits=SMALL).rows(NOVEMBER)


def test_nothing_is_left_on_the_disk(
    bucket: Bucket, source: DataExport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    bucket.deliver({"x.csv.gz": bucket.csv(LINES), "y.csv.gz": b"damaged"})
    with pytest.raises(BudgetError):
        source.rows(NOVEMBER)
    bucket.deliver({"x.csv.gz": bucket.csv(LINES)})
    assert read(source)
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("unpacked", [False, True])
def test_a_full_disk_is_not_the_exports_fault(
    bucket: Bucket, source: DataExport, monkeypatch: pytest.MonkeyPatch, unpacked: bool
) -> None:
    save = exports._save

    def into_nothing(answer: Any, path: Path, *more: Any) -> None:
        (path.with_suffix("") if unpacked else path).symlink_to("/dev/full")
        save(answer, path, *more)

    bucket.deliver({"x.csv.gz": bucket.csv(LINES)})
    monkeypatch.setattr(exports, "_save", into_nothing)
    with pytest.raises(BudgetError, match=r"cannot be kept in .*: No space left on device; make room there"):
        source.rows(NOVEMBER)


def test_a_bucket_that_is_not_there(bucket: Bucket, source: DataExport) -> None:
    away = replace(source, export=replace(EXPORT, bucket="nowhere"))
    with pytest.raises(BudgetError, match=r"NoSuchBucket.*check billing\.sources"):
        away.rows(NOVEMBER)


def test_nobody_listens(source: DataExport, aws: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(exports, "_ATTEMPTS", 1)
    with pytest.raises(UnreachableError, match="check the network and AWS_ENDPOINT_URL"):
        source.rows(NOVEMBER)


def test_without_credentials(
    source: DataExport, aws: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(BudgetError, match="there are no AWS credentials"):
        source.rows(NOVEMBER)


def test_a_hundred_thousand_rows(bucket: Bucket, source: DataExport) -> None:
    """A month of 1,000 nodes as AWS writes it."""
    nodes, days = 1_000, 30
    whole = frame(cur_line(CUR_PLACE))
    kinds = pl.DataFrame({"line_item_usage_type": ["Cluster:ml.p4d.24xlarge", "EBS:gp3", "DataTransfer"]})
    lines = (
        whole.drop("line_item_usage_type", "line_item_resource_id", "line_item_usage_start_date")
        .join(pl.DataFrame({"line_item_resource_id": [f"i-{n:017x}" for n in range(nodes)]}), how="cross")
        .join(
            pl.DataFrame(
                {"line_item_usage_start_date": [f"2026-11-{n + 1:02d}T00:00:00Z" for n in range(days)]}
            ),
            how="cross",
        )
        .join(kinds, how="cross")
        .with_columns(line_item_unblended_cost=pl.lit("0.0123456789"))
    )
    bucket.deliver({"x.csv.gz": gzip.compress(lines.write_csv().encode(), 1)})
    table = source.rows(NOVEMBER)
    assert table is not None
    assert table.height == nodes * days * 3
    assert table["amount"].unique().to_list() == ["0.0123456789"]
