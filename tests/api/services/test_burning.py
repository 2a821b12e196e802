"""What runs unbilled counts until its bill arrives, and is not counted twice then."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import Engine, event, insert, text

from api.db.access_models import Reconciliation, ReconciliationEvent
from api.db.bill_store import Pulled, append_pulled
from api.db.engine import reading, writing
from api.services import runs
from api.services.burning import LONGEST_DAYS, current_rates, measure
from api.services.reconcile import Outcome, reconcile
from api.services.sources import Combined
from api.services.spending import burn_of_all, last_burn, read_outlook, read_outlooks
from api.services.watch import Watcher
from hpctools.budget.allowance import Calendar
from hpctools.budget.bill import BillRow
from hpctools.budget.bill_table import frame_of
from hpctools.budget.burn import Burn
from hpctools.budget.month import Month, day_of, day_start
from hpctools.budget.tree import BudgetSite
from hpctools.errors import UnreachableError
from hpctools.slurm.accounting import JobRecord


class Running:
    """One job on a whole reserved node since a moment; keeps what was asked for."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.asked: list[date] = []

    def since(self, day: date, now: int) -> Iterable[JobRecord]:
        self.asked.append(day)
        common = {"user": "nlp1", "partition": "nlp", "qos": "medium", "submitted": self.start}
        more = {"suspended_seconds": 0, "state": "RUNNING", "memory_mb": 0, "shards": 0, "reservation": ""}
        return [
            JobRecord(
                cluster="uni-gpu",
                dbindex=99,
                job_id=99,
                account="nlp-lab-a",
                start=self.start,
                end=None,
                cpus=96,
                gpus=8,
                nodes="reserved-1",
                **common,
                **more,
            )
        ]


def test_what_ran_since_the_last_billed_day_counts_at_its_rate(
    engine: Engine, site: BudgetSite, now: int, reconcile_november: Callable[..., Any]
) -> None:
    reconcile_november()
    with reading(engine) as session:
        rate = current_rates(session, site, day_of(now))["reserved"]
    later = day_start(rate.day + timedelta(days=1)) + 6 * 3600
    jobs = Running(later - 4 * 3600)
    found = measure(engine, site, jobs, later)
    assert jobs.asked == [rate.day + timedelta(days=1)]
    assert found == {"nlp-lab-a": Burn(rate.per_node_hour, 4 * rate.per_node_hour, 1)}
    outlook = read_outlook(engine, site, site.by_name["nlp"], later)
    assert outlook is not None
    assert (outlook.burn.jobs, outlook.spent - outlook.billed) == (1, 4 * rate.per_node_hour)
    assert outlook.left == outlook.spendable.total - outlook.spent


def test_what_runs_on_a_cluster_whose_bill_names_no_groups_has_a_rate(
    engine: Engine, site: BudgetSite, now: int, november: Month
) -> None:
    """HyperPod's bill tells the cluster and the type: 100 for 25 hours is its group's, as in the books."""
    types = {"reserved": "ml.p5.48xlarge"}
    groups = tuple(replace(each, instance_type=types.get(each.name, "")) for each in site.node_groups)
    hyperpod = replace(site, node_groups=groups)
    day = day_of(now) - timedelta(days=1)
    of_type = BillRow(
        *("aws-ce", day, "", "USE1-Cluster:ml.p5.48xlarge", site.metric, "USD"),
        amount=Decimal(100),
        node_hours=Decimal(25),
        cluster=site.cluster,
    )
    with writing(engine) as session:
        append_pulled(session, Pulled("aws-ce", site.metric, november, frame_of([of_type])), now)
    found = measure(engine, hyperpod, Running(now - 7200), now)
    assert found == {"nlp-lab-a": Burn(Decimal(4), Decimal(8), 1)}


