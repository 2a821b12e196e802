"""The agent's command, with a daemon in its place that only asks the service."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpctools.budget.service import TokenRefusedError
from hpctools.cli import hp_login_agent
from hpctools.login.agent import daemon
from tests.cli.test_renewed_service import ARN, Counting, aws, service, written

__all__ = ["aws", "service"]  # fixtures
Asked = Callable[..., int]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, service: Counting) -> Asked:
    """Run the command for a site whose service is this one; what the daemon does with it is given."""

    def begin(serve: Callable[..., None], **environment: str) -> int:
        told = {"HPCTOOLS_API": service.address, "HPCTOOLS_API_TOKEN_FILE": str(tmp_path / "token")}
        for name in ("HPCTOOLS_API_TOKEN", "HPCTOOLS_API_TOKEN_SOURCE"):
            monkeypatch.delenv(name, raising=False)
        for name, value in (told | environment).items():
            monkeypatch.setenv(name, value)
        settings = tmp_path / "agent.yaml"
        settings.write_text("node: login-1\n")
        monkeypatch.setattr(daemon, "serve", lambda settings, patient, quick=None: serve(patient, quick))
        return hp_login_agent.main(["--config", str(settings)])

    return begin


def gone(token: Path) -> None:
    assert not token.exists()


def empty(token: Path) -> None:
    written(token, "")


def open_to_all(token: Path) -> None:
    written(token, "first").chmod(0o644)


def refused(*services: Any) -> list[str]:
    said = []
    for each in services:
        with pytest.raises(TokenRefusedError) as error:
            each.ask("GET", "/v1/x")
        said.append(str(error.value))
    return said


@pytest.mark.parametrize("state", [gone, empty, open_to_all])
def test_an_agent_without_a_token_runs_and_finds_one_later(
    run: Asked,
    service: Counting,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    state: Callable[[Path], None],
) -> None:
    """It ended, and systemd began it again every two seconds: drains, care, limits and HAProxy had nobody."""
    token = tmp_path / "token"
    state(token)
    answers = []

    def serve(patient: Any, quick: Any) -> None:
        for _ in range(3):
            assert all("there is no token for 127.0.0.1" in each for each in refused(patient, quick))
        assert service.shown == []
        token.unlink(missing_ok=True)
        written(token, "first")
        answers.extend(each.ask("GET", "/v1/x")["hello"] for each in (quick, patient))

    with caplog.at_level(logging.INFO):
        assert run(serve) == 0
    assert (answers, service.shown) == (["first", "first"], ["first", "first"])
    (begun,) = [each for each in caplog.messages if "as if the service were away" in each]
    assert str(token) in begun
    assert "administrator" in begun or "chmod 600" in begun
    without = [each for each in caplog.messages if "its file has no token yet" in each]
    assert len(without) == 2, "one for PAM and one for the reports, not one for each question"
    assert "the token from its file holds" in caplog.text


def test_an_agent_without_a_token_asks_its_source(
    run: Asked, service: Counting, tmp_path: Path, aws: Path
) -> None:
    (aws.parent / "aws.secret").write_text("first\n")
    answers = []

    def serve(patient: Any, quick: Any) -> None:
        refused(quick)
        answers.append(patient.ask("GET", "/v1/x")["hello"])
        answers.append(quick.ask("GET", "/v1/x")["hello"])

    assert run(serve, HPCTOOLS_API_TOKEN_SOURCE=ARN) == 0
    assert answers == ["first", "first"]


def test_a_token_that_comes_and_does_not_hold_is_what_is_told(
    run: Asked, service: Counting, tmp_path: Path
) -> None:
    def serve(patient: Any, quick: Any) -> None:
        written(tmp_path / "token", "another")
        assert "refuses (401)" in refused(patient)[0]

    assert run(serve) == 0
    assert service.shown == ["another"]


@pytest.mark.parametrize(
    "slip",
    [
        {"HPCTOOLS_API": "http://api.uni.example"},
        {"HPCTOOLS_API": "api"},
        {"HPCTOOLS_API_TOKEN_SOURCE": "login-token"},
    ],
)
def test_other_slips_end_it_at_once(
    run: Asked, slip: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(lambda patient, quick: pytest.fail("it serves"), **slip) == 2
    assert next(iter(slip.values())) in capsys.readouterr().err
