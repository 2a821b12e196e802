"""Buckets are looked at, and emptied with all that lies under their surface."""

from __future__ import annotations

import pytest

from hpctools.errors import HpctoolsError
from hpctools.hyperpod.operations import buckets
from hpctools.hyperpod.operations.aws import Aws, Service
from hpctools.hyperpod.operations.losses import spell_bytes
from hpctools.hyperpod.operations.watch import Watch
from tests.hyperpod.aws_rig import Told


@pytest.fixture
def s3(aws: Aws) -> Service:
    service = aws.service("s3")
    place = {"LocationConstraint": aws.region}
    service.ask("create_bucket", Bucket="models", CreateBucketConfiguration=place)
    service.ask("put_bucket_versioning", Bucket="models", VersioningConfiguration={"Status": "Enabled"})
    return service


def put(s3: Service, key: str, size: int) -> None:
    s3.ask("put_object", Bucket="models", Key=key, Body=b"x" * size)


def test_old_versions_are_counted_and_deleted_too(s3: Service, watch: Watch, told: Told) -> None:
    for size in (10, 20, 30):
        put(s3, "model", size)
    put(s3, "other", 4)
    s3.ask("delete_object", Bucket="models", Key="other")
    assert buckets.fill(s3, "models") == buckets.Fill(4, 64, more=False)
    buckets.empty(s3, "models", watch)
    assert told.lines() == ["bucket models: emptying 5 objects and old versions deleted"]
    s3.ask("delete_bucket", Bucket="models")  # which AWS does with empty ones only


def test_a_bucket_that_is_gone_is_empty(s3: Service, watch: Watch) -> None:
    assert buckets.fill(s3, "no-such-bucket") is None
    buckets.empty(s3, "no-such-bucket", watch)


def test_a_large_bucket_is_not_counted_to_its_end(s3: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "_LOOK_AT", 2)
    for key in "abc":
        put(s3, key, 1)
    assert buckets.fill(s3, "models") == buckets.Fill(2, 2, more=True)


def test_an_object_that_cannot_be_deleted_is_named(
    s3: Service, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(s3, "locked", 1)
    real = Service.ask

    def locked(service: Service, operation: str, **arguments: object) -> dict[str, object]:
        if operation == "delete_objects":
            return {"Errors": [{"Key": "locked", "Code": "AccessDenied", "Message": "object lock"}]}
        return real(service, operation, **arguments)

    monkeypatch.setattr(Service, "ask", locked)
    with pytest.raises(HpctoolsError, match="models/locked cannot be deleted: object lock"):
        buckets.empty(s3, "models", watch)


@pytest.mark.parametrize(
    ("size", "told"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (7 * 1024**3, "7.0 GiB"), (3 * 1024**6, "3072.0 PiB")],
)
def test_sizes_are_told_as_people_read_them(size: int, told: str) -> None:
    assert spell_bytes(size) == told
