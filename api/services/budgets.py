"""Budgets as they were set: by the site file, and by people over it. The newest word counts."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal

from sqlalchemy import Engine, func, select
from sqlalchemy.orm import Session

from api.auth.principal import Principal
from api.db.budget_models import BudgetApproval, BudgetVersion
from api.db.engine import reading, writing
from api.services import audit
from api.services.kept import Kept, KeptByStore, Same
from api.services.store_state import money_state
from hpctools.budget.allowance import Approval, Spec, Version, check_split, in_effect, period_of
from hpctools.budget.from_site import monthly
from hpctools.budget.month import day_of
from hpctools.budget.spec_words import parse_spec, spell_spec
from hpctools.budget.tree import Account, BudgetSite
from hpctools.errors import BudgetError

BEGINNING = date(2000, 1, 1)
"""From when a site file's first budget counts: as long as there is a bill."""
SITE_FILE = "the site file"

_SITES = 4
_kept: KeptByStore[Kept[BudgetSite]] = KeptByStore(lambda: Kept(_SITES))


@dataclass(frozen=True)
class Stored(Version):
    """A budget from some day on, and where it comes from.

    Attributes:
        id: None for what the site file says and nobody has recorded yet.
        from_site: the site file said so.
        made_at: Unix seconds; None with `id`.
    """

    id: int | None = None
    from_site: bool = False
    made_at: int | None = None
    made_by: str = SITE_FILE
    why: str = ""


@dataclass(frozen=True)
class Change:
    """Who changes something, when and why.

    Attributes:
        principal: who asks.
        at: Unix seconds.
        seen: what they saw (`state_of`, and `parts_state` for a split); it is refused when it is otherwise by
            now. None for whatever it is.
    """

    principal: Principal | str
    at: int
    why: str = ""
    seen: str | None = None

    @property
    def by(self) -> str:
        """Their name."""
        return self.principal if isinstance(self.principal, str) else self.principal.name

    @property
    def today(self) -> date:
        """The UTC day."""
        return day_of(self.at)


class OvertakenError(BudgetError):
    """Somebody else changed it since it was looked at."""


def state_of(session: Session, account: Account, today: date) -> str:
    """What an account's budgets and approvals are now, for `Change.seen`.

    That the site file's word is recorded changes nothing of it.
    """
    told = [(row.spec, None if row.from_site else row.id) for row in versions(session, account, today)]
    granted = select(func.max(BudgetApproval.id)).where(BudgetApproval.account == account.name)
    return hashlib.sha256(repr((told, session.scalar(granted))).encode()).hexdigest()[:32]


def parts_state(session: Session, site: BudgetSite, account: Account, today: date) -> str:
    """What the budgets of an account and of those directly below it are now, for `Change.seen` of a split."""
    told = [state_of(session, each, today) for each in (account, *site.children(account.name))]
    return hashlib.sha256(repr(told).encode()).hexdigest()[:32]


def versions(session: Session, account: Account, today: date) -> list[Stored]:
    """All budgets that an account had and has, by the day from which they count.

    What the site file says now and did not say before comes last: it counts from today, or from the
    beginning if it is the first.
    """
    query = select(BudgetVersion).where(BudgetVersion.account == account.name).order_by(BudgetVersion.id)
    return _with_site([_stored(row) for row in session.scalars(query)], account, today)


def versions_of(session: Session, accounts: Collection[Account], today: date) -> dict[str, list[Stored]]:
    """The same for several accounts, in one query."""
    names = [account.name for account in accounts]
    query = select(BudgetVersion).where(BudgetVersion.account.in_(names)).order_by(BudgetVersion.id)
    rows: defaultdict[str, list[Stored]] = defaultdict(list)
    for row in session.scalars(query):
        rows[row.account].append(_stored(row))
    return {account.name: _with_site(rows[account.name], account, today) for account in accounts}


def _with_site(rows: list[Stored], account: Account, today: date) -> list[Stored]:
    said = [row.spec for row in rows if row.from_site]
    if account.spec is not None and said[-1:] != [account.spec]:
        rows.append(Stored(today if rows else BEGINNING, account.spec, from_site=True))
    if account.spec is None and rows and rows[-1].from_site:
        return []
    return _in_order(rows)


def _in_order(rows: Sequence[Stored]) -> list[Stored]:
    """By the day from which they count; of those that count for one period the newest word comes last.

    Args:
        rows: the oldest word first.
    """
    days: list[date] = []
    for row in rows:
        period = period_of(row.spec.calendar, row.effective)
        before = [day for day in days if period is not None and day < period.end]
        days.append(max([row.effective, *before]))
    return [row for _, row in sorted(zip(days, rows, strict=True), key=lambda pair: pair[0])]


