"""Pages over a real month: what stands there is what the services say, and only for whom it is."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from html import unescape
from typing import Any

import pytest

from api.services.job_costs import job_costs
from api.services.reconcile import reconcile
from api.services.reports import read_report
from api.services.statements import read_statement
from hpctools.budget.allowance import Period
from hpctools.budget.month import Month
from hpctools.budget.tree import BudgetSite

NOVEMBER = Period(Month(2026, 11).start, Month(2026, 11).end)
LINK = re.compile(r'(?:href|src|srcset)="(/[^"]*|\?[^"]*)"')


def words(page: str) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<style>.*?</style>|<[^>]+>", " ", page, flags=re.S)))


def test_a_report_is_the_statement_in_slices(november_service: Any, site: BudgetSite) -> None:
    for name in ("root", "nlp", "nlp-lab-a", "dl"):
        account = site.by_name[name]
        report = read_report(november_service.engine, site, account, NOVEMBER)
        said = read_statement(november_service.engine, site, account, Month(2026, 11))
        uncharged = (said.uncharged.idle, said.uncharged.shared, said.uncharged.untagged)
        assert report.spent == said.spent
        assert report.of_kind("attributed") == said.jobs
        assert dict(report.days) == {point.day: point.amount for point in said.days}
        assert tuple(report.uncharged.get(kind, 0) for kind in ("idle", "shared", "untagged")) == uncharged
        assert (report.quality.status, report.quality.coverage) == (said.status, said.coverage)


def test_what_nobody_pays_in_another_currency_is_told_of_the_site(
    november_service: Any, site: BudgetSite, november: Month, bills: Any, jobs: Any, now: int
) -> None:
    engine, root, nlp = november_service.engine, site.by_name["root"], site.by_name["nlp"]
    support = replace(bills.rows(november)[0], currency="EUR", node_group="", amount=Decimal(30))
    bills.months[november] = (*bills.rows(november), support)
    reconcile(engine, site, november, bills, jobs, now + 1)
    assert read_statement(engine, site, root, november).other_currencies == {"EUR": 30}
    assert read_report(engine, site, root, NOVEMBER).others == {"EUR": 30}
    assert read_report(engine, site, nlp, NOVEMBER).others == {}
    assert "Besides, in other currencies: €30.00" in words(november_service.browser(None).get("/").text)


def test_days_of_a_month_sum_to_it(november_service: Any, site: BudgetSite) -> None:
    cut = Month(2026, 11).days[11]
    parts = [Period(NOVEMBER.first, cut), Period(cut, NOVEMBER.end), NOVEMBER]
    nlp = site.by_name["nlp"]
    first, rest, whole = (read_report(november_service.engine, site, nlp, each) for each in parts)
    assert first.spent + rest.spent == whole.spent
    assert first.spent > 0
    assert first.days + rest.days == whole.days


@pytest.mark.long
def test_every_link_of_every_page_leads_somewhere(november_service: Any) -> None:
    """From the overview on, as far as a head of a department gets."""
    browser = november_service.browser("nlp")
    waiting, seen, answers = ["/"], set(), {}
    while waiting:
        path = waiting.pop()
        kind = re.sub(r"\d+|nlp-lab-[ab]|(?<==)[^&]*", "*", path)
        if kind in seen or path.startswith(("/logout", "/login")):
            continue
        seen.add(kind)
        answer = browser.get(path)
        answers[path] = answer.status_code
        if "html" in answer.headers["content-type"]:
            base = path.partition("?")[0]
            found = [unescape(link) for link in LINK.findall(answer.text)]
            waiting += [link if link.startswith("/") else base + link for link in found]
    assert {path: status for path, status in answers.items() if status != 200} == {}
    paths = {re.sub(r"nlp-lab-[ab]", "nlp", path.partition("?")[0]) for path in answers}
    behind = {f"/accounts/nlp/{name}" for name in ("jobs", "entries", "bill", "trend.svg")}
    assert paths >= {"/accounts", *behind}
    assert len(answers) > 15


def test_a_job_page_tells_its_cost_and_how_it_became_known(november_service: Any, site: BudgetSite) -> None:
    found = job_costs(november_service.engine, site, site.by_name["nlp"], NOVEMBER, limit=1).jobs[0]
    page = november_service.browser("nlp").get(f"/jobs/{found.job_id}?period=2026-11")
    text = words(page.text)
    assert f"Job {found.job_id}" in text
    assert f"Cost ${found.amount:,.2f}" in text
    assert "counted for the first time" in text
    assert f"{found.user}, {found.account}" in text


def test_a_job_that_ended_nobody_knows_when_is_not_said_to_run(
    november_service: Any, site: BudgetSite, november: Month, bills: Any, jobs: Any, now: int
) -> None:
    running = next(job for job in jobs.records if job.end is None)
    told = {}
    for at, state in enumerate(("RUNNING", "COMPLETED")):
        jobs.records = [replace(running, state=state)]
        reconcile(november_service.engine, site, november, bills, jobs, now + at)
        told[state] = words(november_service.browser(None).get(f"/jobs/{running.job_id}?period=2026-11").text)
    assert "Ended runs" in told["RUNNING"]
    assert "Ended its end is not known yet" in told["COMPLETED"]


def test_others_jobs_and_bills_are_not_told(november_service: Any, site: BudgetSite) -> None:
    of_cv = job_costs(november_service.engine, site, site.by_name["cv"], NOVEMBER, limit=1).jobs[0]
    job, bill = f"/jobs/{of_cv.job_id}?period=2026-11", "/accounts/{}/bill?node_group={}"
    head = november_service.browser("nlp")
    assert [november_service.browser(who).get(job).status_code for who in ("cv", None)] == [200, 200]
    assert head.get(job).status_code == 404
    assert head.get(bill.format("nlp", "reserved")).status_code == 200
    assert head.get(bill.format("nlp", "spot")).status_code == 404
    assert head.get(bill.format("cv", "reserved")).status_code == 404
    of_nlp = words(head.get("/accounts").text)
    assert "Language modelling" in of_nlp
    assert "Computer Vision" not in of_nlp


def test_filters_narrow_a_list_of_jobs(november_service: Any) -> None:
    browser = november_service.browser("nlp")

    def count(query: str) -> int:
        text = words(browser.get(f"/accounts/nlp/jobs?period=2026-11{query}").text)
        found = re.search(r"([\d,]+) jobs? with a part of the bill", text)
        assert found is not None
        return int(found[1].replace(",", ""))

    states = ("COMPLETED", "RUNNING", "FAILED", "CANCELLED")
    assert sum(count(f"&state={state}") for state in states) == count("") > 100
    assert count("&user=nlp1") + count("&user=nlp2&state=") < count("")
    assert count("&user=nobody") == 0


@pytest.mark.parametrize(
    "query", ["period=2026-13", "from=2026-11-05&to=2026-11-01", "period=1850", "page=0", "kind=x"]
)
def test_what_cannot_be_asked_is_said(november_service: Any, query: str) -> None:
    path = "/accounts/nlp/entries" if "kind" in query else "/accounts/nlp/jobs"
    answer = november_service.browser("nlp").get(f"{path}?{query}")
    assert answer.status_code == 422
    assert "<h1>" in answer.text


def test_a_page_changes_with_the_budget(november_service: Any) -> None:
    browser, writer = november_service.browser("nlp"), november_service.client(None, "write")
    assert "$25,000.00" in browser.get("/").text
    body = {"budget": {"amount": "31000.00"}, "why": "test"}
    assert writer.put("/v1/accounts/nlp/budget", json=body).status_code == 200
    assert "$31,000.00" in browser.get("/").text
