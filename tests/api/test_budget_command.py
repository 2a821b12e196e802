"""`hpctools budget` against the real service over HTTP."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from click.testing import CliRunner, Result

from hpctools.budget.service import Service
from hpctools.cli.budget import budget
from hpctools.errors import BudgetError, UnreachableError, UsageError
from hpctools.submit.budget import ask_budget, check_budget

Call = Callable[..., Result]
UNTIL = ("--until", "2026-12-24")


@contextmanager
def served(service: Any) -> Iterator[str]:
    """The service on a free port."""
    server = uvicorn.Server(uvicorn.Config(service.app, port=0, log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    pause = threading.Event()
    while not server.started:
        assert thread.is_alive()
        pause.wait(0.02)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(30)


@contextmanager
def calling(service: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Call]:
    monkeypatch.setenv("HPCTOOLS_API_TOKEN_FILE", str(folder / "token"))
    monkeypatch.delenv("HPCTOOLS_API_TOKEN", raising=False)
    (folder / "token").touch(mode=0o600)

    def carry_out(*words: str, account: str | None = None, scope: str = "write") -> Result:
        token = service.token(account, scopes=(scope,)) if account else service.token(None)
        (folder / "token").write_text(token)
        return CliRunner().invoke(budget, list(words))

    with served(service) as address:
        monkeypatch.setenv("HPCTOOLS_API", address)
        yield carry_out


@pytest.fixture
def call(sqlite_service: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Call]:
    """`hpctools budget` with a token of an account, or of an administrator; nothing was reconciled yet."""
    with calling(sqlite_service, tmp_path, monkeypatch) as call:
        yield call


@pytest.fixture
def call_in_november(
    november_service: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Call]:
    with calling(november_service, tmp_path, monkeypatch) as call:
        yield call


def test_a_head_sees_their_department_splits_it_and_approves(call: Call) -> None:
    seen = call("status", account="nlp")
    assert (seen.exit_code, seen.stdout.split()[0]) == (0, "account")
    assert [line.split()[0] for line in seen.stdout.splitlines()] == ["account", "nlp"]
    parts = ("nlp-lab-a=15000.00", "nlp-lab-b=10000")
    done = call("split", "nlp", *parts, "--why", "as agreed", account="nlp")
    assert done.stdout.splitlines()[0].startswith(
        "nlp-lab-a: 15000.00 USD monthly, enforce off, from 2026-11-01"
    )
    listed = json.loads(call("status", "--json", account="nlp").stdout)["accounts"]
    assert [each["account"] for each in listed] == ["nlp", "nlp-lab-a", "nlp-lab-b"]
    more = call("approve", "nlp", "--amount", "500", "--until", "2026-12-24", "--why", "x", account="nlp")
    assert more.stdout == "nlp may spend 500 more until 2026-12-24\n"
    assert (
        json.loads(call("status", "nlp", "--json", account="nlp").stdout)["accounts"][0]["approved"] == "500"
    )


def test_a_grant_that_is_over_keeps_no_other_account_from_being_told(call: Call) -> None:
    grant = ("--amount", "10", "--period", "once", "--first", "2026-11-02", "--last", "2026-11-03")
    done = call("set", "cv", *grant, "--effective", "2026-11-21", "--why", "a grant")
    assert (done.exit_code, done.stdout.split(":")[0]) == (0, "cv")
    lines = call("status").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["account", "nlp", "dl", "dl-lab-a"]
    assert "refuses (404)" in str(call("status", "cv").exception)


def test_an_elastic_run_may_spend_what_was_approved(call_in_november: Call) -> None:
    """Beyond the budget itself nothing is left of it, and hp-submit refused."""
    for words in (("set", "nlp", "--amount", "20000.00"), ("approve", "nlp", "--amount", "2000.00", *UNTIL)):
        assert call_in_november(*words, "--why", "x").exit_code == 0
    found = ask_budget("nlp", os.environ)
    assert found is not None
    check_budget(found)
    assert (round(found.left, 2), found.currency, found.last) == (Decimal("1694.43"), "USD", "2026-11-30")


def test_no_head_raises_their_own_budget(call: Call) -> None:
    refused = call("set", "nlp", "--amount", "99999", "--why", "x", account="nlp")
    assert isinstance(refused.exception, BudgetError)
    assert "refuses (403)" in str(refused.exception)


def test_an_administrator_changes_what_is_named_and_nothing_else(call: Call) -> None:
    words = ("--amount", "30000.00", "--enforce", "block", "--alert-at", "80,95", "--why", "the dean")
    assert call("set", "nlp", *words).exit_code == 0
    last = json.loads(call("show", "nlp", "--json").stdout)["versions"][-1]
    assert (last["why"], last["from_site_file"]) == ("the dean", False)
    budget_now = last["budget"]
    assert (budget_now["amount"], budget_now["alert_at"], budget_now["carry_over"]) == (
        "30000.00",
        [80, 95],
        "surplus",
    )
    assert budget_now["enforce"] == {"policy": "block", "at": 100, "grace": 259200, "tier": None}
    assert "by t-" in call("show", "nlp").stdout


def test_what_is_planned_for_january_does_not_begin_with_another_change(call: Call) -> None:
    """The words of the budget to come were sent for the present period: its amount, and its policy."""
    planned = ("--amount", "30000.00", "--enforce", "block", "--effective", "2027-01-01")
    assert call("set", "nlp", *planned, "--why", "next year").exit_code == 0
    assert call("set", "nlp", "--alert-at", "80", "--why", "told late").exit_code == 0
    versions = json.loads(call("show", "nlp", "--json").stdout)["versions"]
    told = [(each["effective"], each["budget"]["amount"], each["budget"]["alert_at"]) for each in versions]
    assert told[1:] == [("2026-11-01", "25000.00", [80]), ("2027-01-01", "30000.00", [50, 75, 90, 100])]
    assert [each["budget"]["enforce"]["policy"] for each in versions] == ["warn", "warn", "block"]
    # Who names the day of the one to come changes that.
    later = ("--amount", "31000.00", "--effective", "2027-01-01", "--why", "more")
    assert call("set", "nlp", *later).exit_code == 0
    last = json.loads(call("show", "nlp", "--json").stdout)["versions"][-1]["budget"]
    assert (last["amount"], last["enforce"]["policy"]) == ("31000.00", "block")


def test_what_is_changed_from_a_day_on_is_the_budget_of_the_period_that_the_day_lies_in(call: Call) -> None:
    """January's budget was planned from the 15th; the words of before were copied for all of January."""
    planned = ("--amount", "30000.00", "--effective", "2027-01-15", "--why", "next year")
    assert call("set", "nlp", *planned).exit_code == 0
    changed = ("--alert-at", "80", "--effective", "2027-01-10", "--why", "told late")
    assert call("set", "nlp", *changed).exit_code == 0
    last = json.loads(call("show", "nlp", "--json").stdout)["versions"][-1]["budget"]
    assert (last["amount"], last["alert_at"]) == ("30000.00", [80])
    # December is another period.
    before = ("--alert-at", "70", "--effective", "2026-12-31", "--why", "and before")
    assert call("set", "nlp", *before).exit_code == 0
    told = json.loads(call("show", "nlp", "--json").stdout)["versions"]
    amounts = {each["effective"]: each["budget"]["amount"] for each in told}
    assert amounts["2026-12-31"] == "25000.00"


