"""Buckets: how full they are, and emptying them with all old versions."""

from __future__ import annotations

from dataclasses import dataclass

from hpctools.errors import HpctoolsError
from hpctools.hyperpod.operations.aws import RefusedError, Service
from hpctools.hyperpod.operations.watch import Watch

_LOOK_AT = 1000  # one page; enough to say whether there is much


@dataclass(frozen=True)
class Fill:
    """How much is in a bucket; `more` when only the first page was counted."""

    versions: int
    size_bytes: int
    more: bool


def fill(service: Service, bucket: str) -> Fill | None:
    """Look at the first thousand objects and old versions of a bucket; None when there is no such bucket."""
    try:
        page = service.ask("list_object_versions", Bucket=bucket, MaxKeys=_LOOK_AT)
    except RefusedError as error:
        if error.code == "NoSuchBucket":
            return None
        raise
    versions = page.get("Versions", [])
    return Fill(len(versions), sum(each["Size"] for each in versions), bool(page.get("IsTruncated")))


def empty(service: Service, bucket: str, watch: Watch) -> None:
    """Delete everything in a bucket, old versions too; nothing happens when there is no such bucket.

    Raises:
        HpctoolsError: some object cannot be deleted.
    """
    gone = 0
    try:
        for page in service.pages("list_object_versions", Bucket=bucket):
            found = [
                {"Key": each["Key"], "VersionId": each["VersionId"]}
                for each in (*page.get("Versions", ()), *page.get("DeleteMarkers", ()))
            ]
            gone += _delete(service, bucket, found)
            watch.tell(f"bucket {bucket}", "emptying", f"{gone} objects and old versions deleted")
    except RefusedError as error:
        if error.code != "NoSuchBucket":
            raise


def _delete(service: Service, bucket: str, found: list[dict[str, str]]) -> int:
    if not found:
        return 0
    answer = service.ask("delete_objects", Bucket=bucket, Delete={"Objects": found, "Quiet": True})
    for refused in answer.get("Errors", ())[:1]:
        raise HpctoolsError(
            f"{bucket}/{refused['Key']} cannot be deleted: {refused.get('Message', refused.get('Code'))}",
            "see whether an object lock or a policy keeps it",
        )
    return len(found)
