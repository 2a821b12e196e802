"""Uploads to S3: boto3 against moto, throttled and interrupted."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from click.testing import CliRunner
from moto import mock_aws

from hpctools.cli.main import hpctools
from hpctools.errors import HpctoolsError, UnreachableError
from hpctools.hyperpod.bundle import write_bundle
from hpctools.hyperpod.bundle_upload import MANIFEST, ObjectStore, upload
from hpctools.hyperpod.operations.aws import Service, connect
from tests.hyperpod.stack_outputs import RAW
from tests.lifecycle.test_bundle import EXAMPLE
from tests.lifecycle.world import SITE, site_bundle

BUCKET = "sagemaker-uni-gpu-111122223333-eu-central-1"


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("AWS_ACCESS_KEY_ID", "testing"), ("AWS_SECRET_ACCESS_KEY", "testing"),
                        ("AWS_DEFAULT_REGION", "eu-central-1")):  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)


@pytest.fixture
def s3() -> Iterator[Any]:
    with mock_aws():
        client = boto3.client("s3", region_name="eu-central-1")
        where: Any = {"LocationConstraint": "eu-central-1"}
        client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration=where)
        yield client


@pytest.fixture
def store(s3: Any) -> Service:
    return connect("eu-central-1").service("s3")


def keys(s3: Any) -> dict[str, bytes]:
    listed = s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])
    return {each["Key"]: s3.get_object(Bucket=BUCKET, Key=each["Key"])["Body"].read() for each in listed}


class Counting:
    """A store that counts, and fails at a request."""

    def __init__(self, real: ObjectStore, fail_at: int = 0) -> None:
        self.real, self.fail_at, self.puts = real, fail_at, 0

    def ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        self.puts += operation == "put_object"
        if self.puts == self.fail_at:
            raise UnreachableError("S3 limits the rate of requests (SlowDown)", "again in some minutes")
        return self.real.ask(operation, **arguments)

    def pages(self, operation: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        return self.real.pages(operation, **arguments)


def test_all_files_arrive_under_the_hash_and_the_manifest_is_last(s3: Any, store: Service) -> None:
    made = site_bundle()
    done = upload(made, store, BUCKET, "uni-gpu")
    prefix = f"uni-gpu/{made.hash}/"
    assert done.uri == f"s3://{BUCKET}/{prefix}"
    there = keys(s3)
    manifest = json.loads(there.pop(prefix + MANIFEST))
    assert there == {prefix + file.path: file.content for file in made.files}
    assert manifest["hash"] == made.hash
    assert set(manifest["files"]) == {file.path for file in made.files}


def test_a_second_upload_sends_nothing(s3: Any, store: Service) -> None:
    upload(site_bundle(), store, BUCKET, "uni-gpu")
    counting = Counting(store)
    again = upload(site_bundle(), counting, BUCKET, "uni-gpu")
    assert (again.sent, counting.puts) == ((), 0)


def test_nodes_of_an_earlier_bundle_keep_theirs(s3: Any, store: Service) -> None:
    upload(site_bundle(), store, BUCKET, "uni-gpu")
    before = keys(s3)
    upload(site_bundle(lambda text: text.replace("nlp2", "nlp3")), store, BUCKET, "uni-gpu")
    after = keys(s3)
    assert {key: after[key] for key in before} == before
    assert len(after) == 2 * len(before)


@pytest.mark.parametrize("fail_at", [1, 5, 20])
def test_an_upload_that_ended_early_is_not_complete_and_goes_on(
    s3: Any, store: Service, fail_at: int
) -> None:
    made = site_bundle()
    with pytest.raises(UnreachableError):
        upload(made, Counting(store, fail_at), BUCKET, "uni-gpu")
    assert f"uni-gpu/{made.hash}/{MANIFEST}" not in keys(s3)
    sent = len(keys(s3))
    counting = Counting(store)
    upload(made, counting, BUCKET, "uni-gpu")
    assert counting.puts == len(made.files) + 1 - sent
    assert len(keys(s3)) == len(made.files) + 1


def test_a_file_that_somebody_removed_or_cut_is_sent_again(s3: Any, store: Service) -> None:
    made = site_bundle()
    prefix = f"uni-gpu/{made.hash}/"
    upload(made, store, BUCKET, "uni-gpu")
    s3.delete_object(Bucket=BUCKET, Key=f"{prefix}on_create.sh")
    s3.put_object(Bucket=BUCKET, Key=f"{prefix}prelude.sh", Body=b"# cut")
    assert upload(made, store, BUCKET, "uni-gpu").sent == ("on_create.sh", "prelude.sh")
    assert keys(s3)[f"{prefix}prelude.sh"] == made.file("prelude.sh").content


def test_a_throttled_s3_is_asked_again_by_boto3(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first request is answered with 503 SlowDown."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    account = connect("eu-central-1")
    slow = account.service("s3")
    left = [1]

    def refuse(request: Any, **_: Any) -> AWSResponse | None:
        if left[0] == 0:
            return None
        left[0] -= 1

        class Raw:
            def stream(self) -> Iterator[bytes]:
                yield b"<Error><Code>SlowDown</Code><Message>Reduce your request rate</Message></Error>"

        return AWSResponse(request.url, 503, {}, Raw())

    slow.client.meta.events.register_first("before-send.s3.PutObject", refuse)
    try:
        made = site_bundle()
        upload(made, slow, BUCKET, "uni-gpu")
    finally:
        slow.client.meta.events.unregister("before-send.s3.PutObject", refuse)
    assert left == [0]
    assert len(keys(s3)) == len(made.files) + 1


def test_a_bucket_that_hyperpod_cannot_read_is_refused(store: Service) -> None:
    with pytest.raises(HpctoolsError, match="buckets named sagemaker-"):
        upload(site_bundle(), store, "my-bucket", "uni-gpu")


def test_a_bucket_that_is_not_there_is_said(store: Service) -> None:
    with pytest.raises(HpctoolsError, match="NoSuchBucket"):
        upload(site_bundle(), store, "sagemaker-nowhere", "uni-gpu")


def run(*words: object) -> Any:
    return CliRunner().invoke(hpctools, ["hyperpod", "upload", *map(str, words)])


def test_the_command_prints_the_place_alone(s3: Any, tmp_path: Path) -> None:
    """So that `render --lifecycle "$(hpctools hyperpod upload site.yaml)"` works."""
    outputs = tmp_path / "outputs.json"
    outputs.write_text(json.dumps(RAW))
    done = run(EXAMPLE, "--outputs", outputs)
    assert done.exit_code == 0, done.output
    (place,) = done.stdout.splitlines()
    assert place.startswith(f"s3://{BUCKET}/uni-gpu/")
    assert "sent on_create.sh" in done.stderr
    again = run(EXAMPLE, "--outputs", outputs, "--json")
    assert json.loads(again.stdout) == {"uri": place, "hash": place.split("/")[-2], "sent": []}


def test_a_bundle_that_was_looked_at_before_is_uploaded_as_it_is(s3: Any, tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(SITE)
    made = site_bundle()
    write_bundle(made, tmp_path / "out")
    done = run(site, "--from", tmp_path / "out", "--bucket", BUCKET)
    assert (done.exit_code, done.stdout) == (0, f"s3://{BUCKET}/uni-gpu/{made.hash}/\n"), done.output


def test_the_bucket_is_that_of_the_account_where_nothing_names_one(s3: Any, tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(f"{SITE}aws: {{region: eu-central-1, file_systems: []}}\n")
    bucket = "sagemaker-uni-gpu-123456789012-eu-central-1"
    where: Any = {"LocationConstraint": "eu-central-1"}
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration=where)
    done = run(site)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(f"s3://{bucket}/uni-gpu/")


def test_a_bucket_whose_name_can_be_guessed_must_be_of_the_account(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else may have taken the name, and nodes run what is there as root; S3 refuses for us."""
    asked: list[tuple[str, str]] = []
    real_ask, real_pages = Service.ask, Service.pages

    def note(arguments: dict[str, Any]) -> None:
        if "Bucket" in arguments:
            asked.append((arguments["Bucket"], arguments.get("ExpectedBucketOwner", "anybody")))

    def ask(store: Service, operation: str, **arguments: Any) -> dict[str, Any]:
        note(arguments)
        return real_ask(store, operation, **arguments)

    def pages(store: Service, operation: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        note(arguments)
        return real_pages(store, operation, **arguments)

    monkeypatch.setattr(Service, "ask", ask)
    monkeypatch.setattr(Service, "pages", pages)
    site = tmp_path / "site.yaml"
    site.write_text(f"{SITE}aws: {{region: eu-central-1, file_systems: []}}\n")
    guessed = "sagemaker-uni-gpu-123456789012-eu-central-1"
    where: Any = {"LocationConstraint": "eu-central-1"}
    s3.create_bucket(Bucket=guessed, CreateBucketConfiguration=where)
    assert run(site).exit_code == 0
    assert run(site, "--bucket", BUCKET).exit_code == 0
    assert set(asked) == {(guessed, "123456789012"), (BUCKET, "anybody")}
