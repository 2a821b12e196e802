"""A month's bill from an AWS Data Export in S3: CUR 2.0 or FOCUS, Parquet or CSV."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any, Literal

import polars as pl

from api.services.export_files import LIMITS, FileLimits, read_columns
from hpctools.budget import cur, focus
from hpctools.budget.manifest import Delivery, Export, read_manifest
from hpctools.budget.month import Month
from hpctools.budget.normalise import Wanted, add_up, finish, merge
from hpctools.errors import BudgetError, UnreachableError

_ATTEMPTS = 8
_MOST_MANIFEST = 16 << 20
_CHUNK = 1 << 20
_READERS = {"cur": cur, "focus": focus}

_REMEDIES = {
    "AccessDenied": "allow s3:GetObject and s3:ListBucket on the export's bucket to the service's role",
    "NoSuchBucket": "check billing.sources in the site file",
    "InvalidAccessKeyId": "check the AWS credentials of the service",
    "ExpiredToken": "renew the AWS credentials of the service",
}
_ABSENT = frozenset({"NoSuchKey", "404"})


@dataclass(frozen=True)
class DataExport:
    """A Data Export as a source of bills.

    Attributes:
        name: the source's name in the store.
        kind: what the export's table is.
        region: of the bucket.
        node_group_tag, cluster_tag: keys of cost allocation tags.
        billing_account: the only payer that the export may have; empty for any.
        clock: Unix seconds now.
    """

    name: str
    kind: Literal["cur", "focus"]
    export: Export
    region: str
    metric: str
    node_group_tag: str
    cluster_tag: str
    billing_account: str = ""
    limits: FileLimits = LIMITS
    clock: Callable[[], float] = time.time

    def rows(self, month: Month) -> pl.DataFrame | None:
        """The bill of a month as it was delivered last; None when it was never delivered.

        Raises:
            UnreachableError: S3 does not answer.
            BudgetError: S3 refuses, a file is missing or is none, or a delivery is under way.
        """
        bucket = _Bucket(_client(self.region), self.export)
        manifest = bucket.manifest(month)
        if manifest is None:
            return None
        wanted = Wanted(
            self.name, self.metric, month, self.node_group_tag, self.cluster_tag, self.billing_account
        )
        parts, numbers_invoices = [], self.kind == "cur"
        with _room(), TemporaryDirectory(prefix="hpctools-bill-") as folder:
            for number, key in enumerate(manifest.delivery.keys):
                path = Path(folder) / f"{number}{_suffix(key)}"
                bucket.download(key, path, manifest.written, self.limits.packed)
                lines, names = self._lines(path, wanted, f"s3://{self.export.bucket}/{key}")
                parts.append(lines)
                numbers_invoices |= "InvoiceId" in names
                for left in Path(folder).iterdir():
                    left.unlink()
        bucket.check_still(manifest)
        return finish(merge(parts), wanted, int(self.clock()), numbers_invoices)

    def _lines(self, path: Path, wanted: Wanted, where: str) -> tuple[pl.DataFrame, list[str]]:
        """A file's lines, added up, and its columns' names."""
        reader = _READERS[self.kind]
        table = read_columns(path, reader.COLUMNS, reader.TAGS, where, self.limits)
        if table is None:
            return merge([]), []
        return add_up(reader.lines(table, wanted, where), where), table.columns


@dataclass(frozen=True)
class _Manifest:
    """Where and when a delivery was announced."""

    key: str
    tag: str
    written: datetime
    delivery: Delivery


@dataclass(frozen=True)
class _Bucket:
    """What is asked of S3."""

    client: Any
    export: Export

    def manifest(self, month: Month) -> _Manifest | None:
        """A month's manifest; None when there is none."""
        for key in self.export.manifests(month):
            answer = self._get(key)
            if answer is not None:
                content = _read(answer, _MOST_MANIFEST, self._where(key))
                delivery = read_manifest(content, self.export, self._where(key))
                return _Manifest(key, answer["ETag"], answer["LastModified"], delivery)
        return None

    def download(self, key: str, path: Path, written: datetime, most: int) -> None:
        """A file of a delivery that was announced at a time."""
        answer = self._get(key)
        if answer is None:
            raise BudgetError(
                f"{self._where(key)} is missing, though the manifest lists it",
                "wait for the next delivery, or have the export delivered again; nothing was stored",
            )
        if answer["LastModified"] > written:
            # Overwritten files come before the manifest that announces them: old and new would be mixed.
            raise _under_way(self._where(key))
        _save(answer, path, most, self._where(key))

    def check_still(self, manifest: _Manifest) -> None:
        """The manifest is still the one that was read."""
        answer = self._get(manifest.key)
        if answer is None or answer["ETag"] != manifest.tag:
            raise _under_way(self._where(manifest.key))

    def _get(self, key: str) -> dict[str, Any] | None:
        from botocore.exceptions import ClientError

        with _reachable(self._where(key)):
            try:
                answer: dict[str, Any] = self.client.get_object(Bucket=self.export.bucket, Key=key)
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") in _ABSENT:
                    return None
                raise
            return answer

    def _where(self, key: str) -> str:
        return f"s3://{self.export.bucket}/{key}"


def _under_way(where: str) -> BudgetError:
    return BudgetError(
        f"{where} changed while it was read: a delivery is under way",
        "try again in some minutes; nothing was stored",
    )


def _suffix(key: str) -> str:
    return next(suffix for suffix in (".csv.gz", ".csv", ".parquet") if key.endswith(suffix))


def _read(answer: Mapping[str, Any], most: int, where: str) -> bytes:
    with _reachable(where):
        content: bytes = answer["Body"].read(most + 1)
    if len(content) > most:
        raise BudgetError(f"{where}: larger than {most} bytes", "check the export; nothing was stored")
    return content


def _save(answer: Mapping[str, Any], path: Path, most: int, where: str) -> None:
    size = 0
    with _reachable(where), path.open("wb") as target:
        for chunk in answer["Body"].iter_chunks(_CHUNK):
            size += len(chunk)
            if size > most:
                raise BudgetError(
                    f"{where}: larger than {most} bytes", "check the export; nothing was stored"
                )
            target.write(chunk)


def _client(region: str) -> Any:
    from boto3.session import Session
    from botocore.config import Config

    retries = Config(
        retries={"mode": "adaptive", "max_attempts": _ATTEMPTS}, connect_timeout=10, read_timeout=60
    )
    return Session().client("s3", region_name=region, config=retries)


@contextmanager
def _room() -> Iterator[None]:
    """Failures of our own disk as ours: the export is not to blame."""
    try:
        yield
    except OSError as error:
        raise BudgetError(
            f"the bill's files cannot be kept in {gettempdir()}: {error.strerror or error}",
            "make room there, or set TMPDIR to another folder; nothing was stored",
        ) from None


@contextmanager
def _reachable(where: str) -> Iterator[None]:
    """Failures of S3 as ours."""
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

    try:
        yield
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        remedy = _REMEDIES.get(code, "see the Amazon S3 API reference for this error")
        raise BudgetError(f"{where} cannot be read: {error}", remedy) from None
    except NoCredentialsError:
        raise BudgetError(
            "there are no AWS credentials", "give the service a role or a profile (AWS_PROFILE)"
        ) from None
    except BotoCoreError as error:
        raise UnreachableError(
            f"Amazon S3 does not answer for {where}: {error}", "check the network and AWS_ENDPOINT_URL"
        ) from None
