"""Whether the store is what was put into it: every figure again from the documents that it was made from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal

from polars.exceptions import PanicException, PolarsError
from sqlalchemy import select
from sqlalchemy.orm import Session

from api.db.bill_models import BillDay
from api.db.bill_store import counted, current_frame
from api.db.day_store import Inputs, KnownDay, costs_digest, known_days, stored_costs
from api.db.exact import exact_sum
from api.db.job_store import batches
from api.db.ledger import lines, posted
from api.db.models import AttributionRun, ClearingEntry, JobBatch, LedgerEntry, ReservationPull
from api.db.own_nodes_store import history
from api.db.reservation_store import digest_of
from api.services import audit
from api.services.division import divided, furthest, inputs_of, kept_for
from hpctools.budget.attribution_table import DayBill, DayCosts, amount, day_bills
from hpctools.budget.bill_table import digest, unpack
from hpctools.budget.money import ZERO, total
from hpctools.budget.month import Month
from hpctools.budget.placing import place_table
from hpctools.budget.tree import BudgetSite
from hpctools.errors import BudgetError

_AT_ONCE = 16
_NOBILL = DayBill({}, {})


@dataclass(frozen=True)
class Finding:
    """Something that is not as it was stored.

    Attributes:
        where: what it is about.
        what: what is wrong.
    """

    where: str
    what: str


@dataclass
class Verified:
    """What was looked at, and what was found.

    Attributes:
        months, days, runs, documents: how many.
        waiting: days whose bill, jobs or rules have changed since: they are divided at the next run.
    """

    months: int = 0
    days: int = 0
    runs: int = 0
    documents: int = 0
    waiting: int = 0
    findings: list[Finding] = field(default_factory=list)

    def found(self, where: object, what: str) -> None:
        """Note that something is wrong."""
        self.findings.append(Finding(str(where), what))


def verify(session: Session, site: BudgetSite, sources: tuple[str, ...], month: Month | None) -> Verified:
    """Check the store; changes nothing.

    The audit trail's chain; entries and clearing entries of every run sum to zero; documents have their
    digests; and of the months: parts of a day sum to its bill, entries to the parts, and the parts come out
    again when the day is divided anew.

    Args:
        sources: of the bill.
        month: only this one's days and documents; all when None.

    Raises:
        UnreachableError: the database does not answer.
    """
    result = Verified()
    broken = audit.verify(session)
    if broken is not None:
        result.found(f"audit entry {broken.id}", broken.reason)
    _balance(session, result)
    _documents(session, month, result)
    for each in [month] if month else _months(session, site.metric):
        result.months += 1
        try:
            _month(session, site, each, sources, result)
        except (BudgetError, PolarsError, PanicException) as error:
            result.found(each, f"its documents cannot be read: {error}")
    return result


def _months(session: Session, metric: str) -> list[Month]:
    query = select(AttributionRun.month).where(AttributionRun.metric == metric).distinct()
    return [Month.parse(text) for text in sorted(session.scalars(query))]


def _balance(session: Session, result: Verified) -> None:
    sides: list[Mapping[int, Decimal]] = []
    for table in (LedgerEntry, ClearingEntry):
        query = select(table.run_id, exact_sum(table.amount)).group_by(table.run_id)
        sides.append({row[0]: row[1] for row in session.execute(query)})
    entries, clearing = sides
    result.runs += len({*entries, *clearing})
    for run in sorted({*entries, *clearing}):
        left = total((entries.get(run, ZERO), clearing.get(run, ZERO)))
        if left:
            result.found(f"run {run}", f"its entries and clearing entries sum to {left:f} and not to zero")


def _documents(session: Session, month: Month | None, result: Verified) -> None:
    documents = (*_batches(session, month), *_bills(session, month), *_reservations(session, month))
    for kind, number, day, good in documents:
        result.documents += 1
        if not good:
            result.found(f"{kind} {number} of {day}", "its content is not what its digest says")


def _batches(session: Session, month: Month | None) -> Iterator[tuple[str, int, date, bool]]:
    query = select(JobBatch.id, JobBatch.day, JobBatch.digest, JobBatch.content).order_by(JobBatch.id)
    if month is not None:
        query = query.where(JobBatch.day >= month.start, JobBatch.day < month.end)
    for number, day, stated, content in session.execute(query).yield_per(_AT_ONCE):
        yield "jobs document", number, day, hashlib.sha256(content).hexdigest() == stated


def _bills(session: Session, month: Month | None) -> Iterator[tuple[str, int, date, bool]]:
    query = select(BillDay.id, BillDay.day, BillDay.digest, BillDay.content).order_by(BillDay.id)
    if month is not None:
        query = query.where(BillDay.day >= month.start, BillDay.day < month.end)
    for number, day, stated, content in session.execute(query).yield_per(_AT_ONCE):
        yield "bill document", number, day, _says(content, stated)


def _reservations(session: Session, month: Month | None) -> Iterator[tuple[str, int, date, bool]]:
    query = select(ReservationPull).order_by(ReservationPull.id)
    if month is not None:
        query = query.where(ReservationPull.month == str(month))
    for row in session.scalars(query):
        yield (
            "reservations document",
            row.id,
            Month.parse(row.month).start,
            digest_of(row.content) == row.digest,
        )


def _says(content: bytes, stated: str) -> bool:
    try:
        return digest(unpack(content)) == stated
    except BudgetError:
        return False


def _month(
    session: Session, site: BudgetSite, month: Month, sources: tuple[str, ...], result: Verified
) -> None:
    """The days of a month, without those that only the first release has divided."""
    told = counted(session, sources, site.metric, month)
    bills = day_bills(place_table(current_frame(session, told, site.metric, month), site))
    sites = history(session).sites(site, month.days)
    infos = batches(session, month, furthest(sites))
    known = known_days(session, month, site.metric)
    kept = kept_for(session, site, month)
    present = inputs_of(sites, bills, infos, 0, kept)
    result.days += len(known)
    for day in known.values():
        costs = _stored(session, day, result)
        if costs is None:
            continue
        _entries(session, site.metric, day.day, costs, result)
        if day.inputs.bill == present[day.day].bill:
            _conserved(day.day, bills.get(day.day, _NOBILL), costs, result)
    same = {day.day: day for day in known.values() if _comparable(day.inputs, present[day.day])}
    result.waiting += len(known) - len(same)
    as_counted = {name: day.inputs for name, day in same.items()}
    for day_, new in divided(session, sites, sorted(same), bills, infos, as_counted, kept):
        if new.costs_digest != same[day_].costs_digest:
            result.found(day_, "divided anew from its bill and jobs, its parts are others than those stored")


def _comparable(stored: Inputs, present: Inputs) -> bool:
    """Whether bill, jobs and rules are still those that a day was divided by."""
    return stored == replace(present, counted_to=stored.counted_to)


def _stored(session: Session, day: KnownDay, result: Verified) -> DayCosts | None:
    result.documents += 1
    costs = None
    with suppress(PolarsError, PanicException):
        costs = stored_costs(session, day.id)
    if costs is None or costs_digest(costs) != day.costs_digest:
        result.found(f"parts of {day.day}", "the content is not what its digest says")
        return None
    return costs


def _entries(session: Session, metric: str, day: date, costs: DayCosts, result: Verified) -> None:
    entries, parts = posted(session, metric, [day]), lines(day, costs)
    for key in sorted({*entries, *parts}):
        one, other = entries.get(key, ZERO), parts.get(key, ZERO)
        if one != other:
            where = " ".join(str(word) for word in key if word)
            result.found(where, f"its entries sum to {one:f}, the parts of the day to {other:f}")


def _conserved(day: date, bill: DayBill, costs: DayCosts, result: Verified) -> None:
    billed: dict[str, list[Decimal]] = {}
    for (_, currency, _), money in bill.cells.items():
        billed.setdefault(currency, []).append(money)
    parted: dict[str, list[Decimal]] = {}
    for currency, units in costs.charges.select("currency", "units").iter_rows():
        parted.setdefault(currency, []).append(amount(units, costs.places))
    for currency in sorted({*billed, *parted}):
        one, other = total(billed.get(currency, ())), total(parted.get(currency, ()))
        if one != other:
            result.found(f"{day} {currency}", f"the bill is {one:f}, its parts sum to {other:f}")
