"""Idle cost by the owners of reservations: from slurmdbd's records to the ledger, on both databases."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import Engine

from api.db.engine import reading
from api.services.reconcile import reconcile
from api.services.statements import read_statement
from api.services.verification import verify
from hpctools.budget.bill import BillRow
from hpctools.budget.month import DAY_SECONDS, Month, day_start
from hpctools.budget.tree import BudgetSite
from hpctools.slurm.reservations import Reservation

HOUR = 3600


@dataclass
class Kept:
    """slurmdbd's records of reservations, which tests may change."""

    known: list[Reservation] = field(default_factory=list)
    asked: int = 0

    def reservations(self, month: Month) -> tuple[Reservation, ...]:
        self.asked += 1
        return tuple(self.known)


@dataclass
class Rig:
    """A site whose four reserved nodes cost 96 on the 3rd and on the 4th, a dollar an hour; no job runs."""

    engine: Engine
    site: BudgetSite
    month: Month
    bills: Any
    jobs: Any
    kept: Kept

    def reconcile(self, at: int) -> Any:
        return reconcile(self.engine, self.site, self.month, self.bills, self.jobs, at, self.kept)

    def idle(self, account: str) -> Decimal:
        return read_statement(self.engine, self.site, self.site.by_name[account], self.month).idle

    def is_whole(self) -> bool:
        with reading(self.engine) as session:
            found = verify(session, self.site, ("aws-ce",), None)
        return (found.findings, found.waiting) == ([], 0)


@pytest.fixture
def rig(engine: Engine, site: BudgetSite, november: Month, bills: Any, jobs: Any) -> Rig:
    days = november.days[2:4]
    bills.months = {
        november: tuple(
            BillRow("aws-ce", day, "reserved", "u", site.metric, "USD", Decimal(96), Decimal(96))
            for day in days
        )
    }
    jobs.records = []
    return Rig(engine, replace(site, idle="reservation-owner"), november, bills, jobs, Kept())


def reservation(start: int, hours: int, *accounts: str) -> Reservation:
    return Reservation("uni-gpu", "r", start, start + hours * HOUR, "reserved-[1-2]", accounts)


def test_owners_bear_what_was_kept_for_them_and_a_late_change_is_a_correction(rig: Rig, now: int) -> None:
    third = day_start(rig.month.days[2])
    rig.kept.known = [reservation(third + 12 * HOUR, 18, "nlp")]
    rig.reconcile(now)
    # Two nodes, from noon to midnight and six hours of the 4th.
    assert (rig.idle("nlp"), rig.idle("cv")) == (Decimal(36), 0)
    assert rig.reconcile(now + 60).entries == 0
    assert rig.is_whole()

    # It becomes known that cv had it from midnight on: the 3rd stays as it is.
    rig.kept.known = [reservation(third + 12 * HOUR, 12, "nlp"), reservation(third + DAY_SECONDS, 6, "cv")]
    outcome = rig.reconcile(now + 120)
    assert (rig.idle("nlp"), rig.idle("cv")) == (Decimal(24), Decimal(12))
    assert outcome.entries == 2
    assert rig.reconcile(now + 180).entries == 0
    assert rig.is_whole()


def test_by_another_policy_nobody_asks(rig: Rig, now: int) -> None:
    rig.site = replace(rig.site, idle="proportional")
    rig.kept.known = [reservation(day_start(rig.month.days[2]), 24, "nlp")]
    rig.reconcile(now)
    assert (rig.kept.asked, rig.idle("nlp")) == (0, 0)
    # A change of the policy divides what is there again.
    rig.site = replace(rig.site, idle="reservation-owner")
    rig.reconcile(now + 60)
    assert (rig.kept.asked, rig.idle("nlp")) == (1, Decimal(48))


def test_what_slurmdbd_has_purged_later_stays(rig: Rig, now: int) -> None:
    rig.kept.known = [reservation(day_start(rig.month.days[2]), 24, "nlp")]
    rig.reconcile(now)
    rig.kept.known = []
    late = day_start(rig.month.end) + 46 * DAY_SECONDS
    assert rig.reconcile(late).entries == 0
    assert (rig.kept.asked, rig.idle("nlp")) == (1, Decimal(48))


def test_one_that_was_deleted_soon_is_taken_back(rig: Rig, now: int) -> None:
    rig.kept.known = [reservation(day_start(rig.month.days[2]), 24, "nlp")]
    rig.reconcile(now)
    rig.kept.known = []
    rig.reconcile(now + 60)
    assert rig.idle("nlp") == 0
    assert rig.is_whole()
