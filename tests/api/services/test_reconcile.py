from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import Engine, text

from api.db.day_store import known_days
from api.db.engine import reading
from api.db.ledger import last_run
from api.services.reconcile import reconcile
from api.services.statements import read_statement
from hpctools.budget.money import total
from hpctools.budget.month import Month
from hpctools.budget.tree import BudgetSite
from hpctools.errors import BudgetError, UnreachableError

Reconcile = Callable[..., Any]


def everything(engine: Engine, site: BudgetSite, month: Month) -> list[Any]:
    return [read_statement(engine, site, account, month) for account in site.by_name.values()]


def rows(engine: Engine) -> dict[str, int]:
    tables = ("bill_day", "job_batch", "attribution_run", "ledger_entry", "clearing_entry", "attributed_day")
    with engine.connect() as connection:
        return {table: connection.scalar(text(f"SELECT count(*) FROM {table}")) or 0 for table in tables}


def test_the_statement_of_the_site_is_the_bill(
    engine: Engine, site: BudgetSite, november: Month, bills: Any, reconcile_november: Reconcile
) -> None:
    outcome = reconcile_november()
    assert (outcome.bill_days, outcome.superseded) == (21, False)
    whole, *accounts = everything(engine, site, november)
    assert whole.spent == total(row.amount for row in bills.rows(november))
    departments = [statement for statement in accounts if statement.account.level == "department"]
    nobody = total(vars(whole.uncharged).values())
    assert total([*(statement.spent for statement in departments), nobody]) == whole.spent
    assert whole.status == "estimated"
    assert whole.coverage == 100


def test_a_replay_changes_nothing(
    engine: Engine, site: BudgetSite, november: Month, jobs: Any, reconcile_november: Reconcile, now: int
) -> None:
    jobs.records = [job for job in jobs.records if job.end is not None]
    reconcile_november()
    before, stored = everything(engine, site, november), rows(engine)
    for later in (0, 1, 3600):
        outcome = reconcile_november(now + later)
        assert (outcome.bill_days, outcome.jobs, outcome.entries) == (0, 0, 0)
    assert everything(engine, site, november) == before
    assert rows(engine) == stored


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETED"])
def test_running_jobs_are_trued_up_when_they_end(
    engine: Engine,
    site: BudgetSite,
    november: Month,
    jobs: Any,
    reconcile_november: Reconcile,
    now: int,
    state: str,
) -> None:
    """So are those of which slurmdbd has heard how they ended and not yet when."""
    jobs.records = [replace(job, state=state) if job.end is None else job for job in jobs.records]
    running = [job for job in jobs.records if job.end is None]
    assert running
    reconcile_november()
    with reading(engine) as session:
        last = last_run(session, november, site.metric)
        found = known_days(session, november, site.metric, last.id if last else 0)
    assert [day for day in found if found[day].provisional]
    jobs.records = [
        replace(job, end=now + 60, state="COMPLETED") if job.end is None else job for job in jobs.records
    ]
    outcome = reconcile_november(now + 120)
    assert outcome.jobs == len(running)
    assert outcome.entries > 0
    assert read_statement(engine, site, site.by_name["root"], november).as_of == now + 120


def test_a_restated_day_is_posted_as_differences_and_history_stays(
    engine: Engine,
    site: BudgetSite,
    november: Month,
    bills: Any,
    jobs: Any,
    reconcile_november: Reconcile,
    now: int,
) -> None:
    jobs.records = [job for job in jobs.records if job.end is not None]
    reconcile_november()
    before = rows(engine)
    first, *rest = bills.rows(november)
    bills.months[november] = (replace(first, amount=first.amount - 1), *rest)
    outcome = reconcile_november(now + 60)
    assert outcome.bill_days == 1
    whole = read_statement(engine, site, site.by_name["root"], november)
    assert whole.spent == total(row.amount for row in bills.rows(november))
    after = rows(engine)
    assert after["ledger_entry"] == before["ledger_entry"] + outcome.entries
    # The untagged first row of one day changed: one line, one entry.
    assert outcome.entries == 1


def test_a_day_that_vanishes_from_the_bill_is_taken_back(
    engine: Engine, site: BudgetSite, november: Month, bills: Any, reconcile_november: Reconcile, now: int
) -> None:
    reconcile_november()
    gone = november.days[3]
    bills.months[november] = tuple(row for row in bills.rows(november) if row.day != gone)
    reconcile_november(now + 60)
    whole = read_statement(engine, site, site.by_name["root"], november)
    assert whole.spent == total(row.amount for row in bills.rows(november))
    assert [point.amount for point in whole.days if point.day == gone] == [Decimal(0)]


def test_late_jobs_are_charged_when_they_arrive(
    engine: Engine, site: BudgetSite, november: Month, jobs: Any, reconcile_november: Reconcile, now: int
) -> None:
    everyone = list(jobs.records)
    jobs.records = everyone[::2]
    reconcile_november()
    jobs.records = everyone
    assert reconcile_november(now + 60).jobs == len(everyone) - len(everyone[::2])
    late = everything(engine, site, november)
    assert next(s for s in late if s.account.name == "root").spent > 0