def approvals_of_all(session: Session) -> dict[str, list[Approval]]:
    """What was granted beyond each account's budget, ever."""
    found: defaultdict[str, list[Approval]] = defaultdict(list)
    for row in session.scalars(select(BudgetApproval).order_by(BudgetApproval.id)):
        found[row.account].append(Approval(row.granted, row.amount, row.until))
    return found


def approvals(session: Session, account: str) -> list[Approval]:
    """What was granted beyond an account's budget, ever."""
    query = select(BudgetApproval).where(BudgetApproval.account == account).order_by(BudgetApproval.id)
    return [Approval(row.granted, row.amount, row.until) for row in session.scalars(query)]


def record_site(session: Session, site: BudgetSite, at: int) -> None:
    """Keep what the site file says and did not say before: alerts refer to it, and periods that are over."""
    for account in site.accounts:
        for row in versions(session, account, day_of(at)):
            if row.id is None:
                _insert(session, account.name, row, Change(SITE_FILE, at, "the site file says so"))


def is_new(session: Session, site: BudgetSite, today: date) -> bool:
    """Whether the site file says what `record_site` has not kept yet."""
    known = versions_of(session, site.accounts, today)
    return any(row.id is None for rows in known.values() for row in rows)


def tier_is_open(account: Account, budget: Stored) -> bool:
    """Whether a budget may have jobs run in the tier that it names, by the site file as it is now.

    Slurm's limits are changed by an administrator: what people set must not lift an account anywhere.
    """
    tier = budget.spec.enforcement.tier
    return not tier or budget.from_site or tier in account.lower_tiers


def with_budgets(engine: Engine, site: BudgetSite, today: date) -> BudgetSite:
    """The site with the monthly budgets of now; `spec` stays what the site file says.

    The same object as before where nothing was changed since: what is worked out for it can be kept by it.
    """
    newest = money_state(engine).budget
    if newest is None:
        return site
    key = (Same(site), today, newest)
    return _kept.of(engine).get(key, lambda: _with_budgets(engine, site, today))


def _with_budgets(engine: Engine, site: BudgetSite, today: date) -> BudgetSite:
    with reading(engine) as session:
        changed = set(session.scalars(select(BudgetVersion.account).where(~BudgetVersion.from_site)))
        accounts = tuple(
            _with_budget(session, account, today) if account.name in changed else account
            for account in site.accounts
        )
    return replace(site, accounts=accounts) if changed else site


def set_budget(
    engine: Engine, site: BudgetSite, account: Account, spec: Spec, effective: date, change: Change
) -> Stored:
    """Give an account another budget.

    Raises:
        OvertakenError: it is otherwise than they saw.
        BudgetError: it is in another currency than the bill, begins in a period that is over, is more than
            the account above has to give, or less than those below were given, or its tier is none for it.
    """
    with writing(engine) as session:
        _demand_seen(account, change, lambda: state_of(session, account, change.today))
        record_site(session, site, change.at)
        return _set(session, site, account, spec, effective, change)


def split(
    engine: Engine, site: BudgetSite, account: Account, parts: Mapping[str, Decimal], change: Change
) -> list[Stored]:
    """Give parts of an account's budget to those directly below it, all at once.

    Those that are not named keep theirs; a part that had no budget gets one for the same periods.

    Raises:
        OvertakenError: as `set_budget`.
        BudgetError: the account has no budget, a name is none of those below it, or the parts do not fit:
            they are more than there is, or one is less than those below it were given.
    """
    children = {child.name: child for child in site.children(account.name)}
    strange = sorted(parts.keys() - children.keys())
    if strange:
        raise BudgetError(
            f"{', '.join(strange)} is not directly below {account.name}",
            f"there are: {', '.join(children) or 'none'}",
        )
    with writing(engine) as session:
        _demand_seen(account, change, lambda: parts_state(session, site, account, change.today))
        record_site(session, site, change.at)
        above = in_effect(versions(session, account, change.today), change.today)
        if above is None:
            raise BudgetError(f"{account.name} has no budget to split", "set one first")
        specs = {
            name: _part(session, children[name], above.spec, amount, change.today)
            for name, amount in parts.items()
        }
        _check_parts(session, site, account, above.spec, specs, change.today)
        for name, spec in specs.items():
            _check_parts(session, site, children[name], spec, {}, change.today)
        return [
            _append(session, children[name], spec, _first_day(spec, change.today), change)
            for name, spec in specs.items()
        ]