def test_a_first_budget_that_is_planned_counts_for_all_of_its_period(call: Call) -> None:
    planned = ("--amount", "300.00", "--effective", "2027-01-15", "--why", "next year")
    assert call("set", "nlp-lab-b", *planned).exit_code == 0
    done = call("set", "nlp-lab-b", "--alert-at", "80", "--effective", "2027-01-10", "--why", "told late")
    assert done.exit_code == 0
    last = json.loads(call("show", "nlp-lab-b", "--json").stdout)["versions"][-1]["budget"]
    assert (last["amount"], last["alert_at"]) == ("300.00", [80])


def test_a_budget_that_is_only_planned_does_not_begin_with_another_change(call: Call) -> None:
    planned = ("--amount", "300.00", "--effective", "2027-01-01", "--why", "next year")
    assert call("set", "nlp-lab-b", *planned).exit_code == 0
    done = call("set", "nlp-lab-b", "--alert-at", "80", "--why", "told late")
    assert str(done.exception) == "nlp-lab-b has no budget yet; give --amount"
    versions = json.loads(call("show", "nlp-lab-b", "--json").stdout)["versions"]
    assert [each["effective"] for each in versions] == ["2027-01-01"]


@pytest.mark.parametrize(
    ("before", "then", "expected"),
    [
        (
            ("--period", "yearly", "--starts", "10-01"),
            ("--period", "monthly"),
            {"period": "monthly", "starts": []},
        ),
        (
            ("--period", "once", "--first", "2026-11-01", "--last", "2026-12-24"),
            ("--period", "quarterly", "--starts", "11-01"),
            {"period": "quarterly", "starts": ["11-01"], "first": None, "last": None},
        ),
        ((), ("--carry-over", "none"), {"carry_over": "none", "carry_at_most": None}),
        (
            ("--enforce", "lower-tier", "--tier", "low"),
            ("--tier", "preemptible"),
            {"enforce": {"policy": "lower-tier", "tier": "preemptible", "at": 100, "grace": 259200}},
        ),
        (
            ("--enforce", "lower-tier", "--tier", "low"),
            ("--enforce", "block"),
            {"enforce": {"policy": "block", "tier": None, "at": 100, "grace": 259200}},
        ),
    ],
)
def test_what_goes_with_a_word_that_changes_goes_with_it(
    call: Call, before: tuple[str, ...], then: tuple[str, ...], expected: dict[str, Any]
) -> None:
    for words in filter(None, (before, then)):
        done = call("set", "nlp", *words, "--why", "x")
        assert done.exit_code == 0, done.exception
    last = json.loads(call("show", "nlp", "--json").stdout)["versions"][-1]["budget"]
    assert {word: last[word] for word in expected} == expected


