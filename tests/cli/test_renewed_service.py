"""A token that is replaced while a daemon runs: from its file, from where the file came from, from AWS."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest

from hpctools.budget.service import Service, TokenRefusedError, find_service
from hpctools.cli.renewed_service import RenewedService, Seldom, renewed
from hpctools.errors import HpctoolsError, UnreachableError, UsageError

ARN = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:login-token-AbCdEf"
AWS = """\
#!/bin/sh
echo "$*" >>"$0.calls"
[ ! -e "$0.denied" ] || { echo "An error occurred: AccessDeniedException" >&2; exit 254; }
cat "$0.secret"
"""


class Counting:
    """A service that takes one token, and remembers those that it was shown."""

    def __init__(self, valid: str) -> None:
        self.valid, self.shown = valid, []  # type: tuple[str, list[str]]
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                token = self.headers["Authorization"].removeprefix("Bearer ")
                outer.shown.append(token)
                body = json.dumps({"hello": token}).encode()
                self.send_response(200 if token == outer.valid else 401)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def service() -> Iterator[Counting]:
    made = Counting("first")
    yield made
    made.server.shutdown()
    made.server.server_close()


def written(path: Path, token: str) -> Path:
    path.write_text(f"{token}\n")
    path.chmod(0o600)
    return path


def environment(service: Counting, folder: Path, source: str = "") -> dict[str, str]:
    file = written(folder / "token", "first")
    told = {"HPCTOOLS_API": service.address, "HPCTOOLS_API_TOKEN_FILE": str(file)}
    return told | ({"HPCTOOLS_API_TOKEN_SOURCE": source} if source else {})


def both(environment: dict[str, str]) -> tuple[RenewedService, RenewedService]:
    return renewed(find_service(environment), environment)


def test_a_token_that_holds_is_used_alone(service: Counting, tmp_path: Path) -> None:
    patient, _ = both(environment(service, tmp_path))
    (tmp_path / "token").unlink()
    assert [patient.ask("GET", "/v1/x")["hello"] for _ in range(2)] == ["first", "first"]


def test_a_replaced_file_is_read_again_and_serves_both(service: Counting, tmp_path: Path) -> None:
    patient, quick = both(environment(service, tmp_path))
    assert patient.ask("GET", "/v1/x") == {"hello": "first"}
    service.valid = "second"
    written(tmp_path / "token", "second")
    assert quick.ask("GET", "/v1/x") == {"hello": "second"}
    assert patient.ask("GET", "/v1/x") == {"hello": "second"}
    assert service.shown == ["first", "first", "second", "second"]


def test_without_another_token_the_refusal_is_told_and_nothing_is_asked_twice(
    service: Counting, tmp_path: Path
) -> None:
    patient, _ = both(environment(service, tmp_path))
    service.valid = "second"
    with pytest.raises(TokenRefusedError, match=r"refuses \(401\)"):
        patient.ask("GET", "/v1/x")
    assert service.shown == ["first"]


@pytest.mark.parametrize("state", ["gone", "empty", "open"])
def test_a_file_that_cannot_be_used_is_said_and_the_next_source_read(
    service: Counting, tmp_path: Path, caplog: pytest.LogCaptureFixture, state: str
) -> None:
    """As while somebody replaces it, or where they forgot its mode."""
    given = environment(service, tmp_path, str(written(tmp_path / "origin", "second")))
    patient, quick = both(given)
    service.valid = "second"
    file = tmp_path / "token"
    if state == "gone":
        file.unlink()
    else:
        file.write_text("" if state == "empty" else "second")
        file.chmod(0o600 if state == "empty" else 0o644)
    with caplog.at_level(logging.WARNING):
        assert quick.ask("GET", "/v1/x") == {"hello": "second"}
    assert "the service refuses the token, and its file has no other" in caplog.text
    assert patient.ask("GET", "/v1/x") == {"hello": "second"}


def test_a_copy_that_is_out_of_date_does_not_hide_the_source(service: Counting, tmp_path: Path) -> None:
    """The node's copy stays the first token; its source has had two more since."""
    origin = written(tmp_path / "origin", "first")
    patient, _ = both(environment(service, tmp_path, str(origin)))
    for token in ("second", "third"):
        service.valid = token
        written(origin, token)
        assert patient.ask("GET", "/v1/x") == {"hello": token}
    assert service.shown == ["first", "second", "second", "first", "third"]


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "bin/aws"
    program.parent.mkdir()
    program.write_text(AWS)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return program