def approve(engine: Engine, account: Account, amount: Decimal, until: date, change: Change) -> Approval:
    """Grant an account more than its budget, until a day (exclusive).

    Raises:
        OvertakenError: as `set_budget`.
        BudgetError: it is nothing, or over already.
    """
    if amount <= 0:
        raise BudgetError("an approval of nothing", "give an amount above zero")
    if until <= change.today:
        raise BudgetError(f"{until} is over", "give a day after today (UTC), on which the approval ends")
    row = BudgetApproval(
        account=account.name,
        granted=change.today,
        amount=amount,
        until=until,
        made_at=change.at,
        made_by=change.by,
        why=change.why,
    )
    after = {"amount": f"{amount:f}", "until": until.isoformat(), "why": change.why}
    with writing(engine) as session:
        _demand_seen(account, change, lambda: state_of(session, account, change.today))
        session.add(row)
        audit.record(session, change.principal, "budget.approve", account.name, None, after, at=change.at)
    return Approval(change.today, amount, until)


def _demand_seen(account: Account, change: Change, state: Callable[[], str]) -> None:
    """Under the writers' lock: nobody comes in between."""
    if change.seen is not None and change.seen != state():
        raise OvertakenError(
            f"somebody else changed the budget of {account.name} meanwhile",
            "look at it anew and decide again",
        )


def _stored(row: BudgetVersion) -> Stored:
    spec = parse_spec(json.loads(row.spec))
    return Stored(row.effective, spec, row.id, row.from_site, row.made_at, row.made_by, row.why)


def _with_budget(session: Session, account: Account, today: date) -> Account:
    found = in_effect(versions(session, account, today), today)
    return replace(account, budget=monthly(found.spec if found else None))


def _set(
    session: Session, site: BudgetSite, account: Account, spec: Spec, effective: date, change: Change
) -> Stored:
    if spec.currency != site.currency:
        raise BudgetError(
            f"the budget is in {spec.currency} and the site's bill in {site.currency}",
            f"give it in {site.currency}",
        )
    _demand_tier(account, spec, effective)
    if effective < _first_day(spec, change.today):
        raise BudgetError(
            f"{effective} lies in a period that is over, whose budget stays as it was",
            f"give {_first_day(spec, change.today)} or later",
        )
    if account.parent is not None and account.parent in site.by_name:
        parent = site.by_name[account.parent]
        above = in_effect(versions(session, parent, effective), effective)
        _check_parts(session, site, parent, above.spec if above else None, {account.name: spec}, effective)
    _check_parts(session, site, account, spec, {}, effective)
    return _append(session, account, spec, effective, change)


def _demand_tier(account: Account, spec: Spec, effective: date) -> None:
    if not tier_is_open(account, Stored(effective, spec)):
        raise BudgetError(
            f"{spec.enforcement.tier!r} is no lower tier of {account.name}",
            f"name one that its department may use and that comes after the default: "
            f"{', '.join(account.lower_tiers) or 'there is none'}",
        )


def _first_day(spec: Spec, today: date) -> date:
    period = period_of(spec.calendar, today)
    return period.first if period else today


def _part(session: Session, child: Account, above: Spec, amount: Decimal, today: date) -> Spec:
    found = in_effect(versions(session, child, today), today)
    alike = found is not None and found.spec.calendar == above.calendar
    base = found.spec if found is not None and alike else Spec(amount, above.currency, above.calendar)
    alerts = base.alert_at or above.alert_at
    return replace(base, amount=amount, alert_at=alerts)


def _check_parts(
    session: Session,
    site: BudgetSite,
    parent: Account,
    above: Spec | None,
    changed: Mapping[str, Spec],
    day: date,
) -> None:
    """Whether the budgets below an account fit into its own; those of one-off grants are beside it."""
    rest: Iterable[Account] = (each for each in site.children(parent.name) if each.name not in changed)
    others = (in_effect(versions(session, each, day), day) for each in rest)
    check_split(above, [*changed.values(), *(row.spec for row in others if row)], parent.name)


def _append(session: Session, account: Account, spec: Spec, effective: date, change: Change) -> Stored:
    known = in_effect(versions(session, account, change.today), effective)
    row = _insert(session, account.name, Stored(effective, spec), change)
    after = {**spell_spec(spec), "effective": effective.isoformat(), "why": change.why}
    before = spell_spec(known.spec) if known else None
    audit.record(session, change.principal, "budget.set", account.name, before, after, at=change.at)
    return row


def _insert(session: Session, account: str, version: Stored, change: Change) -> Stored:
    row = BudgetVersion(
        account=account,
        effective=version.effective,
        spec=json.dumps(spell_spec(version.spec), sort_keys=True),
        from_site=version.from_site,
        made_at=change.at,
        made_by=change.by,
        why=change.why,
    )
    session.add(row)
    session.flush()
    return _stored(row)
