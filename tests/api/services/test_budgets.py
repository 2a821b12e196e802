"""Budgets over time: the site file's, people's over it, splits and approvals; on both databases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import Engine, select, text
from sqlalchemy.exc import DBAPIError

from api.db.access_models import AuditEntry
from api.db.engine import reading, writing
from api.services.budget_page import read_budget
from api.services.budgets import (
    Change,
    Stored,
    approve,
    record_site,
    set_budget,
    split,
    versions,
    with_budgets,
)
from api.services.spending import read_outlook
from hpctools.budget.allowance import Calendar, Enforcement, Spec, in_effect
from hpctools.budget.tree import BudgetSite
from hpctools.errors import BudgetError

TODAY = date(2026, 11, 21)
FIRST = date(2026, 11, 1)


@pytest.fixture
def change(now: int) -> Change:
    return Change("operator:root", now, "the dean said so")


def current(engine: Engine, site: BudgetSite, name: str, day: date = TODAY) -> Stored | None:
    with reading(engine) as session:
        return in_effect(versions(session, site.by_name[name], TODAY), day)


def spec_of(site: BudgetSite, name: str, **more: Any) -> Spec:
    spec = site.by_name[name].spec
    assert spec is not None
    return replace(spec, **more)


def test_the_site_files_budget_counts_from_the_beginning(engine: Engine, site: BudgetSite) -> None:
    found = current(engine, site, "nlp", date(2020, 5, 5))
    assert found is not None
    assert (found.spec, found.id, found.from_site) == (site.by_name["nlp"].spec, None, True)
    assert current(engine, site, "nlp-lab-a") is None


def test_a_person_changes_it_and_the_trail_says_so(engine: Engine, site: BudgetSite, change: Change) -> None:
    spec = spec_of(site, "nlp", amount=Decimal("30000.50"))
    set_budget(engine, site, site.by_name["nlp"], spec, FIRST, change)
    found = current(engine, site, "nlp")
    assert found is not None
    assert (found.spec.amount, found.made_by, found.why) == (
        Decimal("30000.5"),
        "operator:root",
        "the dean said so",
    )
    before = current(engine, site, "nlp", date(2026, 10, 31))
    assert before is not None
    assert before.spec.amount == 25000
    with reading(engine) as session:
        entry = session.scalars(select(AuditEntry)).one()
        assert (entry.action, entry.subject, entry.principal) == ("budget.set", "nlp", "operator:root")
        assert '"amount":"25000.00"' in entry.before
        assert '"amount":"30000.50"' in entry.after
    changed = with_budgets(engine, site, TODAY)
    assert changed.by_name["nlp"].budget is not None
    assert changed.by_name["nlp"].budget.amount == Decimal("30000.5")
    assert changed.by_name["cv"] == site.by_name["cv"]


def test_a_change_of_the_site_file_is_the_newest_word(
    engine: Engine, site: BudgetSite, change: Change
) -> None:
    nlp = site.by_name["nlp"]
    set_budget(engine, site, nlp, spec_of(site, "nlp", amount=Decimal(1)), FIRST, change)
    newer = replace(nlp, spec=spec_of(site, "nlp", amount=Decimal(7)))
    with reading(engine) as session:
        assert [row.spec.amount for row in versions(session, nlp, TODAY)] == [25000, 1]
        assert [row.spec.amount for row in versions(session, newer, TODAY)] == [25000, 1, 7]


def test_of_two_words_for_one_period_the_newer_counts_whatever_their_days(
    engine: Engine, site: BudgetSite, change: Change
) -> None:
    """The site file is changed on the 21st; who sets a budget then sets it from the 1st on, for all November.
    What was planned for December stays."""
    nlp = site.by_name["nlp"]
    with writing(engine) as session:
        record_site(session, site, change.at)
    planned = spec_of(site, "nlp", amount=Decimal(9))
    set_budget(engine, site, nlp, planned, date(2026, 12, 1), change)
    by_file = tuple(
        replace(each, spec=spec_of(site, "nlp", amount=Decimal(7))) if each is nlp else each
        for each in site.accounts
    )
    newer = replace(site, accounts=by_file)
    set_budget(engine, newer, newer.by_name["nlp"], spec_of(site, "nlp", amount=Decimal(8)), FIRST, change)
    days = (date(2026, 10, 31), TODAY, date(2026, 12, 1))
    found = [current(engine, newer, "nlp", day) for day in days]
    assert [row.spec.amount if row else None for row in found] == [25000, 8, 9]
    outlook = read_outlook(engine, newer, newer.by_name["nlp"], change.at)
    assert outlook is not None
    assert outlook.spendable.amount == 8


def test_a_budget_that_left_the_site_file_is_gone_and_a_persons_stays(
    engine: Engine, site: BudgetSite, change: Change
) -> None:
    with writing(engine) as session:
        record_site(session, site, change.at)
    set_budget(engine, site, site.by_name["cv"], spec_of(site, "cv", amount=Decimal(5)), FIRST, change)
    with reading(engine) as session:
        assert versions(session, replace(site.by_name["nlp"], spec=None), TODAY) == []
        assert len(versions(session, replace(site.by_name["cv"], spec=None), TODAY)) == 2


def test_what_the_site_file_says_is_recorded_once(engine: Engine, site: BudgetSite, change: Change) -> None:
    for _ in range(3):
        with writing(engine) as session:
            record_site(session, site, change.at)
    with reading(engine) as session:
        assert [len(versions(session, each, TODAY)) for each in site.accounts if each.spec] == [1] * 4


def test_nothing_is_changed_in_periods_that_are_over(
    engine: Engine, site: BudgetSite, change: Change
) -> None:
    with pytest.raises(BudgetError, match=r"2026-10-31 lies in a period that is over.*2026-11-01 or later"):
        set_budget(engine, site, site.by_name["nlp"], spec_of(site, "nlp"), date(2026, 10, 31), change)


def test_another_currency_than_the_bills_is_refused(engine: Engine, site: BudgetSite, change: Change) -> None:
    with pytest.raises(BudgetError, match="in EUR and the site's bill in USD"):
        set_budget(engine, site, site.by_name["nlp"], Spec(Decimal(1), "EUR"), FIRST, change)


def test_a_department_is_split_among_its_labs(engine: Engine, site: BudgetSite, change: Change) -> None:
    parts = {"nlp-lab-a": Decimal(15000), "nlp-lab-b": Decimal(10000)}
    split(engine, site, site.by_name["nlp"], parts, change)
    found = [current(engine, site, name) for name in parts]
    assert [row.spec.amount if row else None for row in found] == [15000, 10000]
    assert all(row and row.spec.alert_at == (50, 75, 90, 100) for row in found)
    with pytest.raises(BudgetError, match=r"nlp add up to 25000\.01 USD"):
        split(engine, site, site.by_name["nlp"], {"nlp-lab-b": Decimal("10000.01")}, change)
    smaller = spec_of(site, "nlp", amount=Decimal(24999))
    with pytest.raises(BudgetError, match="nlp add up to 25000 USD, and it has 24999"):
        set_budget(engine, site, site.by_name["nlp"], smaller, FIRST, change)
    allowed = spec_of(site, "nlp", amount=Decimal(24999), over_commit=True)
    set_budget(engine, site, site.by_name["nlp"], allowed, FIRST, change)


def test_a_part_is_no_less_than_what_those_below_it_were_given(
    engine: Engine, site: BudgetSite, change: Change
) -> None:
    """A lab with groups of its own, the first of which was given 9,000."""
    lab = site.by_name["nlp-lab-a"]
    group = replace(lab, name="nlp-lab-a-1", parent="nlp-lab-a")
    deep = replace(site, accounts=(*site.accounts, group))
    split(engine, deep, deep.by_name["nlp"], {"nlp-lab-a": Decimal(15000)}, change)
    split(engine, deep, lab, {group.name: Decimal(9000)}, change)
    with pytest.raises(BudgetError, match="nlp-lab-a add up to 9000 USD, and it has 8999"):
        split(engine, deep, deep.by_name["nlp"], {"nlp-lab-a": Decimal(8999)}, change)
    found = current(engine, deep, "nlp-lab-a")
    assert found is not None
    assert found.spec.amount == 15000
    split(engine, deep, deep.by_name["nlp"], {"nlp-lab-a": Decimal(9000)}, change)


def test_a_lower_tier_is_one_that_the_site_opens_below_its_default(
    engine: Engine, site: BudgetSite, change: Change
) -> None:
    """Slurm's limits are changed by an administrator: critical would lift the lab before everybody."""
    lab = site.by_name["dl-lab-a"]
    assert lab.lower_tiers == ("low", "preemptible")
    for tier in ("critical", "high", "medium", "elastic", "nope"):
        lifted = Spec(Decimal("0.01"), "USD", enforcement=Enforcement("lower-tier", 1, 0, tier))
        expected = f"'{tier}' is no lower tier of dl-lab-a; name one .* low, preemptible"
        with pytest.raises(BudgetError, match=expected):
            set_budget(engine, site, lab, lifted, FIRST, change)
    low = Spec(Decimal(5000), "USD", enforcement=Enforcement("lower-tier", 100, 0, "low"))
    set_budget(engine, site, lab, low, FIRST, change)


