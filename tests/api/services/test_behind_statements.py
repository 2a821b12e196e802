"""What is behind a statement: entries in pairs with their reasons, jobs, and what was known when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

from sqlalchemy import Engine, text

from api.services.books import Moment, month_period
from api.services.entries import Entry, entries
from api.services.job_costs import Wanted, job_costs
from api.services.reconcile import reconcile
from api.services.statements import read_statement
from hpctools.budget.attribution import attribute
from hpctools.budget.money import total
from hpctools.budget.month import Month
from hpctools.budget.tree import BudgetSite

Reconcile = Callable[..., Any]


def sums_of_runs(engine: Engine) -> dict[int, Decimal]:
    """Entries and clearing entries together, by run."""
    query = "SELECT run_id, amount FROM ledger_entry UNION ALL SELECT run_id, amount FROM clearing_entry"
    amounts: dict[int, list[Decimal]] = {}
    with engine.connect() as connection:
        for run, amount in connection.execute(text(query)):
            amounts.setdefault(run, []).append(Decimal(amount))
    return {run: total(parts) for run, parts in amounts.items()}


def test_jobs_cost_what_one_by_one_says_and_pages_have_each_once(
    engine: Engine,
    site: BudgetSite,
    november: Month,
    bills: Any,
    jobs: Any,
    reconcile_november: Reconcile,
    now: int,
) -> None:
    reconcile_november()
    expected: dict[int, list[Decimal]] = {}
    for line in attribute(bills.rows(november), jobs.records, site, november, now).lines:
        if line.key.kind == "attributed" and line.key.account in site.subtree("nlp"):
            expected.setdefault(line.key.dbindex, []).append(line.amount)
    nlp = site.by_name["nlp"]
    whole = month_period(november)
    first = job_costs(engine, site, nlp, whole, limit=40)
    rest = job_costs(engine, site, nlp, whole, Moment(through=first.through), limit=10_000, offset=40)
    got = {job.dbindex: job.amount for job in (*first.jobs, *rest.jobs)}
    assert len(first.jobs) == 40
    assert first.total == rest.total == len(first.jobs) + len(rest.jobs) == len(got)
    assert got == {dbindex: total(parts) for dbindex, parts in expected.items()}
    for job in first.jobs:
        assert total(part.amount for part in job.parts) == job.amount
    one = job_costs(engine, site, nlp, whole, wanted=Wanted(user="nlp3"), limit=10_000)
    assert {job.user for job in one.jobs} == {"nlp3"}
    assert (
        total(job.amount for job in first.jobs + rest.jobs)
        == read_statement(engine, site, nlp, november).jobs
    )


def test_entries_are_in_pairs_and_say_why(
    engine: Engine,
    site: BudgetSite,
    november: Month,
    bills: Any,
    jobs: Any,
    reconcile_november: Reconcile,
    now: int,
) -> None:
    jobs.records = [job for job in jobs.records if job.end is not None]
    late = jobs.records.pop()
    reconcile_november()

    def posted(account: str) -> tuple[Entry, ...]:
        return entries(engine, site, site.by_name[account], month_period(november), limit=10_000).entries

    first = len(posted("root"))
    bills.months[november] = (
        replace(bills.rows(november)[0], amount=bills.rows(november)[0].amount + 1),
        *bills.rows(november)[1:],
    )
    reconcile_november(now + 1)
    after_bill = posted("root")
    assert {entry.reason for entry in after_bill[first:]} == {"bill"}
    jobs.records.append(late)
    reconcile_november(now + 2)
    after_job = posted("root")[len(after_bill) :]
    assert {entry.reason for entry in after_job} <= {"jobs", "jobs+time"}
    assert after_job
    assert {entry.as_of for entry in after_job} == {now + 2}
    assert set(sums_of_runs(engine).values()) == {Decimal(0)}
    assert {entry.account for entry in posted("nlp")} <= site.subtree("nlp")


def test_a_statement_can_be_read_as_it_was_known(
    engine: Engine, site: BudgetSite, november: Month, bills: Any, reconcile_november: Reconcile, now: int
) -> None:
    root = site.by_name["root"]
    reconcile_november()
    before = read_statement(engine, site, root, november)
    bills.months[november] = bills.rows(november)[:-5]
    reconcile_november(now + 60)
    assert read_statement(engine, site, root, november).spent != before.spent
    assert read_statement(engine, site, root, november, known_on=now + 59) == before
    assert read_statement(engine, site, root, november, known_on=now - 1).status == "none"


def test_a_statement_is_told_by_the_tree_of_accounts_as_it_is_now(
    engine: Engine, site: BudgetSite, november: Month, reconcile_november: Reconcile
) -> None:
    reconcile_november()

    def spent(told: BudgetSite, *names: str) -> list[Decimal]:
        return [read_statement(engine, told, told.by_name[name], november).spent for name in names]

    nlp, cv, lab = spent(site, "nlp", "cv", "nlp-lab-a")
    assert lab > 0
    accounts = [replace(each, parent="cv") if each.name == "nlp-lab-a" else each for each in site.accounts]
    moved = replace(site, accounts=tuple(accounts))
    assert spent(moved, "nlp", "cv", "nlp-lab-a") == [nlp - lab, cv + lab, lab]
    assert spent(site, "nlp", "cv") == [nlp, cv]


def test_a_final_month_that_is_restated_says_so_to_those_it_concerns(
    engine: Engine, site: BudgetSite, november: Month, bills: Any, jobs: Any, now: int
) -> None:
    jobs.records = [job for job in jobs.records if job.end is not None]
    bills.months[november] = tuple(replace(row, estimated=False) for row in bills.rows(november))
    over = now + 15 * 86400
    reconcile(engine, site, november, bills, jobs, over)
    root, nlp = site.by_name["root"], site.by_name["nlp"]
    assert not read_statement(engine, site, root, november).corrected
    untagged = next(row for row in bills.rows(november) if not row.node_group)
    others = tuple(row for row in bills.rows(november) if row is not untagged)
    bills.months[november] = (replace(untagged, amount=untagged.amount - 1), *others)
    reconcile(engine, site, november, bills, jobs, over + 90 * 86400)
    assert read_statement(engine, site, root, november).corrected
    assert not read_statement(engine, site, nlp, november).corrected
    assert not read_statement(engine, site, root, november, known_on=over).corrected
