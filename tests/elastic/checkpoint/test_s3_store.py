"""Checkpoints in S3: a real server (moto's) with real faults, spoken to by real boto3."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ConnectionClosedError, ReadTimeoutError, ResponseStreamingError
from checkpoint_rig import RUN, Heard, read, state_after, write
from s3_rig import Server, bucket_of, serving

from hpctools.elastic.checkpoint import newest, reading
from hpctools.elastic.checkpoint import s3_store as module
from hpctools.elastic.checkpoint.manifest import Manifest, digest_of, record_of
from hpctools.elastic.checkpoint.s3_store import S3Store
from hpctools.elastic.checkpoint.saver import Saver
from hpctools.elastic.checkpoint.store import Abandoned, Store, abandon, open_store
from hpctools.errors import ElasticError

ROOT = "s3://training/runs/one"


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
def server(running: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    """An empty bucket `training`; $TMPDIR is the test's own, with what killed writers leave there."""
    monkeypatch.setattr(module.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(module, "ATTEMPTS", 3)
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.0)
    with bucket_of(running, monkeypatch):
        yield running


def keys() -> list[str]:
    objects = boto3.client("s3").list_objects_v2(Bucket="training").get("Contents", ())
    return sorted(each["Key"] for each in objects)


def client() -> Any:
    return boto3.client("s3")


def test_layout_content_and_that_the_marker_is_last(server: Server) -> None:
    (saved,) = write(ROOT, 12).saved
    assert saved.where.startswith(f"{ROOT}/step-000000012.{RUN.run}_")
    name = saved.where.rpartition("/")[2]
    files = (".metadata", "COMMITTED", "__0_0.distcp", "manifest.json")
    assert keys() == [f"runs/one/{name}/{each}" for each in files]
    puts = [path for method, path in server.asked if method == "PUT"]
    assert puts[-2:] == [f"/training/runs/one/{name}/{each}" for each in ("manifest.json", "COMMITTED")]
    assert read(ROOT) == (12, [])
    assert read(saved.where) == (12, [])