def test_the_end_does_not_depend_on_how_often_and_in_which_order(
    engine: Engine,
    site: BudgetSite,
    november: Month,
    bills: Any,
    jobs: Any,
    now: int,
    reconcile_november: Reconcile,
) -> None:
    complete_bill, complete_jobs = bills.rows(november), list(jobs.records)
    bills.months[november], jobs.records = complete_bill[::3], complete_jobs[::2]
    reconcile_november(now - 7200)
    bills.months[november], jobs.records = complete_bill[::-1], complete_jobs[::-1]
    reconcile_november(now)
    in_steps = everything(engine, site, november)
    with engine.connect() as connection:
        amounts = connection.execute(text("SELECT amount FROM ledger_entry")).scalars()
        assert total(Decimal(amount) for amount in amounts) == total(row.amount for row in complete_bill)
    assert next(s for s in in_steps if s.account.name == "root").spent == total(
        r.amount for r in complete_bill
    )


def test_older_data_does_not_overwrite_newer(
    engine: Engine, site: BudgetSite, november: Month, jobs: Any, reconcile_november: Reconcile, now: int
) -> None:
    reconcile_november()
    before = everything(engine, site, november)
    jobs.records = []
    assert reconcile_november(now - 1).superseded
    assert everything(engine, site, november) == before


def test_an_older_view_of_a_job_in_another_months_run_does_not_overwrite_a_newer(
    engine: Engine, site: BudgetSite, november: Month, bills: Any, jobs: Any, now: int
) -> None:
    """Two months reconciled at once: what was fetched first may be stored last."""
    running = next(job for job in jobs.records if job.end is None)
    jobs.records = [replace(running, end=now, state="COMPLETED")]
    reconcile(engine, site, november, bills, jobs, now)
    before = everything(engine, site, november)
    jobs.records = [running]
    assert reconcile(engine, site, november.previous, bills, jobs, now - 60).jobs == 0
    jobs.records = []
    reconcile(engine, site, november, bills, jobs, now)
    assert everything(engine, site, november) == before


def test_two_at_once_do_the_work_once(
    engine: Engine, site: BudgetSite, november: Month, reconcile_november: Reconcile
) -> None:
    with ThreadPoolExecutor(4) as pool:
        outcomes = [future.result(60) for future in [pool.submit(reconcile_november) for _ in range(4)]]
    assert sorted(outcome.bill_days for outcome in outcomes) == [0, 0, 0, 21]
    assert sorted(outcome.entries > 0 for outcome in outcomes) == [False, False, False, True]
    assert rows(engine)["attribution_run"] == 1


def test_a_failure_in_the_middle_posts_nothing_and_the_next_run_all(
    engine: Engine,
    site: BudgetSite,
    november: Month,
    bills: Any,
    reconcile_november: Reconcile,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("power cut")

    with monkeypatch.context() as patch:
        patch.setattr("api.services.reconcile.post", fail)
        with pytest.raises(RuntimeError, match="power cut"):
            reconcile_november()
    posted = ("attribution_run", "ledger_entry", "clearing_entry", "attributed_day")
    assert {rows(engine)[table] for table in posted} == {0}
    assert {statement.status for statement in everything(engine, site, november)} == {"none"}
    assert reconcile_november().entries > 0
    whole = read_statement(engine, site, site.by_name["root"], november)
    assert whole.spent == total(row.amount for row in bills.rows(november))


def test_a_month_becomes_final_after_its_end(
    engine: Engine, site: BudgetSite, november: Month, bills: Any, jobs: Any, now: int
) -> None:
    jobs.records = [job for job in jobs.records if job.end is not None]
    bills.months[november] = tuple(replace(row, estimated=False) for row in bills.rows(november))

    def status(at: int) -> str:
        reconcile(engine, site, november, bills, jobs, at)
        return read_statement(engine, site, site.by_name["nlp"], november).status

    assert status(now) == "estimated"
    assert status(now + 15 * 86400) == "final"


def test_a_bill_of_another_month_is_refused(
    engine: Engine, november: Month, bills: Any, reconcile_november: Reconcile
) -> None:
    first, *rest = bills.rows(november)
    bills.months[november] = (replace(first, day=november.end), *rest)
    with pytest.raises(BudgetError, match="aws-ce answered 2026-12-01 to a question about 2026-11"):
        reconcile_november()
    assert set(rows(engine).values()) == {0}


def test_sources_that_are_away_leave_everything_as_it_was(
    engine: Engine, site: BudgetSite, november: Month, bills: Any, now: int, reconcile_november: Reconcile
) -> None:
    class Away:
        def windows(self, month: Month, now: int) -> Any:
            raise UnreachableError("slurmdbd does not answer")

    reconcile_november()
    before = rows(engine)
    with pytest.raises(UnreachableError):
        reconcile(engine, site, november, bills, Away(), now + 60)
    assert rows(engine) == before
