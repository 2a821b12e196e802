"""The reader's password: from a file, or from Secrets Manager (moto)."""

from __future__ import annotations

from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from hpctools.errors import HpctoolsError, UnreachableError
from hpctools.identity.secret import bind_password
from hpctools.site.identity import Bind
from hpctools.site.secret import Secret

ARN = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:not-there"


def bind(file: Path | None = None, arn: str | None = None) -> Bind:
    return Bind(dn="cn=r", secret=Secret(file=str(file) if file else None, aws_secret=arn))


def test_without_bind_there_is_no_password() -> None:
    assert bind_password(None) == ""


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("a b#;c\n")
    path.chmod(0o600)
    assert bind_password(bind(path)) == "a b#;c"


@pytest.mark.parametrize(
    ("text", "words"), [("", "no password"), (" x", "blanks"), ("a\x01b", "cannot hold")]
)
def test_a_file_with_something_else(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "password"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(HpctoolsError, match=words):
        bind_password(bind(path))


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)


@pytest.mark.usefixtures("aws")
def test_a_secret_is_asked_for_in_its_own_region() -> None:
    with mock_aws():
        client = boto3.client("secretsmanager", region_name="eu-central-1")
        arn = client.create_secret(Name="reader", SecretString='{"username": "r", "password": "geheim"}')[
            "ARN"
        ]
        assert bind_password(bind(arn=arn)) == "geheim"
        client.put_secret_value(SecretId="reader", SecretString="geheim")
        with pytest.raises(HpctoolsError, match="holds no password") as caught:
            bind_password(bind(arn=arn))
        assert "geheim" not in str(caught.value)
        with pytest.raises(UnreachableError, match="not-there"):
            bind_password(bind(arn=ARN))
