"""Figures as files for browsers: they have the money that the pages show."""

from __future__ import annotations

import csv
from decimal import Decimal
from io import StringIO
from typing import Any

import pytest

from api.formats.cost_tables import ENTRY_COLUMNS, JOB_COLUMNS
from api.formats.tables import as_table
from hpctools.budget.money import total


def rows(answer: Any) -> list[dict[str, str]]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/csv; charset=utf-8; header=present"
    return list(csv.DictReader(StringIO(answer.text, newline="")))


def test_jobs_and_entries_add_up_to_the_statement(november_service: Any) -> None:
    browser = november_service.browser("nlp")
    statement = november_service.client("nlp").get("/v1/accounts/nlp/statement/2026-11").json()
    jobs = browser.get("/accounts/nlp/jobs.csv?period=2026-11")
    assert jobs.headers["content-disposition"] == 'attachment; filename="nlp-jobs-2026-11.csv"'
    assert tuple(rows(jobs)[0]) == JOB_COLUMNS
    assert total(Decimal(row["amount"]) for row in rows(jobs)) == Decimal(statement["spent_on_jobs"])
    entries = browser.get("/accounts/nlp/entries.csv?period=2026-11")
    assert entries.headers["content-disposition"] == 'attachment; filename="nlp-entries-2026-11.csv"'
    assert tuple(rows(entries)[0]) == ENTRY_COLUMNS
    assert total(Decimal(row["amount"]) for row in rows(entries)) == Decimal(statement["spent"])
    # With the filters of the page, as its form sends them.
    chosen = rows(
        browser.get("/accounts/nlp/jobs.csv?period=2026-11&user=nlp1&state=&node_group=&sort=cost&format=csv")
    )
    assert {row["user"] for row in chosen} == {"nlp1"}
    assert chosen == sorted(chosen, key=lambda row: Decimal(row["amount"]))


@pytest.mark.parametrize("form", ["pdf", "csv", "focus"])
def test_a_statement_is_the_same_for_browsers_and_programs(november_service: Any, form: str) -> None:
    page = november_service.browser("nlp").get(f"/accounts/nlp/statement/2026-11?format={form}")
    same = november_service.client("nlp").get(f"/v1/accounts/nlp/statement/2026-11?format={form}")
    for name in ("content-type", "content-disposition"):
        assert page.headers[name] == same.headers[name]
    assert page.content == same.content


def test_an_account_page_leads_to_its_files_and_its_budget(november_service: Any) -> None:
    html = november_service.browser("nlp").get("/accounts/nlp?period=2026-11").text
    for form in ("pdf", "csv", "focus"):
        assert f'href="/accounts/nlp/statement/2026-11?format={form}"' in html
    assert 'href="/accounts/nlp/budget"' in html
    quarter = november_service.browser("nlp").get("/accounts/nlp?period=2026-Q4").text
    assert 'href="/accounts/nlp/statement/2026-12?format=pdf"' in quarter


@pytest.mark.parametrize("name", ["jobs", "entries"])
def test_a_file_is_whole_or_it_is_none(
    november_service: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    browser, address = november_service.browser("nlp"), f"/accounts/nlp/{name}.csv?period=2026-11"
    count = len(rows(browser.get(address)))
    monkeypatch.setattr("api.routers.page_statements.MOST_ROWS", count)
    assert len(rows(browser.get(address))) == count
    monkeypatch.setattr("api.routers.page_statements.MOST_ROWS", count - 1)
    refused = browser.get(address)
    assert refused.status_code == 422
    assert "Choose fewer days" in refused.text


def test_what_a_spreadsheet_would_take_for_a_formula() -> None:
    told = as_table(("a", "b"), [("=cmd()", "-12.50"), ("-x", "@y"), ("+1", 'say "no", please')])
    assert told == 'a,b\r\n\'=cmd(),-12.50\r\n\'-x,\'@y\r\n\'+1,"say ""no"", please"\r\n'