def test_own_nodes_that_are_billed_by_the_hour_hide_nothing_of_the_cloud(
    engine: Engine, site: BudgetSite, now: int, november: Month
) -> None:
    """The cloud's bill has the day before yesterday, that of own nodes today: the cloud's 36 hours count."""
    today = day_of(now)
    for source, group, day in (
        ("aws-ce", "reserved", today - timedelta(days=2)),
        ("rate-card", "shared", today),
    ):
        words = (source, day, group, "x", site.metric, "USD", Decimal(24), Decimal(12))
        with writing(engine) as session:
            append_pulled(session, Pulled(source, site.metric, november, frame_of([BillRow(*words)])), now)
    found = measure(engine, site, Running(now - 86400 * 5), now)
    assert found == {"nlp-lab-a": Burn(Decimal(2), Decimal(72), 1)}


@pytest.mark.parametrize(("kind", "counts"), [("monthly", 6), ("terms", 6), ("yearly", 30)])
def test_what_ran_before_a_period_began_is_not_of_it(
    kind: str, counts: int, engine: Engine, site: BudgetSite, now: int, november: Month
) -> None:
    """The bill reaches to 29 November, a job runs since: at six on 1 December 30 hours are unbilled."""
    turn = day_start(november.next.start)
    last = day_of(turn) - timedelta(days=2)
    row = BillRow("aws-ce", last, "reserved", "x", site.metric, "USD", Decimal(100), Decimal(25))
    with writing(engine) as session:
        append_pulled(session, Pulled("aws-ce", site.metric, november, frame_of([row])), now)
    nlp = site.by_name["nlp"]
    assert nlp.spec is not None
    starts = {"terms": ((6, 15), (12, 1)), "yearly": ((11, 1),)}.get(kind, ())
    spec = replace(nlp.spec, calendar=Calendar(kind, starts))  # type: ignore[arg-type]
    at_home = replace(site, accounts=tuple(replace(a, spec=spec) if a is nlp else a for a in site.accounts))

    def counted(now: int) -> Decimal:
        outlook = read_outlook(engine, at_home, at_home.by_name["nlp"], now)
        assert outlook is not None
        return outlook.burn.unbilled

    jobs = Running(turn - 5 * 86400)
    assert measure(engine, at_home, jobs, turn - 3600)["nlp-lab-a"].unbilled == 4 * 23
    assert [counted(turn - 60), counted(turn + 60)] == [4 * 23, 4 * 23 if kind == "yearly" else 0]
    measure(engine, at_home, jobs, turn + 6 * 3600)
    assert counted(turn + 6 * 3600) == 4 * counts


def test_a_reading_from_before_the_bill_came_counts_no_more(
    engine: Engine, site: BudgetSite, now: int, reconcile_november: Callable[..., Any]
) -> None:
    reconcile_november()
    measure(engine, site, Running(now - 86400), now + 86400)
    reconcile_november(now + 86400 + 1)
    outlook = read_outlook(engine, site, site.by_name["nlp"], now + 86400 + 1)
    assert outlook is not None
    assert outlook.burn.unbilled == 0
    assert outlook.burn.jobs == 1


def test_a_reading_from_while_a_bill_was_posted_counts_no_more(
    engine: Engine, site: BudgetSite, now: int, reconcile_november: Callable[..., Any]
) -> None:
    """The run had stored a day's bill, and asked slurmdbd for minutes: now the books have the day, too."""
    reconcile_november()
    later = now + 86400
    with writing(engine) as session:
        run = runs.ask(session, Month.of(day_of(later)), runs.SCHEDULE, later - 60)
        runs.begun(session, run, later - 60)

    def counted(moment: int) -> Decimal:
        outlook = read_outlook(engine, site, site.by_name["nlp"], moment)
        assert outlook is not None
        assert outlook.burn.jobs == 1
        (other,) = (each for each in read_outlooks(engine, site, moment) if each.account.name == "nlp")
        assert other.burn == outlook.burn
        return outlook.burn.unbilled

    measure(engine, site, Running(now - 86400), later)
    assert counted(later) > 0
    with writing(engine) as session:
        outcome = Outcome(Month.of(day_of(later)))
        runs.done(session, run, outcome, later + 60)
    assert counted(later + 60) == 0
    measure(engine, site, Running(now - 86400), later + 120)
    assert counted(later + 120) > 0