def test_a_split_is_made_as_a_whole_or_not(engine: Engine, site: BudgetSite, change: Change) -> None:
    with pytest.raises(BudgetError):
        split(
            engine,
            site,
            site.by_name["nlp"],
            {"nlp-lab-a": Decimal(1), "nlp-lab-b": Decimal(10**6)},
            change,
        )
    assert current(engine, site, "nlp-lab-a") is None
    with pytest.raises(BudgetError, match="cv-lab-a is not directly below nlp; there are: nlp-lab-a"):
        split(engine, site, site.by_name["nlp"], {"cv-lab-a": Decimal(1)}, change)


def test_a_lab_cannot_have_more_than_its_department(engine: Engine, site: BudgetSite, change: Change) -> None:
    lab = site.by_name["dl-lab-a"]
    with pytest.raises(BudgetError, match="the budget of dl add up to 12001"):
        set_budget(engine, site, lab, spec_of(site, "dl-lab-a", amount=Decimal(12001)), FIRST, change)
    yearly = spec_of(site, "dl-lab-a", calendar=Calendar("yearly"))
    with pytest.raises(BudgetError, match="other periods"):
        set_budget(engine, site, lab, yearly, FIRST, change)


def test_the_database_refuses_to_rewrite_what_was_set(
    engine: Engine, site: BudgetSite, change: Change
) -> None:
    set_budget(engine, site, site.by_name["nlp"], spec_of(site, "nlp"), FIRST, change)
    for statement in ("UPDATE budget_version SET spec = '{}'", "DELETE FROM budget_version"):
        with pytest.raises(DBAPIError, match="append-only"), engine.begin() as connection:
            connection.execute(text(statement))