def test_large_files_go_up_in_parts(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART_BYTES", 5 << 20)
    heard = Heard()
    saver = Saver(open_store(ROOT), 2, heard.reports)
    saver.save(state_after(3, elements=2_000_000), 3, "test", RUN, {})
    assert saver.wait(60)
    assert len(heard.saved) == 1, heard.warnings
    parts = [path for method, path in server.asked if method == "PUT" and path.endswith("__0_0.distcp")]
    assert len(parts) >= 3
    assert read(ROOT) == (3, [])


def test_requests_that_fail_are_tried_again(server: Server) -> None:
    """Every third request is answered with 503 Slow Down."""
    server.fails = lambda method, path, number: number % 3 == 0
    write(ROOT, 1, 2)
    assert read(ROOT) == (2, [])


@pytest.mark.slow
@pytest.mark.parametrize(
    "lost", ["__0_0.distcp", ".metadata", "part-00000.json", "manifest.json", "COMMITTED"]
)
def test_a_store_that_breaks_in_the_middle_leaves_no_checkpoint(
    server: Server, lost: str, tmp_path: Path
) -> None:
    """Whichever object can never be written: the one before is used, the next writer cleans up."""
    write(ROOT, 1)
    server.fails = lambda method, path, number: method == "PUT" and path.endswith(lost)
    heard = Heard()
    saver = Saver(open_store(ROOT), 2, heard.reports)
    saver.save(state_after(2), 2, "test", RUN, {})
    assert saver.wait(60)
    (warning,) = heard.warnings
    assert f"the checkpoints in {ROOT}" in warning
    assert "check bucket, credentials and endpoint (AWS_ENDPOINT_URL_S3)" in warning
    assert read(ROOT)[0] == 1
    assert list(tmp_path.glob(f"{module.STAGING}*")) == [], "what was to be sent is not kept"
    server.fails = lambda method, path, number: False
    write(ROOT, 3)
    assert read(ROOT) == (3, [])
    assert {key.split("/")[2].partition(".")[0] for key in keys()} == {"step-000000001", "step-000000003"}


def test_what_is_committed_stays_though_nothing_may_be_removed(server: Server) -> None:
    """A bucket whose policy allows no DeleteObject: the notes of who wrote what stay, and harm nobody."""
    server.failure, server.fails = "403 Forbidden", lambda method, path, number: method == "DELETE"
    try:
        heard = write(ROOT, 7)
    finally:
        server.failure = "503 Slow Down"
    assert (len(heard.saved), heard.failed, heard.warnings) == (1, [], [])
    assert read(ROOT) == (7, [])


def test_what_may_not_be_removed_of_a_killed_writer_keeps_nobody_from_saving(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bucket, with something to remove; it is said once."""
    store = open_store(ROOT)
    stage = store.begin(4, f"{RUN.label}dead")
    (stage.folder / "data").write_bytes(b"x")
    store.add(stage, 0, {"data": record_of(stage.folder / "data")})
    monkeypatch.setattr(server, "failure", "403 Forbidden")
    server.fails = lambda method, path, number: method == "DELETE" and "dead" in path
    heard = write(store, 5, 6)
    assert (len(heard.saved), heard.failed) == (2, [])
    (said,) = heard.warnings
    assert said.startswith(f"what interrupted saves have left stays: cannot clean the checkpoints in {ROOT}")
    assert read(ROOT)[0] == 6


def test_what_a_killed_writer_left_is_cleaned_by_the_next_of_its_run(server: Server) -> None:
    store = open_store(ROOT)
    stage = store.begin(4, f"{RUN.label}dead")
    (stage.folder / "data").write_bytes(b"x")
    store.add(stage, 0, {"data": record_of(stage.folder / "data")})
    other = store.begin(4, "other_beef")
    (other.folder / "data").write_bytes(b"x")
    store.add(other, 0, {"data": record_of(other.folder / "data")})
    upload = client().create_multipart_upload(
        Bucket="training", Key=f"runs/one/step-000000004.{RUN.label}dead/big"
    )
    assert upload["UploadId"]
    write(ROOT, 5)
    assert {key.split("/")[2].partition(".")[2][:5] for key in keys()} == {"train", "other"}
    assert not [key for key in keys() if "dead" in key]
    assert not client().list_multipart_uploads(Bucket="training").get("Uploads")


def test_what_takes_long_on_its_way_is_not_taken_for_left_behind(server: Server, tmp_path: Path) -> None:
    """By another training of the same person on this machine; what nobody uses any more is."""
    mine, other = open_store(ROOT), open_store("s3://training/runs/two")
    stage = mine.begin(4, "mine")
    left = tmp_path / f"{module.STAGING}left"
    left.mkdir()
    for folder in (stage.folder, left):
        os.utime(folder, (0, 0))
    other.begin(4, "other")
    assert (stage.folder.exists(), left.exists()) == (True, False)
    mine.begin(5, "mine")
    other.begin(5, "other")
    assert not stage.folder.exists(), "it is not in use since the next was begun"


def test_only_one_writer_can_commit(server: Server) -> None:
    """Two that give the same label: the marker is put if there is none; a repeated put is no conflict."""
    store = S3Store(ROOT)
    stage = store.begin(4, "same")
    (stage.folder / "data").write_bytes(b"x")
    record = {"data": record_of(stage.folder / "data")}
    store.add(stage, 0, record)
    client().put_object(Bucket="training", Key="runs/one/step-000000004.same/COMMITTED", Body=b"another")
    with pytest.raises(ElasticError, match=f"cannot commit the checkpoints in {ROOT}.*PreconditionFailed"):
        store.commit(stage, Manifest(4), 1)
    expected = digest_of(Manifest(4, files=record).encode()).encode()
    client().put_object(Bucket="training", Key="runs/one/step-000000004.same/COMMITTED", Body=expected)
    assert store.commit(stage, Manifest(4), 1) == "step-000000004.same"


def test_damaged_objects_are_noticed(server: Server) -> None:
    write(ROOT, 1, 2)
    (key,) = [key for key in keys() if "step-000000002" in key and key.endswith(".distcp")]
    data = bytearray(client().get_object(Bucket="training", Key=key)["Body"].read())
    data[1000] ^= 4
    client().put_object(Bucket="training", Key=key, Body=bytes(data))
    step, warnings = read(ROOT)
    assert step == 1
    assert "__0_0.distcp has another checksum than when it was written" in warnings[0]
    client().delete_object(Bucket="training", Key=key)
    step, warnings = read(ROOT)
    assert (step, len(warnings)) == (1, 1)


def test_without_a_place_to_download_to_the_reason_is_said_and_no_older_one_used(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """$TMPDIR is full or not there: nothing is known of the checkpoint then."""
    monkeypatch.setattr(reading, "PAUSES", (0.0,))
    write(ROOT, 1, 2)
    monkeypatch.setattr(module.tempfile, "tempdir", "/proc/nothing/here")
    with pytest.raises(ElasticError, match=r"cannot read the checkpoints in s3:.*/proc/nothing") as raised:
        read(ROOT)
    assert "free space in $TMPDIR" in str(raised.value.remedy)


@pytest.mark.parametrize("file", ["manifest.json", "COMMITTED", "__0_0.distcp"])
def test_a_server_that_is_overloaded_is_asked_again_and_no_older_one_used(
    server: Server, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """boto3's own three attempts fail; so do all of ours, or all but the last."""
    monkeypatch.setattr(reading, "PAUSES", (0.0, 0.0))
    write(ROOT, 1, 2)
    refused: list[str] = []

    def fails(method: str, path: str, number: int) -> bool:
        hit = method in ("GET", "HEAD") and "step-000000002" in path and path.endswith(file)
        refused.extend([path] if hit and len(refused) < limit else [])
        return hit and len(refused) < limit

    server.fails, limit = fails, 7
    assert read(ROOT) == (2, [])
    assert len(refused) == 7
    limit = 1000
    with pytest.raises(ElasticError, match=rf"cannot read .* \(at step-000000002\..*/{file}\) \(3 times in"):
        read(ROOT)


def test_retention_and_roll_back(server: Server) -> None:
    write(ROOT, 1, 2, 3, keep=2)
    store: Store = open_store(ROOT)
    assert [name.partition(".")[0] for name in store.names()] == ["step-000000002", "step-000000003"]
    abandon(store, Abandoned(RUN.run, 1, 2, 2))
    assert read(ROOT) == (2, [])


def test_missing_bucket_and_missing_credentials_are_said(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ElasticError, match=r"cannot read the checkpoints in s3://nothing/x: .*NoSuchBucket"):
        newest("s3://nothing/x")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    with pytest.raises(ElasticError, match="Unable to locate credentials"):
        newest(ROOT)


def test_credentials_that_end_and_are_renewed_in_their_file_are_taken(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As a single sign-on of twelve hours writes them; the training has read the file long ago."""
    file = tmp_path / "credentials"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setattr(server, "ended", "")

    def sign_on(key: str) -> None:
        file.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = secret\n")

    sign_on("morning")
    store, heard = open_store(ROOT), Heard()
    write(store, 1)
    server.ended = "morning"
    saver = Saver(store, 2, heard.reports)
    for step in (2, 3):  # the first new client finds the old file yet
        saver.save(state_after(step), step, "test", RUN, {})
        assert saver.wait(30)
    assert [reason for _, _, reason in heard.failed if "ExpiredToken" not in reason] == []
    assert len(heard.failed) == 2
    sign_on("evening")
    write(store, 4)
    assert read(ROOT) == (4, [])


@pytest.mark.parametrize(
    "error",
    [
        ReadTimeoutError(endpoint_url="x", error="t"),
        ConnectionClosedError(endpoint_url="x"),
        ResponseStreamingError(error="t"),
    ],
)
def test_a_line_that_breaks_is_tried_again(
    server: Server, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Such errors of boto3's have an answer, which is None: that was a bare AttributeError."""
    store = S3Store(ROOT)

    def broken(**_: object) -> None:
        raise error

    monkeypatch.setattr(store._client, "get_object", broken)
    with pytest.raises(reading.Unreadable, match=r"cannot read the checkpoints in s3:.* \(at x/COMMITTED\)"):
        store.read("x/COMMITTED")