def test_whether_a_bill_was_posted_since_a_reading_is_asked_of_few_events(
    engine: Engine, site: BudgetSite, now: int
) -> None:
    """Each page and alert asks, and after years there are tens of thousands of events."""
    measure(engine, site, Running(now - 60), now)
    hours = range(now - 2000 * 3600, now, 3600)
    month = str(Month.of(day_of(now)))
    asked = [
        {"id": n, "month": month, "principal": "schedule", "requested_at": at}
        for n, at in enumerate(hours, 1)
    ]
    told = [
        {"reconciliation_id": n, "at": at, "state": state, "detail": "{}"}
        for n, at in enumerate(hours, 1)
        for state in ("running", "done")
    ]
    with writing(engine) as session:
        session.execute(insert(Reconciliation), asked)
        session.execute(insert(ReconciliationEvent), told)
        session.execute(text("ANALYZE"))
    said: list[tuple[str, Any]] = []

    def hear(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        said.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", hear)
    with reading(engine) as session:
        last_burn(session, site, site.by_name["nlp"])
    event.remove(engine, "before_cursor_execute", hear)
    (question,) = [each for each in said if "reconciliation_event" in each[0]]
    explain = "EXPLAIN QUERY PLAN " if engine.dialect.name == "sqlite" else "EXPLAIN "
    with engine.connect() as connection:
        plan = [str(row) for row in connection.exec_driver_sql(explain + question[0], question[1])]
    assert [line for line in plan if "reconciliation_event_by_time" in line], plan
    assert not [line for line in plan if "SCAN reconciliation" in line or "Seq Scan" in line], plan


def test_what_is_billed_and_not_divided_yet_still_counts_as_unbilled(
    engine: Engine,
    site: BudgetSite,
    november: Month,
    bills: Any,
    now: int,
    reconcile_november: Callable[..., Any],
) -> None:
    """slurmdbd answers for a day and not for a month: the bill of two days is read, and posted to nobody."""

    class Away:
        def windows(self, month: Month, now: int) -> Any:
            raise UnreachableError("slurmdbd did not answer in time")

    reconcile_november()
    later = now + 3 * 86400
    known = bills.rows(november)
    for number in (1, 2):
        more = (replace(row, day=row.day + timedelta(days=number)) for row in known if row.day == day_of(now))
        bills.months[november] = (*bills.rows(november), *more)
    with pytest.raises(UnreachableError):
        reconcile(engine, site, november, bills, Away(), later)
    found = measure(engine, site, Running(now - 86400), later)["nlp-lab-a"]
    assert found.unbilled == found.per_hour * ((later - day_start(day_of(now)) - 86400) // 3600)


@pytest.mark.parametrize("was_posted", [True, False])
def test_what_is_billed_and_not_divided_yet_counts_beside_own_nodes_that_are_billed_today(
    was_posted: bool, engine: Engine, site: BudgetSite, november: Month, bills: Any, jobs: Any, now: int
) -> None:
    """The books have today of own nodes, and of the cloud three days less than what was read (or nothing)."""

    class Own:
        name = "rate-card"
        day = day_of(now)

        def rows(self, month: Month) -> Any:
            words = (
                self.name,
                self.day,
                "shared",
                "node-hours",
                site.metric,
                "USD",
                Decimal(24),
                Decimal(12),
            )
            return [BillRow(*words)]

    class Away:
        def windows(self, month: Month, now: int) -> Any:
            raise UnreachableError("slurmdbd did not answer in time")

    own, known = Own(), bills.rows(november)
    bills.months[november] = known if was_posted else ()
    reconcile(engine, site, november, Combined((bills, own)), jobs, now)
    own.day = day_of(now + 3 * 86400)
    reconcile(engine, site, november, Combined((bills, own)), jobs, now + 3 * 86400)
    more = [replace(row, day=row.day + timedelta(days=3)) for row in known if row.day == day_of(now)]
    bills.months[november] = (*known, *more)
    later = now + 3 * 86400 + 60
    with pytest.raises(UnreachableError):
        reconcile(engine, site, november, Combined((bills, own)), Away(), later)
    found = measure(engine, site, Running(now - 20 * 86400), later)["nlp-lab-a"]
    first = day_of(now) + timedelta(days=1) if was_posted else day_of(later) - timedelta(days=LONGEST_DAYS)
    hours = Decimal(later - day_start(first)) / 3600
    assert abs(found.unbilled - found.per_hour * hours) < Decimal("0.0001")


def test_of_a_bill_that_does_not_come_only_the_last_days_are_guessed(
    engine: Engine, site: BudgetSite, now: int, reconcile_november: Callable[..., Any]
) -> None:
    reconcile_november()
    late = now + 20 * 86400
    jobs = Running(now)
    found = measure(engine, site, jobs, late)
    assert jobs.asked == [day_of(late) - timedelta(days=LONGEST_DAYS)]
    hours = (late - day_start(jobs.asked[0])) // 3600
    assert found["nlp-lab-a"].unbilled == found["nlp-lab-a"].per_hour * hours


def test_two_timers_at_the_same_second_make_one_reading(
    engine: Engine, site: BudgetSite, now: int, reconcile_november: Callable[..., Any]
) -> None:
    reconcile_november()
    jobs = Running(now - 3600)
    found = [measure(engine, site, jobs, now) for _ in range(2)]
    assert found[0] == found[1]
    with reading(engine) as session:
        assert last_burn(session, site, site.by_name["nlp"]) == (now, found[0]["nlp-lab-a"])


def test_when_nothing_runs_any_more_the_reading_says_so(
    engine: Engine, site: BudgetSite, now: int, reconcile_november: Callable[..., Any]
) -> None:
    reconcile_november()
    measure(engine, site, Running(now - 60), now)

    class Nobody:
        def since(self, day: date, now: int) -> Iterable[JobRecord]:
            return []

    measure(engine, site, Nobody(), now + 1)
    outlook = read_outlook(engine, site, site.by_name["nlp"], now + 1)
    assert outlook is not None
    assert outlook.burn == Burn()


def test_a_reading_of_a_clock_that_was_ahead_counts_until_the_next_one(
    engine: Engine, site: BudgetSite, now: int
) -> None:
    measure(engine, site, Running(now - 60), now + 365 * 86400)

    class Nobody:
        def since(self, day: date, now: int) -> Iterable[JobRecord]:
            return []

    measure(engine, site, Nobody(), now)
    with reading(engine) as session:
        assert last_burn(session, site, site.by_name["nlp"]) == (now, Burn())
        assert burn_of_all(session, site)["nlp"] == (now, Burn())


@pytest.mark.parametrize("twice", [False, True])
def test_a_round_tells_once(
    engine: Engine, site: BudgetSite, now: int, reconcile_november: Callable[..., Any], twice: bool
) -> None:
    """nlp has spent four fifths of its budget, and its address is told; cv has nobody to be told."""
    reconcile_november()

    class Mailbox:
        def __init__(self) -> None:
            self.got: list[str] = []

        def send(self, message: Any) -> None:
            self.got.append(f"{message.target} {message.body['kind']} {message.body['threshold_percent']}")

    mailbox = Mailbox()
    watcher = Watcher(engine, Running(now - 60), {"mail": mailbox})
    rounds = [watcher.look(site, now + n) for n in range(1 + twice)]
    assert rounds[0].alerts >= len(mailbox.got) == rounds[0].delivered.sent > 0
    assert all(line.startswith("nlp-head@uni.example ") for line in mailbox.got)
    assert [each.alerts for each in rounds[1:]] == [0] * twice
    assert Decimal(0) < sum((each.delivered.sent for each in rounds), Decimal(0)) == len(mailbox.got)