@pytest.mark.parametrize(
    ("amount", "until", "expected"),
    [("0", date(2026, 12, 1), "nothing"), ("-1", date(2026, 12, 1), "nothing"), ("1", TODAY, "is over")],
)
def test_approvals_that_cannot_be(
    engine: Engine, site: BudgetSite, change: Change, amount: str, until: date, expected: str
) -> None:
    with pytest.raises(BudgetError, match=expected):
        approve(engine, site.by_name["nlp"], Decimal(amount), until, change)


def test_the_outlook_of_a_department(
    engine: Engine, site: BudgetSite, change: Change, now: int, reconcile_november: Callable[..., Any]
) -> None:
    """What the statement says, what was approved beyond the budget, and where it leads."""
    reconcile_november()
    approve(engine, site.by_name["nlp"], Decimal(1000), date(2026, 12, 24), change)
    found = read_outlook(engine, site, site.by_name["nlp"], now)
    assert found is not None
    assert (found.spendable.total, found.spendable.carried) == (Decimal(26000), Decimal(0))
    assert found.billed > 0
    assert (found.left, found.burn.jobs) == (Decimal(26000) - found.billed, 0)
    assert found.forecast is not None
    assert found.spent <= found.forecast.low <= found.forecast.expected <= found.forecast.high
    assert found.forecast.days == 14  # of 20 complete days the last two weeks
    assert not found.is_stale(now + 3600, 3600)
    assert found.is_stale(now + 3601, 3600)


def test_without_a_budget_amounts_are_in_the_currency_of_the_site(
    engine: Engine, site: BudgetSite, now: int
) -> None:
    own_nodes = replace(site, currency="EUR")
    lab, department = site.by_name["nlp-lab-a"], site.by_name["nlp"]
    assert read_budget(engine, own_nodes, lab, now).currency == "EUR"
    assert read_budget(engine, own_nodes, department, now).currency == "USD"


def test_accounts_without_a_budget_have_no_outlook(engine: Engine, site: BudgetSite, now: int) -> None:
    assert read_outlook(engine, site, site.by_name["nlp-lab-a"], now) is None
