"""Uploads to S3 that nobody wants any more: they end, and keep no process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from boto3.s3.transfer import TransferConfig
from checkpoint_rig import RUN, Heard, state_after
from s3_rig import BUCKET, Server, bucket_of, serving

from hpctools.elastic.checkpoint import s3_store
from hpctools.elastic.checkpoint.s3_store import S3Store
from hpctools.elastic.checkpoint.saver import Origin, Saver, Superseded
from hpctools.elastic.checkpoint.uploads import upload
from hpctools.errors import ElasticError

PART = 5 << 20
PARTS = 8
LIMIT = 60.0


class Holding:
    """S3 that answers no upload of a part until it is let go."""

    def __init__(self, server: Server) -> None:
        self.reached, self.released = threading.Event(), threading.Event()
        self.parts = 0
        server.fails = self

    def __call__(self, method: str, path: str, number: int) -> bool:
        if method == "PUT" and path.endswith(("data", ".distcp")):
            self.parts += 1
            self.reached.set()
            self.released.wait(LIMIT)
        return False


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Holding]:
    monkeypatch.setattr(s3_store.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.0)
    with serving() as server, bucket_of(server, monkeypatch):
        held = Holding(server)
        yield held
        held.released.set()


def one_at_a_time() -> TransferConfig:
    return TransferConfig(multipart_threshold=PART, multipart_chunksize=PART, max_concurrency=1)


def large(folder: Path) -> Path:
    path = folder / "data"
    with path.open("wb") as file:
        file.truncate(PARTS * PART)
    return path


def of_bucket() -> list[str]:
    client = boto3.client("s3")
    objects = client.list_objects_v2(Bucket=BUCKET).get("Contents", ())
    uploads = client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", ())
    return [each["Key"] for each in (*objects, *uploads)]


def test_what_is_not_wanted_any_more_is_given_up_at_the_next_part(held: Holding, tmp_path: Path) -> None:
    def go_on() -> None:
        if held.reached.is_set():
            held.released.set()
            raise ElasticError("the worker is leaving")

    files = {"data": large(tmp_path)}
    with pytest.raises(ElasticError, match="the worker is leaving"):
        upload(boto3.client("s3"), one_at_a_time(), BUCKET, files, go_on)
    assert held.parts < PARTS
    assert of_bucket() == []


def test_what_is_wanted_is_there(held: Holding, tmp_path: Path) -> None:
    held.released.set()
    upload(boto3.client("s3"), one_at_a_time(), BUCKET, {"data": large(tmp_path)}, lambda: None)
    assert held.parts == PARTS
    assert of_bucket() == ["data"]


def test_a_cancelled_save_gives_its_upload_up_and_is_no_failure(
    held: Holding, monkeypatch: pytest.MonkeyPatch
) -> None:
    heeded, go_on = threading.Event(), Saver._go_on

    def noted(saver: Saver, origin: Origin | None) -> None:
        try:
            go_on(saver, origin)
        except Superseded:
            heeded.set()
            raise

    monkeypatch.setattr(Saver, "_go_on", noted)
    heard = Heard()
    store = S3Store(f"s3://{BUCKET}/run")
    store._transfer = one_at_a_time()
    saver = Saver(store, 2, heard.reports)
    saver.save(state_after(3, elements=PART), 3, "test", RUN, {})  # 4 bytes each, twice
    assert held.reached.wait(LIMIT)
    saver.cancel()
    assert heeded.wait(LIMIT)
    held.released.set()
    assert saver.wait(LIMIT)
    assert held.parts < PARTS
    assert (heard.saved, heard.failed, of_bucket()) == ([], [], [])


ENDING = """
import sys, threading
from pathlib import Path
import boto3
from boto3.s3.transfer import TransferConfig
from hpctools.elastic.checkpoint.uploads import upload

config = TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20)
given = boto3.client("s3"), config, "training", {"data": Path(sys.argv[1])}, lambda: None
threading.Thread(target=upload, args=given, daemon=True).start()
sys.stdin.readline()
"""


def test_a_process_ends_while_it_uploads(held: Holding, tmp_path: Path) -> None:
    """It stayed until all parts were uploaded: Slurm wants the node, or has to kill it."""
    command = [sys.executable, "-c", ENDING, str(large(tmp_path))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=os.environ) as process:
        assert held.reached.wait(LIMIT)
        try:
            process.communicate(b"\n", timeout=LIMIT / 2)
        finally:
            process.kill()
    assert process.returncode == 0
