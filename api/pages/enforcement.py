"""The enforcement page: what keeps which account to its budget, since when, why, and what ends it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from api.db.budget_models import EnforcementAct
from api.formats.tables import as_lines
from api.pages.frame import Frame, title_of
from api.pages.render import render
from api.pages.tables import Cell, Column, Row, Table, text
from api.pages.wording import day_name, money, percentage, time_name
from api.services.enforced import Kept
from hpctools.budget.enforcement import Step
from hpctools.budget.month import moment
from hpctools.budget.tree import BudgetSite

CSV_COLUMNS = (*("at", "by", "account", "kind", "subject", "limit", "before", "after", "state"),)
_BUDGETS = (
    Column("Account"),
    Column("Used", "number"),
    Column("Policy"),
    Column("Now"),
    Column("What ends it"),
)
_POLICIES = {
    "off": "nothing",
    "warn": "an alert",
    "block": "no new jobs",
    "hold": "no new jobs, waiting ones are held",
    "lower-tier": "jobs run in a lower tier",
}
_STATES = {"held": "taken", "returned": "given back", "left": "left alone: somebody else had changed it"}


@dataclass(frozen=True)
class Asked:
    """What Slurm said when it was asked what would be done now.

    Attributes:
        problem: why nothing is known, or nothing is done; empty when it is.
    """

    steps: tuple[Step, ...] = ()
    problem: str = ""


def enforcement_page(
    around: Frame,
    site: BudgetSite,
    kept: Sequence[Kept],
    acts: Sequence[EnforcementAct],
    *,
    may_ask: bool,
    asked: Asked | None,
) -> str:
    """The page.

    Args:
        may_ask: whether the visitor may have Slurm asked.
        asked: what it said; None when it was not asked.
    """
    stale = [each.outlook.account.name for each in kept if each.stale]
    return render(
        "enforcement.html",
        frame=around,
        title="Enforcement",
        stale=", ".join(stale),
        kept=Table(
            "Budgets that have a policy",
            (
                Column("Account"),
                Column("Used", "number"),
                Column("Policy"),
                Column("Now"),
                Column("What ends it"),
            ),
            tuple(_kept(site, each) for each in kept),
            empty="No budget that you may see has a policy: nothing is enforced.",
        ),
        taken=_taken(kept),
        acts=_acts(acts),
        may_ask=may_ask,
        asked=asked,
        plan=_plan(asked.steps) if asked else None,
    )


def acts_csv(acts: Iterable[EnforcementAct]) -> Iterator[str]:
    """What was done, as rows."""
    rows = (
        (
            *(moment(act.at).isoformat(), act.by, act.account, act.kind, act.subject),
            *(act.key, act.before, act.after, act.state),
        )
        for act in acts
    )
    return as_lines(CSV_COLUMNS, rows)


def _kept(site: BudgetSite, each: Kept) -> Row:
    outlook, rule = each.outlook, each.outlook.version.spec.enforcement
    account = outlook.account
    policy = _POLICIES[rule.policy] + (f" ({rule.tier})" if rule.tier else "")
    return (
        text(title_of(site.by_name[account.name]), f"/accounts/{account.name}/budget", account.name),
        text(
            percentage(outlook.percent_used),
            detail=f"{money(outlook.spent, outlook.spendable.currency)} of "
            f"{money(outlook.spendable.total, outlook.spendable.currency)}",
        ),
        text(policy, detail=f"from {rule.at} %" + _grace(rule.grace_seconds)),
        _now(each),
        _end(each),
    )


def _grace(seconds: int) -> str:
    if not seconds:
        return ""
    hours = seconds / 3600
    return f", {hours / 24:g} days later" if hours >= 48 else f", {hours:g} hours later"


def _now(each: Kept) -> Cell:
    if each.stage == "within":
        return text("within its budget", tone="good")
    if each.stage == "warned":
        return text("over; nothing is taken", tone="warn")
    if each.stage == "no-tier":
        return text("over; nothing is done: the site file does not open this tier to it", tone="warn")
    if each.stage == "grace":
        return text("over, in its grace", detail=f"until {time_name(each.until)}", tone="warn")
    if each.stage == "due":
        return text("over; taken at the next look", tone="bad")
    since = min(act.at for act in each.acts)
    said = "given back at the next look" if each.stage == "given-back" else "kept to its budget"
    detail = f"{_what(each.acts)}, since {time_name(since)}"
    return text(said, detail=detail, tone="good" if each.stage == "given-back" else "bad")


def _end(each: Kept) -> Cell:
    """What a person can do about it."""
    if each.stage in ("within", "given-back"):
        return text("")
    period = each.outlook.period
    return text(
        "Approve more",
        f"/accounts/{each.outlook.account.name}/budget#approve",
        f"or another budget, or the next period from {day_name(period.end)} {period.end.year}. "
        "What was taken is given back at the next look.",
    )


def _what(acts: Sequence[EnforcementAct]) -> str:
    counts = Counter(act.kind for act in acts)
    words = {
        "limit": ("a limit of the account", "limits of the account"),
        "hold": ("job held", "jobs held"),
        "tier": ("job in a lower tier", "jobs in a lower tier"),
    }
    said = [
        words["limit"][0] if kind == "limit" and count == 1 else f"{count} {words[kind][count != 1]}"
        for kind, count in counts.items()
    ]
    return ", ".join(said)


def _taken(kept: Sequence[Kept]) -> Table:
    columns = (Column("What"), Column("For the budget of"), Column("Was"), Column("Is"), Column("Since"))
    acts = [act for each in kept for act in each.acts]
    return Table(
        "What is taken now",
        columns,
        tuple(map(_act_now, acts)),
        empty="Nothing is taken: Slurm is as it was set.",
    )


def _act_now(act: EnforcementAct) -> Row:
    return (
        text(
            _subject(act.kind, act.subject, act.key),
            detail="" if act.state == "held" else "not read back yet",
        ),
        text(act.account),
        *_change(act.kind, act.before, act.after),
        text(time_name(act.at), detail=f"by {act.by}"),
    )


def _acts(acts: Sequence[EnforcementAct]) -> Table:
    columns = (Column("What"), Column("For the budget of"), Column("Became"), Column("When"))
    rows = tuple(
        (
            text(_subject(act.kind, act.subject, act.key)),
            text(act.account),
            text(_STATES.get(act.state, act.state)),
            text(time_name(act.at), detail=f"by {act.by}"),
        )
        for act in acts
    )
    return Table("What was done, the newest first", columns, rows, empty="Nothing was ever taken.")


def _plan(steps: Sequence[Step]) -> Table:
    columns = (Column("What"), Column("For the budget of"), Column("Is"), Column("Becomes"), Column("Why"))
    rows = tuple(
        (
            text(_subject(step.kind, step.subject, step.key), detail=_ACTIONS[step.action]),
            text(step.account),
            *_change(step.kind, step.before, step.after, step.action == "give"),
            text(step.why),
        )
        for step in steps
    )
    return Table(
        "What apply would do now", columns, rows, empty="Nothing: the cluster is as the budgets ask."
    )


_ACTIONS = {"take": "take", "give": "give back", "forget": "leave alone from now on"}


def _subject(kind: str, subject: str, key: str) -> str:
    if kind == "limit":
        return f"{key} of {subject}"
    return f"job {subject}" + (" (hold)" if kind == "hold" else " (tier)")


def _change(kind: str, before: str, after: str, given: bool = False) -> tuple[Cell, Cell]:
    if kind == "hold":
        words = ("held", "waits as it was") if given else ("waiting", "held")
        return text(words[0]), text(words[1])
    return text(before or "not set"), text(after or "not set")
