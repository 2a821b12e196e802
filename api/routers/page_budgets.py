"""The page of an account's budget, and its forms."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import ValidationError
from starlette.datastructures import FormData

from api.auth.identify import Context
from api.auth.principal import Principal
from api.deps import Ctx, Site, Visitor, get_visited, visible_account
from api.pages.account_budget import Sent, account_budget_page
from api.pages.frame import Link, frame, trail_to
from api.posting import Sender, form_token, root_of
from api.problems import forbidden
from api.schemas.budget import ApprovalIn, BudgetIn, SplitIn
from api.services.budget_page import BudgetView, Rights, read_budget
from api.services.budgets import Change, approve, set_budget, split
from hpctools.budget.allowance import period_of
from hpctools.budget.month import day_of
from hpctools.budget.spec_words import parse_spec, spell_spec
from hpctools.budget.tree import Account, BudgetSite
from hpctools.errors import BudgetError

router = APIRouter(include_in_schema=False)

_DONE = {
    "change": "The budget is changed.",
    "split": "The budget is split.",
    "approve": "It is approved.",
}

Done = Annotated[Literal["change", "split", "approve"] | None, Query()]


async def get_fields(request: Request) -> Mapping[str, str]:
    """What is in a form; files are none of it."""
    found: FormData = await request.form(max_fields=600, max_files=0)
    return {name: value.strip() for name, value in found.items() if isinstance(value, str)}


Fields = Annotated[Mapping[str, str], Depends(get_fields)]


@dataclass(frozen=True)
class _Asked:
    """A form that somebody sent."""

    request: Request
    context: Context
    site: BudgetSite
    sender: Principal
    account: Account
    fields: Mapping[str, str]

    @property
    def change(self) -> Change:
        """Who asks, when, why, and what they saw."""
        why, seen = self.fields.get("why", ""), self.fields.get("seen", "")
        return Change(self.sender, self.context.clock(), why, seen)


def get_asked(
    request: Request, context: Ctx, site: Site, sender: Sender, name: str, fields: Fields
) -> _Asked:
    """A form about an account that the sender may see."""
    return _Asked(request, context, site, sender, visible_account(site, sender, name), fields)


Asked = Annotated[_Asked, Depends(get_asked)]


@router.get("/accounts/{name}/budget")
def show_budget(
    request: Request,
    context: Ctx,
    site: Site,
    visitor: Visitor,
    account: Annotated[Account, Depends(get_visited)],
    done: Done = None,
) -> HTMLResponse:
    """What is set, and forms for those who may change it."""
    return HTMLResponse(_page(request, context, site, visitor, account, Sent(), _DONE.get(done or "", "")))


@router.post("/accounts/{name}/budget/change")
def change_budget(asked: Asked) -> Response:
    """Another budget: for those who may write to the account above."""
    return _carry_out(asked, "change", _rights(asked).set, _change)


@router.post("/accounts/{name}/budget/split")
def split_budget(asked: Asked) -> Response:
    """Parts for the accounts below."""
    return _carry_out(asked, "split", _rights(asked).split, _split)


@router.post("/accounts/{name}/budget/approve")
def approve_more(asked: Asked) -> Response:
    """More than the budget, until a day."""
    return _carry_out(asked, "approve", _rights(asked).approve, _approve)


def _rights(asked: _Asked) -> Rights:
    return Rights.of(asked.site, asked.sender, asked.account)


def _carry_out(asked: _Asked, form: str, allowed: bool, work: Callable[[_Asked], object]) -> Response:
    """Do it and show the page anew; or show what was sent, and why it was not taken."""
    if not allowed:
        raise forbidden("write")
    try:
        work(asked)
    except (BudgetError, ValidationError) as error:
        sent = Sent(form, _told(error), asked.fields)
        page = _page(asked.request, asked.context, asked.site, asked.sender, asked.account, sent)
        return HTMLResponse(page, HTTPStatus.UNPROCESSABLE_ENTITY)
    path = f"{root_of(asked.request)}/accounts/{asked.account.name}/budget?done={form}"
    return RedirectResponse(path, HTTPStatus.SEE_OTHER)


def _approve(asked: _Asked) -> None:
    wanted = ApprovalIn.model_validate(_chosen(asked.fields, "amount", "until", "why"))
    approve(asked.context.engine, asked.account, Decimal(wanted.amount), wanted.until, asked.change)


def _split(asked: _Asked) -> None:
    parts = {
        name.removeprefix("part."): amount
        for name, amount in asked.fields.items()
        if name.startswith("part.") and amount
    }
    wanted = SplitIn.model_validate({"parts": parts, **_chosen(asked.fields, "why")})
    amounts = {name: Decimal(amount) for name, amount in wanted.parts.items()}
    split(asked.context.engine, asked.site, asked.account, amounts, asked.change)


def _change(asked: _Asked) -> None:
    view = read_budget(asked.context.engine, asked.site, asked.account, asked.context.clock())
    words = _words(view, asked)
    wanted = BudgetIn.model_validate({"budget": words, **_chosen(asked.fields, "why")})
    spec, change = parse_spec(wanted.budget.words()), asked.change
    period = period_of(spec.calendar, change.today)
    effective = period.first if period else change.today
    set_budget(asked.context.engine, asked.site, asked.account, spec, effective, change)


def _words(view: BudgetView, asked: _Asked) -> dict[str, Any]:
    """The budget as it is, with what the form has of it."""
    kept: dict[str, Any] = {"currency": asked.site.currency}
    if view.present:
        kept = spell_spec(view.present.spec)
    fields = asked.fields
    rule = {
        "policy": fields.get("policy", "off"),
        "at": _number(fields.get("at") or "100"),
        "grace": _grace(fields.get("grace") or "0", kept.get("enforce", {}).get("grace", 0)),
        "tier": fields.get("tier") or None,
    }
    notify = {**kept.get("notify", {}), "mail": _listed(fields.get("mail", ""))}
    return {
        **kept,
        "amount": fields.get("amount", ""),
        "alert_at": [_number(each) for each in _listed(fields.get("alert_at", ""))],
        "alert_on_forecast": [_number(each) for each in _listed(fields.get("alert_on_forecast", ""))],
        "enforce": rule,
        "notify": notify,
    }


def _chosen(fields: Mapping[str, str], *names: str) -> dict[str, str]:
    return {name: fields.get(name, "") for name in names}


def _listed(text: str) -> list[str]:
    return [word for word in re.split(r"[\s,;%]+", text) if word]


def _number(text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text):
        raise BudgetError(f"{text!r:.40} is not a whole number", "write digits only")
    return int(text)


def _grace(hours: str, kept: int) -> int:
    """Seconds; the form shows whole hours, and what is left as it is shown stays to the second."""
    return kept if _number(hours) == kept // 3600 else _number(hours) * 3600


def _told(error: BudgetError | ValidationError) -> str:
    if isinstance(error, BudgetError):
        return f"{error}."
    return f"{'; '.join(map(_of_field, error.errors()))}."


def _of_field(error: Mapping[str, Any]) -> str:
    where = ".".join(map(str, error["loc"]))
    if error["type"] == "string_pattern_mismatch" and ("amount" in where or where.startswith("parts.")):
        return f"{where}: {error['input']!r:.40} is no amount; write it as 1500.00"
    return f"{where}: {error['msg']}"


def _page(
    request: Request,
    context: Context,
    site: BudgetSite,
    visitor: Principal,
    account: Account,
    sent: Sent,
    done: str = "",
) -> str:
    now = context.clock()
    view = read_budget(context.engine, site, account, now)
    here = Link("Budget", f"/accounts/{account.name}/budget")
    around = frame(site, visitor, "", trail_to(site, visitor, account, None, here))
    rights = Rights.of(site, visitor, account)
    return account_budget_page(around, view, rights, form_token(request), sent, day_of(now), done)
