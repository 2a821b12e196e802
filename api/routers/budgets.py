"""Budgets: read, set, split, exceeded by approval."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from http import HTTPStatus
from typing import Annotated, Generic, TypeVar

from fastapi import APIRouter, Depends, Path, Response
from pydantic import BaseModel
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from api import etags
from api.auth.principal import Principal
from api.db.engine import reading
from api.deps import Ctx, Site, Writer, get_account, visible_account
from api.problems import ProblemError, forbidden, not_found
from api.queries import StrictRoute
from api.routers import problems
from api.schemas.budget import (
    ApprovalIn,
    ApprovalOut,
    BudgetIn,
    ForecastOut,
    OutlookOut,
    PartOut,
    SplitIn,
    SplitOut,
    VersionOut,
    VersionsOut,
)
from api.services.budgets import (
    Change,
    OvertakenError,
    approve,
    parts_state,
    set_budget,
    split,
    state_of,
    versions,
    versions_of,
)
from api.services.spending import Outlook, read_outlook
from hpctools.budget.allowance import in_effect, period_of
from hpctools.budget.month import day_of
from hpctools.budget.spec_words import parse_spec
from hpctools.budget.tree import SITE_ACCOUNT, Account, BudgetSite
from hpctools.errors import BudgetError

router = APIRouter(prefix="/v1/accounts", tags=["budgets"], route_class=StrictRoute)

Seen = Annotated[Account, Depends(get_account)]
Name = Annotated[str, Path(max_length=128, examples=["nlp"])]


@router.get("/{name}/outlook", responses=problems(401, 404))
def get_outlook(context: Ctx, site: Site, account: Seen) -> OutlookOut:
    """What an account may spend in the present period, what it spent, and what runs now."""
    return OutlookOut.of(_outlook(context.engine, site, account, context.clock()))


@router.get("/{name}/forecast", responses=problems(401, 404))
def get_forecast(context: Ctx, site: Site, account: Seen) -> ForecastOut:
    """Where the present period ends, as a range; 404 before there are three complete days."""
    found = _outlook(context.engine, site, account, context.clock()).forecast
    if found is None:
        raise not_found("forecast for this account yet")
    return ForecastOut.of(found)


@router.get("/{name}/budget", responses=problems(401, 404))
def get_budget(context: Ctx, site: Site, account: Seen, response: Response) -> VersionsOut:
    """All budgets that an account had and has; the last one that is effective counts.

    The ETag is for `If-Match` of a change.
    """
    with reading(context.engine) as session:
        known = _known(session, account, context.clock())
    response.headers["ETag"] = known.tag
    return known.told


@router.put("/{name}/budget", responses=problems(401, 403, 404, 412, 422))
def put_budget(
    context: Ctx, site: Site, principal: Writer, name: Name, body: BudgetIn, if_match: etags.IfMatch = None
) -> VersionOut:
    """Give an account another budget. Only for those who may write to the account above it."""
    account = _given_by(site, principal, name)
    now = context.clock()
    seen = _seen(context.engine, if_match, lambda session: _known(session, account, now))
    change = Change(principal, now, body.why, seen)
    with _refusing():
        spec = parse_spec(body.budget.words())
        period = period_of(spec.calendar, change.today)
        effective = body.effective or (period.first if period else change.today)
        return VersionOut.of(set_budget(context.engine, site, account, spec, effective, change))


@router.get("/{name}/split", responses=problems(401, 404))
def get_split(context: Ctx, site: Site, account: Seen, response: Response) -> SplitOut:
    """What those directly below an account have of its budget. The ETag is for `If-Match` of a change."""
    with reading(context.engine) as session:
        known = _known_split(session, site, account, context.clock())
    response.headers["ETag"] = known.tag
    return known.told


@router.put("/{name}/split", responses=problems(401, 403, 404, 412, 422))
def put_split(
    context: Ctx, site: Site, principal: Writer, name: Name, body: SplitIn, if_match: etags.IfMatch = None
) -> list[VersionOut]:
    """Give parts of an account's budget to those directly below it, all at once or none."""
    account, now = visible_account(site, principal, name), context.clock()
    seen = _seen(context.engine, if_match, lambda session: _known_split(session, site, account, now))
    change = Change(principal, now, body.why, seen)
    parts = {part: Decimal(amount) for part, amount in body.parts.items()}
    with _refusing():
        return [VersionOut.of(made) for made in split(context.engine, site, account, parts, change)]


@router.post("/{name}/approvals", status_code=HTTPStatus.CREATED, responses=problems(401, 403, 404, 422))
def post_approval(context: Ctx, site: Site, principal: Writer, name: Name, body: ApprovalIn) -> ApprovalOut:
    """Approve that an account spends more than its budget, until a day."""
    account = visible_account(site, principal, name)
    change = Change(principal, context.clock(), body.why)
    with _refusing():
        made = approve(context.engine, account, Decimal(body.amount), body.until, change)
    return ApprovalOut(
        account=account.name, amount=f"{made.amount:f}", granted=made.granted, until=made.until
    )


Told = TypeVar("Told", bound=BaseModel)


@dataclass(frozen=True)
class _Known(Generic[Told]):
    """An account's budgets, or their parts, as GET tells them.

    Attributes:
        state: for `Change.seen`.
    """

    told: Told
    state: str

    @property
    def tag(self) -> str:
        """Another one whenever anything of it, or what was approved beyond it, is otherwise."""
        return etags.of(self.state, self.told.model_dump_json())


def _known(session: Session, account: Account, now: int) -> _Known[VersionsOut]:
    today = day_of(now)
    found = [VersionOut.of(version) for version in versions(session, account, today)]
    return _Known(VersionsOut(account=account.name, versions=found), state_of(session, account, today))


def _known_split(session: Session, site: BudgetSite, account: Account, now: int) -> _Known[SplitOut]:
    today = day_of(now)
    below = versions_of(session, site.children(account.name), today)
    parts = [PartOut.of(name, in_effect(known, today)) for name, known in below.items()]
    told = SplitOut(account=account.name, parts=parts)
    return _Known(told, parts_state(session, site, account, today))


def _seen(engine: Engine, if_match: str | None, known: Callable[[Session], _Known[Told]]) -> str | None:
    """What whoever asks has seen, for `Change.seen`; it is looked at again when the change is written.

    Raises:
        ProblemError: 412, it is not what there is now.
    """
    if etags.any_state(if_match):
        return None
    with reading(engine) as session:
        present = known(session)
    etags.demand(if_match, present.tag)
    return present.state


def _outlook(engine: Engine, site: BudgetSite, account: Account, now: int) -> Outlook:
    found = read_outlook(engine, site, account, now)
    if found is None:
        raise not_found("budget for this account today")
    return found


def _given_by(site: BudgetSite, principal: Principal, name: str) -> Account:
    """An account whose budget the principal may set: who holds the account above gives it.

    Raises:
        ProblemError: 404 for accounts that they may not see, 403 for those whose budget others give.
    """
    account = visible_account(site, principal, name)
    if account.level == "site":
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, "The site's budget is that of its departments.")
    parent = account.parent or SITE_ACCOUNT
    if not principal.may("write", site, parent):
        raise forbidden("write")
    return account


@contextmanager
def _refusing() -> Iterator[None]:
    """What cannot be done is about the request."""
    try:
        yield
    except OvertakenError:
        raise etags.overtaken() from None
    except BudgetError as error:
        raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, f"{error}.") from None
