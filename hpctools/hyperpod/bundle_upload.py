"""A bundle in S3, under a prefix that carries its hash: what is there is never changed, only added to.

Nodes that are created from an earlier bundle keep getting that one. A prefix is complete when its manifest is
there, which is written last.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from hpctools.errors import HpctoolsError
from hpctools.hyperpod.bundle import BundleFile, NodeBundle

MANIFEST = "manifest.json"
_TOGETHER = 8
_REQUIRED_PREFIX = (
    "sagemaker-"  # CreateCluster, SourceS3Uri: HyperPod's managed policy reads such buckets only
)


class ObjectStore(Protocol):
    """S3, as far as an upload needs it."""

    def ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Make one request; throttled ones are repeated."""
        ...

    def pages(self, operation: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        """The pages of an answer."""
        ...


@dataclass(frozen=True)
class Uploaded:
    """What came of an upload.

    Attributes:
        uri: what CreateCluster is told as SourceS3Uri.
        sent: files that were sent; none when all of it was there.
    """

    uri: str
    sent: tuple[str, ...]


def upload(
    made: NodeBundle,
    store: ObjectStore,
    bucket: str,
    cluster: str,
    doing: Callable[[str], None] = lambda path: None,
    owner: str = "",
) -> Uploaded:
    """Upload a bundle; what is there already is not sent again.

    Args:
        made: the bundle.
        store: S3.
        bucket: its name; HyperPod wants it to begin with `sagemaker-`.
        cluster: the first part of the prefix.
        doing: hears what is sent.
        owner: the account that the bucket must be of; any when empty. Somebody else may have taken a name
            that can be guessed, and the nodes would run their scripts as root.

    Raises:
        HpctoolsError: the bucket's name does not do, AWS refuses or does not answer. What was sent stays, and
            the next upload goes on from there.
    """
    if not bucket.startswith(_REQUIRED_PREFIX):
        raise HpctoolsError(
            f"HyperPod reads lifecycle scripts from buckets named {_REQUIRED_PREFIX}..., not {bucket}",
            "name another bucket (--bucket, or aws.buckets.lifecycle in the site)",
        )
    prefix = f"{cluster}/{made.hash}/"
    uri = f"s3://{bucket}/{prefix}"
    place = {"Bucket": bucket} | ({"ExpectedBucketOwner": owner} if owner else {})
    there = _there(store, place, prefix)
    manifest = _manifest(made)
    wanted = [*made.files, manifest]
    missing = [file for file in wanted if there.get(prefix + file.path) != len(file.content)]
    if not missing:
        return Uploaded(uri, ())
    _send([file for file in missing if file is not manifest], store, place, prefix, doing)
    _put(manifest, store, place, prefix)
    return Uploaded(uri, tuple(file.path for file in missing if file is not manifest))


def _there(store: ObjectStore, place: Mapping[str, str], prefix: str) -> dict[str, int]:
    """The size of each object under the prefix; its mark (ETag) depends on how the bucket encrypts."""
    pages = store.pages("list_objects_v2", Prefix=prefix, **place)
    return {item["Key"]: item["Size"] for page in pages for item in page.get("Contents", ())}


def _send(
    files: Sequence[BundleFile],
    store: ObjectStore,
    place: Mapping[str, str],
    prefix: str,
    doing: Callable[[str], None],
) -> None:
    def send(file: BundleFile) -> None:
        _put(file, store, place, prefix)
        doing(file.path)

    with ThreadPoolExecutor(_TOGETHER) as pool:
        for _ in pool.map(send, files):
            pass


def _put(file: BundleFile, store: ObjectStore, place: Mapping[str, str], prefix: str) -> None:
    digest = hashlib.md5(file.content, usedforsecurity=False).digest()
    store.ask(
        "put_object",
        **place,
        Key=prefix + file.path,
        Body=file.content,
        # S3 refuses what arrived damaged.
        ContentMD5=b64encode(digest).decode(),
        Metadata={"sha256": hashlib.sha256(file.content).hexdigest()},
    )


def _manifest(made: NodeBundle) -> BundleFile:
    listed = {file.path: hashlib.sha256(file.content).hexdigest() for file in made.files}
    text = json.dumps({"hash": made.hash, "files": listed}, indent=2, sort_keys=True) + "\n"
    return BundleFile(MANIFEST, text.encode())
