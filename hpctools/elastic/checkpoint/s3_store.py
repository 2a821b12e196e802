"""Checkpoints in S3, or in what speaks its language: the marker object comes last, and only once."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from hpctools.elastic.checkpoint.manifest import FileRecord, Manifest, digest_of
from hpctools.elastic.checkpoint.reading import Unreadable
from hpctools.elastic.checkpoint.settings import S3
from hpctools.elastic.checkpoint.store import (
    MANIFEST,
    MARKER,
    PartMissing,
    Stage,
    Uncleaned,
    decode_part,
    encode_part,
    name_of,
    part_remedy,
    proceed,
    step_of,
)
from hpctools.errors import ElasticError

try:
    import boto3
    from boto3.exceptions import Boto3Error
    from boto3.s3.transfer import TransferConfig
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

    from hpctools.elastic.checkpoint.uploads import upload
except ImportError as missing:
    raise ElasticError(
        f"checkpoints in {S3} need boto3: {missing}", "pip install boto3, or give a folder"
    ) from None

PART_BYTES = 16 << 20
ATTEMPTS, CONNECT_SECONDS, READ_SECONDS = 5, 10, 60
LEFTOVER_SECONDS = 3600.0
STAGING = "hpctools-checkpoint-"
TAKEN = ("PreconditionFailed", "ConditionalRequestConflict")
ABSENT = ("NoSuchKey", "404")
REFUSED = (400, 401, 403)  # S3's answers to credentials that have ended, or were withdrawn
KINDS: dict[str, type[ElasticError]] = {"read": Unreadable, "list": Unreadable, "clean": Uncleaned}


class S3Store:
    """A prefix in a bucket that exists.

    Args:
        address: s3://bucket/prefix.
    """

    def __init__(self, address: str) -> None:
        self.where = address.rstrip("/")
        self._bucket, _, prefix = self.where.removeprefix(S3).partition("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._client_: Any = self._made()
        self._using = contextlib.ExitStack()
        self._transfer = TransferConfig(multipart_threshold=PART_BYTES, multipart_chunksize=PART_BYTES)

    @property
    def _client(self) -> Any:
        client = self._client_ or self._made()
        self._client_ = client
        return client

    def _made(self) -> Any:
        """A client; it keeps what it reads in a file of credentials, whatever the file says later."""
        retries: Any = {"max_attempts": ATTEMPTS, "mode": "standard"}
        config = Config(retries=retries, connect_timeout=CONNECT_SECONDS, read_timeout=READ_SECONDS)
        with self._telling("reach"):
            clients: Any = boto3.session.Session()
            return clients.client("s3", config=config)

    def names(self) -> list[str]:
        """Everything that looks like a checkpoint."""
        with self._telling("list"):
            pages = self._pages("list_objects_v2", Prefix=self._prefix, Delimiter="/")
            prefixes = [each["Prefix"] for page in pages for each in page.get("CommonPrefixes", ())]
        found = [prefix.removeprefix(self._prefix).rstrip("/") for prefix in prefixes]
        return sorted(name for name in found if step_of(name) is not None)

    def read(self, name: str) -> bytes | None:
        """A small object."""
        with self._telling("read", name):
            try:
                data: bytes = self._client.get_object(**self._object(name))["Body"].read()
            except ClientError as error:
                if _code(error) in ABSENT:
                    return None
                raise
        return data

    def write(self, name: str, data: bytes) -> None:
        """Replace a small object."""
        with self._telling("write"):
            self._client.put_object(**self._object(name), Body=data)

    def begin(self, step: int, label: str) -> Stage:
        """A folder of this machine ($TMPDIR), from which the files are uploaded."""
        with self._telling("write"):
            _remove_left_behind()
            folder = Path(tempfile.mkdtemp(prefix=STAGING))
            self._using.close()  # of the save before
            self._using.enter_context(_in_use(folder))
            return Stage(step, label, folder)

    def add(
        self, stage: Stage, part: int, files: Mapping[str, FileRecord], go_on: Callable[[], None] = proceed
    ) -> None:
        """Upload them, in parts when they are large."""
        name = name_of(stage.step, stage.label)
        paths = {f"{self._prefix}{name}/{each}": stage.folder / each for each in files}
        with self._telling("write"):
            upload(self._client, self._transfer, self._bucket, paths, go_on)
        self.write(f"{name}/{_part(part)}", encode_part(files))

    def gathered(self, stage: Stage, parts: int) -> dict[str, FileRecord]:
        """As the writers have noted them."""
        name = name_of(stage.step, stage.label)
        files: dict[str, FileRecord] = {}
        for part in range(parts):
            data = self.read(f"{name}/{_part(part)}")
            if data is None:
                raise PartMissing(
                    f"writer {part} of {parts} has not added its part of {self.where}/{name}",
                    part_remedy(part),
                )
            files |= decode_part(data)
        return files

    def staged(self, stage: Stage, name: str) -> bytes:
        """As its writer has uploaded it."""
        data = self.read(f"{name_of(stage.step, stage.label)}/{name}")
        if data is None:
            raise ElasticError(f"{name} of {self.where}/{name_of(stage.step, stage.label)} is missing")
        return data

    def commit(self, stage: Stage, manifest: Manifest, parts: int) -> str:
        """Manifest, and then the marker, which only one writer can write."""
        name = name_of(stage.step, stage.label)
        data = replace(manifest, files=self.gathered(stage, parts)).encode()
        self.write(f"{name}/{MANIFEST}", data)
        with self._telling("commit"):
            self._mark(f"{name}/{MARKER}", digest_of(data).encode())
        # It is committed, and must not be discarded because a bucket lets nobody remove these notes.
        with contextlib.suppress(ElasticError), self._telling("clean"):
            for part in range(parts):
                self._client.delete_object(**self._object(f"{name}/{_part(part)}"))
        shutil.rmtree(stage.folder, ignore_errors=True)
        return name

    def discard(self, stage: Stage) -> None:
        """Remove the folder and what was uploaded."""
        shutil.rmtree(stage.folder, ignore_errors=True)
        with contextlib.suppress(ElasticError):  # it is unreachable; `clean` comes again
            self.remove(name_of(stage.step, stage.label))

    @contextlib.contextmanager
    def fetched(self, name: str, manifest: Manifest) -> Iterator[Path]:
        """Downloaded into a folder of this machine ($TMPDIR)."""
        with self._telling("read", name):
            held = tempfile.TemporaryDirectory(prefix=STAGING, ignore_cleanup_errors=True)
        with held as folder, _in_use(Path(folder)):
            for each in manifest.files:
                with self._telling("read", f"{name}/{each}"):
                    self._download(f"{name}/{each}", f"{folder}/{each}")
            yield Path(folder)

    def sizes(self, name: str) -> dict[str, int]:
        """As the listing has them."""
        prefix = f"{self._prefix}{name}/"
        with self._telling("list"):
            pages = self._pages("list_objects_v2", Prefix=prefix)
            listed = [each for page in pages for each in page.get("Contents", ())]
        return {each["Key"].removeprefix(prefix): int(each["Size"]) for each in listed}

    def remove(self, name: str) -> None:
        """The marker first: without it the rest is no checkpoint."""
        with self._telling("remove from"):
            self._remove(name)

    def clean(self, labels: str) -> None:
        """Uncommitted objects and uploads that were not completed."""
        unmarked = [name for name in self.names() if self.read(f"{name}/{MARKER}") is None]
        left = [name for name in unmarked if self._is_left(name, labels)]
        with self._telling("clean"):
            for name in left:
                self._remove(name)
            for page in self._pages("list_multipart_uploads", Prefix=self._prefix):
                for upload in page.get("Uploads", ()):
                    self._abort(upload, labels)

    def _remove(self, name: str) -> None:
        self._client.delete_object(**self._object(f"{name}/{MARKER}"))
        for page in self._pages("list_objects_v2", Prefix=f"{self._prefix}{name}/"):
            keys = [{"Key": each["Key"]} for each in page.get("Contents", ())]
            if keys:
                self._client.delete_objects(Bucket=self._bucket, Delete={"Objects": keys})

    def _download(self, name: str, path: str) -> None:
        try:
            self._client.download_file(*self._object(name).values(), path, Config=self._transfer)
        except ClientError as error:
            if _code(error) in ABSENT:
                raise ElasticError(f"{name.rpartition('/')[2]} is missing") from None
            raise

    def _abort(self, upload: Mapping[str, Any], labels: str) -> None:
        name = upload["Key"].removeprefix(self._prefix).split("/")[0]
        if step_of(name) is not None and (_is_of(name, labels) or _is_old(upload["Initiated"])):
            self._client.abort_multipart_upload(
                Bucket=self._bucket, Key=upload["Key"], UploadId=upload["UploadId"]
            )

    def _is_left(self, name: str, labels: str) -> bool:
        if _is_of(name, labels):
            return True
        with self._telling("list"):
            pages = self._pages("list_objects_v2", Prefix=f"{self._prefix}{name}/")
            times = [each["LastModified"] for page in pages for each in page.get("Contents", ())]
        return all(_is_old(each) for each in times)

    def _mark(self, name: str, data: bytes) -> None:
        try:
            self._client.put_object(**self._object(name), Body=data, IfNoneMatch="*")
        except ClientError as error:
            # A retry of a request that had gone through finds our own marker.
            if _code(error) not in TAKEN or self.read(name) != data:
                raise

    def _pages(self, operation: str, **arguments: Any) -> Any:
        return self._client.get_paginator(operation).paginate(Bucket=self._bucket, **arguments)

    def _object(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": f"{self._prefix}{name}"}

    @contextlib.contextmanager
    def _telling(self, what: str, name: str = "") -> Iterator[None]:
        try:
            yield
        except (ClientError, BotoCoreError, Boto3Error, OSError) as error:
            if _is_refused(error):
                self._client_ = None  # the next try takes the credentials that there are then
            at = f" (at {name})" if name else ""
            raise KINDS.get(what, ElasticError)(
                f"cannot {what} the checkpoints in {self.where}: {error}{at}",
                "check bucket, credentials and endpoint (AWS_ENDPOINT_URL_S3), and free space in $TMPDIR",
            ) from None


def _remove_left_behind() -> None:
    """Folders of writers that were killed on this machine."""
    for path in Path(tempfile.gettempdir()).glob(f"{STAGING}*"):
        with contextlib.suppress(OSError):  # somebody else's, or just removed
            told = path.stat()
            if told.st_uid == os.getuid() and time.time() - told.st_mtime > LEFTOVER_SECONDS:
                with _in_use(path):
                    shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _in_use(folder: Path) -> Iterator[None]:
    """Nobody else on this machine removes it meanwhile: a large file may take hours on its way.

    Raises:
        BlockingIOError: somebody else uses it.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # a file system without locks: there its age alone tells
        return


def _part(part: int) -> str:
    return f"part-{part:05d}.json"


def _is_of(name: str, labels: str) -> bool:
    return bool(labels) and name.partition(".")[2].startswith(labels)


def _is_old(moment: datetime) -> bool:
    return time.time() - moment.astimezone(timezone.utc).timestamp() > LEFTOVER_SECONDS


def _is_refused(error: Exception) -> bool:
    """Whether other credentials may help."""
    answer = getattr(error, "response", None)  # of a line that broke: None, or bytes
    told: Any = answer if isinstance(answer, Mapping) else {}
    status = told.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status in REFUSED or isinstance(error, NoCredentialsError)


def _code(error: ClientError) -> str:
    code: str = error.response.get("Error", {}).get("Code", "")
    return code
