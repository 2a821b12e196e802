"""Figures as files for browsers: they have the money that the pages show."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from datetime import date
from decimal import Decimal
from html import unescape
from io import StringIO
from typing import Any

import pytest
from sqlalchemy import insert

from api.db.access_models import Reconciliation
from api.db.bill_store import append_bill
from api.db.budget_models import BudgetAlert, EnforcementAct
from api.db.engine import writing
from api.formats.cost_tables import ENTRY_COLUMNS, JOB_COLUMNS
from api.formats.tables import as_table
from api.services.budgets import record_site, versions
from hpctools.budget.money import total
from hpctools.errors import UnreachableError


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


def linked(browser: Any, page: str, file: str) -> list[dict[str, str]]:
    """The rows of a file that a page leads to."""
    (address,) = re.findall(rf'href="([^"]*{re.escape(file)}[^"]*)" download', browser.get(page).text)
    return rows(browser.get(unescape(address)))


def test_the_accounts_as_a_file(november_service: Any) -> None:
    found = linked(november_service.browser("nlp"), "/accounts?period=2026-11", "accounts.csv")
    client = november_service.client("nlp")
    assert {row["account"]: Decimal(row["spent"]) for row in found} == {
        name: Decimal(client.get(f"/v1/accounts/{name}/statement/2026-11").json()["spent"])
        for name in ("nlp", "nlp-lab-a", "nlp-lab-b")
    }
    whole = {name: found[0][name] for name in ("parent", "level", "budget", "currency", "first", "last")}
    assert whole == {
        "parent": "root",
        "level": "department",
        "budget": "25000",
        "currency": "USD",
        "first": "2026-11-01",
        "last": "2026-11-30",
    }
    assert found[1]["budget"] == ""


def test_the_bill_of_a_node_group_as_a_file(november_service: Any, bills: Any, november: Any) -> None:
    page = "/accounts/nlp/bill?period=2026-11&node_group=reserved"
    found = linked(november_service.browser("nlp"), page, "bill.csv")
    of_bill = [row for row in bills.rows(november) if row.node_group == "reserved"]
    assert total(Decimal(row["amount"]) for row in found) == total(row.amount for row in of_bill)
    assert sum(int(row["rows"]) for row in found) == len(of_bill)
    other = november_service.browser("nlp").get(
        page.replace("bill?", "bill.csv?").replace("reserved", "spot")
    )
    assert other.status_code == 404


def test_the_bill_has_what_the_figures_are_of_and_nothing_twice(
    november_service: Any, site: Any, bills: Any, november: Any, now: int
) -> None:
    """The store has the month from an export as well, from which the site file read it for a while."""
    same = tuple(replace(row, source="aws-cur") for row in bills.rows(november))
    with writing(november_service.engine) as session:
        append_bill(session, "aws-cur", site.metric, november, same, now - 86400)
    page = "/accounts/nlp/bill?period=2026-11&node_group=reserved"
    found = linked(november_service.browser("nlp"), page, "bill.csv")
    of_bill = [row for row in bills.rows(november) if row.node_group == "reserved"]
    assert total(Decimal(row["amount"]) for row in found) == total(row.amount for row in of_bill)


def test_a_job_as_a_file_adds_up_twice(november_service: Any) -> None:
    job = november_service.client("nlp").get("/v1/accounts/nlp/jobs", params={"limit": 1}).json()["jobs"][0]
    browser, page = november_service.browser("nlp"), f"/jobs/{job['job_id']}?period=2026-11"
    found = linked(browser, page, ".csv")
    for section in ("day", "entry"):
        amounts = [Decimal(row["amount"]) for row in found if row["section"] == section]
        assert total(amounts) == Decimal(job["amount"])
    assert {row["reason"] for row in found if row["section"] == "entry"} == {"first"}
    assert november_service.browser("cv").get(f"/jobs/{job['job_id']}.csv?period=2026-11").status_code == 404


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


@pytest.mark.parametrize("name", ["jobs", "entries", "bill"])
def test_a_file_is_whole_or_it_is_none(
    november_service: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    browser, address = november_service.browser("nlp"), f"/accounts/nlp/{name}.csv?period=2026-11"
    address += "&node_group=reserved"
    count = len(rows(browser.get(address)))
    monkeypatch.setattr("api.routers.page_statements.MOST_ROWS", count)
    assert len(rows(browser.get(address))) == count
    monkeypatch.setattr("api.routers.page_statements.MOST_ROWS", count - 1)
    refused = browser.get(address)
    assert refused.status_code == 422
    assert "Choose fewer days" in refused.text


@pytest.fixture
def years(sqlite_service: Any, site: Any, now: int) -> Any:
    """A service that told 12,000 alerts, acted as often, and reconciled each hour of a year."""
    common: dict[str, Any] = {"account": "nlp", "at": now}
    alert: dict[str, Any] = {"period_first": date(2026, 11, 1), "kind": "spent", "currency": "USD"}
    act: dict[str, Any] = {
        "by": "the service",
        "kind": "hold",
        "subject": "7",
        "key": "",
        "before": "",
        "after": "",
    }
    with writing(sqlite_service.engine) as session:
        record_site(session, site, now)
        version = versions(session, site.by_name["nlp"], date(2026, 11, 21))[-1].id
        alert |= common | {"version_id": version, "allowed": Decimal(1), "reached": Decimal(2)}
        session.execute(insert(BudgetAlert), [{**alert, "threshold": n} for n in range(12_000)])
        act |= common | {"state": "held"}
        session.execute(insert(EnforcementAct), [{**act, "submitted": n} for n in range(12_000)])
        run = {"month": "2026-11", "principal": "schedule"}
        session.execute(insert(Reconciliation), [{**run, "requested_at": n} for n in range(8760)])
    return sqlite_service


def test_lists_that_grow_for_years_are_whole_in_a_file(years: Any) -> None:
    browser = years.browser(None)
    alerts = rows(browser.get("/alerts?format=csv"))
    assert [int(row["threshold_percent"]) for row in alerts] == list(range(11_999, -1, -1))
    assert len(rows(browser.get("/enforcement?format=csv"))) == 12_000
    told = rows(browser.get("/reconciliation?format=csv"))
    assert [int(row["id"]) for row in told] == list(range(8760, 0, -1))


def test_a_file_whose_database_is_gone_is_an_error_from_the_start(
    sqlite_service: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*args: object, **words: object) -> None:
        raise UnreachableError("the database does not answer")

    browser = sqlite_service.browser(None)
    monkeypatch.setattr("api.routers.page_alerts.history", gone)
    answer = browser.get("/alerts?format=csv")
    assert (answer.status_code, "Content-Disposition" in answer.headers) == (503, False)


def test_what_a_spreadsheet_would_take_for_a_formula() -> None:
    told = as_table(("a", "b"), [("=cmd()", "-12.50"), ("-x", "@y"), ("+1", 'say "no", please')])
    assert told == 'a,b\r\n\'=cmd(),-12.50\r\n\'-x,\'@y\r\n\'+1,"say ""no"", please"\r\n'