def test_a_change_by_somebody_else_meanwhile_is_not_overwritten(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = Service.look

    def slowly(here: Service, path: str) -> tuple[Any, str]:
        seen = look(here, path)
        monkeypatch.setattr(Service, "look", look)
        assert call("set", "nlp", "--amount", "40000.00", "--why", "faster").exit_code == 0
        return seen

    monkeypatch.setattr(Service, "look", slowly)
    refused = call("set", "nlp", "--alert-at", "80", "--why", "slower")
    assert "refuses (412): It has changed since you read it" in str(refused.exception)
    last = json.loads(call("show", "nlp", "--json").stdout)["versions"][-1]
    assert (last["why"], last["budget"]["amount"]) == ("faster", "40000.00")


def test_what_cannot_be_is_refused_with_the_reason(call: Call) -> None:
    over = call("split", "nlp", "nlp-lab-a=25000.01", "--why", "x", account="nlp")
    assert "add up to 25000.01 USD, and it has 25000.00" in str(over.exception)
    strange = call("set", "nlp", "--carry-over", "none", "--carry-at-most", "5", "--why", "x")
    assert "carry_over beside carry_at_most" in str(strange.exception)
    assert isinstance(call("show", "cv", account="nlp").exception, BudgetError)
    assert isinstance(call("split", "nlp", "x", "--why", "x").exception, UsageError)


def test_what_was_spent_and_where_it_leads(call_in_november: Call) -> None:
    """An overspent account is a problem that was found: 1."""
    call = call_in_november
    assert call("alerts").stdout == "no alerts\n"
    found = call("forecast", "nlp")
    assert found.stdout.startswith("nlp: ")
    assert " expected, 80 % between " in found.stdout
    assert call("status", "nlp").exit_code == 0
    assert call("set", "nlp", "--amount", "1.00", "--over-commit", "--why", "x").exit_code == 0
    assert call("status", "nlp").exit_code == 1


def test_what_is_behind_the_figures(call_in_november: Call) -> None:
    call = call_in_november
    listed = json.loads(call("jobs", "nlp", "--json", "--limit", "2", account="nlp").stdout)
    dearest = listed["jobs"][0]
    text = call("jobs", "nlp", "--limit", "2", account="nlp").stdout.splitlines()
    assert text[0].split() == ["job", "user", "account", "state", "start", "node", "hours", "cost"]
    assert text[1].split()[:4] == [dearest[key] for key in ("job_id", "user", "account", "state")]
    total = f"{Decimal(listed['sums'][0]['amount']):.2f}"
    assert text[3:] == [f"... and {listed['total'] - 2} more jobs", f"{total} USD in all"]
    failed = call("jobs", "nlp", "--state", "FAILED", "--sort", "start", "--month", "2026-11").stdout
    assert {line.split()[3] for line in failed.splitlines()[1:-2]} == {"FAILED"}
    assert call("jobs", "nlp", "--user", "nobody").stdout == "no jobs with a bill\n"
    assert call("runs", "nlp").stdout == "no runs with a bill\n"
    one = call("job", dearest["job_id"], account="nlp").stdout.splitlines()
    assert one[0].startswith(f"job {dearest['job_id']} of {dearest['user']} in {dearest['account']}")
    assert one[0].endswith(f": {Decimal(dearest['amount']):.2f} USD (estimated)")
    assert one[-1].split()[-2] == "first"
    assert isinstance(call("job", dearest["job_id"], account="cv").exception, BudgetError)
    assert "to" in str(call("jobs", "nlp", "--from", "2026-11-02").exception)


def test_enforcement_is_for_those_who_may(call: Call) -> None:
    assert "nothing to do" in call("enforce", "plan").stdout or "frozen" in call("enforce", "plan").stdout
    assert call("enforce", "apply").exit_code == 0
    assert call("enforce", "undo", "nlp").stdout == "nothing to do\n"
    assert "403" in str(call("enforce", "plan", account="nlp").exception)


def test_a_token_is_private_and_goes_over_https_only(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    call("status")
    (tmp_path / "token").chmod(0o644)
    opened = CliRunner().invoke(budget, ["status"])
    assert "others can read the token" in str(opened.exception)
    monkeypatch.setenv("HPCTOOLS_API_TOKEN", "hpct_x")
    monkeypatch.setenv("HPCTOOLS_API", "http://budgets.example.org")
    assert "a token is not sent to" in str(CliRunner().invoke(budget, ["status"]).exception)
    monkeypatch.setenv("HPCTOOLS_API", "http://127.0.0.1:1")
    assert isinstance(CliRunner().invoke(budget, ["status"]).exception, UnreachableError)
    monkeypatch.setenv("HPCTOOLS_API", "")
    assert isinstance(CliRunner().invoke(budget, ["status"]).exception, UsageError)