def test_a_secret_is_fetched_once_it_is_needed_and_never_for_pam(
    service: Counting, tmp_path: Path, aws: Path
) -> None:
    patient, quick = both(environment(service, tmp_path, ARN))
    (aws.parent / "aws.secret").write_text("second\n")
    calls = aws.parent / "aws.calls"
    assert patient.ask("GET", "/v1/x") == {"hello": "first"}
    service.valid = "second"
    with pytest.raises(TokenRefusedError):
        quick.ask("GET", "/v1/x")
    assert not calls.exists()
    assert patient.ask("GET", "/v1/x") == {"hello": "second"}
    assert quick.ask("GET", "/v1/x") == {"hello": "second"}
    assert calls.read_text() == (
        f"secretsmanager get-secret-value --secret-id {ARN} --query SecretString --output text "
        "--region eu-west-1\n"
    )


@pytest.mark.parametrize("secret", [None, "", "no\ntoken"])
def test_a_secret_that_cannot_be_had_is_asked_for_once_a_minute_and_not_shown(
    service: Counting, tmp_path: Path, aws: Path, caplog: pytest.LogCaptureFixture, secret: str | None
) -> None:
    patient, _ = both(environment(service, tmp_path, ARN))
    (aws.parent / ("aws.denied" if secret is None else "aws.secret")).write_text(secret or "")
    service.valid = "second"
    for _ in range(3):
        with pytest.raises(TokenRefusedError):
            patient.ask("GET", "/v1/x")
    assert len((aws.parent / "aws.calls").read_text().splitlines()) == 1
    why = "AccessDeniedException" if secret is None else "it is no token"
    assert f"the secret {ARN} cannot be read" in caplog.text
    assert why in caplog.text
    assert not secret or secret not in caplog.text


def test_a_machine_without_the_aws_command_says_so(
    service: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    patient, _ = both(environment(service, tmp_path, ARN))
    service.valid = "second"
    with pytest.raises(TokenRefusedError):
        patient.ask("GET", "/v1/x")
    assert "cannot start aws" in caplog.text


def test_a_reading_is_repeated_after_its_rest() -> None:
    moments = iter((0.0, 0.0, 30.0, 60.0, 60.0, 61.0))
    answers: list[str | HpctoolsError] = ["one", HpctoolsError("away")]

    def read() -> str:
        answer = answers.pop(0)
        if isinstance(answer, HpctoolsError):
            raise answer
        return answer

    seldom = Seldom(read, 60.0, lambda: next(moments))
    assert [seldom(), seldom()] == ["one", "one"]
    for _ in range(2):
        with pytest.raises(HpctoolsError, match="away"):
            seldom()


def test_those_who_ask_at_the_same_time_share_what_the_first_found(service: Counting, tmp_path: Path) -> None:
    """All are refused with the old token, then all go on with the new one."""
    patient, quick = both(environment(service, tmp_path))
    service.valid = "second"
    written(tmp_path / "token", "second")
    start, found = Barrier(8), []

    def ask(asked: RenewedService) -> None:
        start.wait(20)
        found.append(asked.ask("GET", "/v1/x")["hello"])

    threads = [Thread(target=ask, args=((patient, quick)[n % 2],)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == ["second"] * 8


def test_a_service_that_is_away_is_told_as_ever(service: Counting, tmp_path: Path) -> None:
    given = environment(service, tmp_path)
    patient, _ = renewed(Service("http", "127.0.0.1:1", "", "first", 1.0), given)
    with pytest.raises(UnreachableError):
        patient.ask("GET", "/v1/x")


@pytest.mark.parametrize("source", ["token", "arn:aws:s3:::bucket", "~/token"])
def test_a_source_that_is_no_place_is_refused(service: Counting, tmp_path: Path, source: str) -> None:
    with pytest.raises(UsageError, match="is no place of a token"):
        both(environment(service, tmp_path, source))
