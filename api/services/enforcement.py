"""Keeping accounts to their budgets: plan, apply, read back, undo."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Protocol, cast

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from api.db.alone import alone
from api.db.budget_models import BudgetAlert, EnforcementAct
from api.db.engine import reading, writing
from api.services import audit
from api.services.alerts import raise_alerts
from api.services.budgets import Change, tier_is_open
from api.services.spending import Outlook, read_outlooks
from hpctools.budget.enforcement import Kind, Live, Ours, Step, Wish, plan, undo
from hpctools.budget.thresholds import reaches
from hpctools.budget.tree import BudgetSite
from hpctools.errors import BudgetError, CommandError, CommandTimeout
from hpctools.slurm.cli import SILENCE

STALE_SECONDS = 2 * 86400
"""With data that is older nothing is taken and nothing is given back."""
_TAKING = ("block", "hold", "lower-tier")


class Limits(Protocol):
    """Slurm, as enforcement needs it (`slurm_limits.SlurmLimits`)."""

    def live(self, accounts: Iterable[str]) -> Live:
        """Limits of some accounts and of marked ones, and pending jobs."""
        ...

    def set_limits(
        self, account: str, changes: Mapping[str, tuple[str, str]], mark: Mapping[str, str]
    ) -> None:
        """Change an account's limits and its mark together."""
        ...

    def hold(self, job: int, account: str) -> None:
        """Have a pending job wait."""
        ...

    def release(self, job: int) -> None:
        """Let a job go."""
        ...

    def set_qos(self, job: int, qos: str) -> None:
        """Give a pending job another QoS."""
        ...


@dataclass(frozen=True)
class Planned:
    """What enforcement would do now.

    Attributes:
        frozen: why nothing is done; empty when it is.
        waiting: accounts whose grace is not over, and until when (Unix seconds).
    """

    wishes: tuple[Wish, ...]
    steps: tuple[Step, ...]
    frozen: str = ""
    waiting: tuple[tuple[str, int], ...] = ()


def make_plan(
    engine: Engine, site: BudgetSite, slurm: Limits, now: int, stale_after: int = STALE_SECONDS
) -> Planned:
    """What separates the cluster from what budgets ask for. Changes nothing.

    Raises:
        CommandError: Slurm does not answer.
        UnreachableError: the database does not answer.
    """
    outlooks = read_outlooks(engine, site, now)
    with reading(engine) as session:
        ends = {found.account.name: grace_ends(session, found, now) for found in outlooks}
        ours, became = _ours(session), _became(session)
    over = [found for found in outlooks if _is_over(found)]
    wishes = tuple(_wish(found) for found in over if ends[found.account.name] <= now)
    waiting = tuple((name, ends[name]) for name in (f.account.name for f in over) if ends[name] > now)
    live = slurm.live([wish.account for wish in wishes])
    stale = [found.account.name for found in outlooks if found.is_stale(now, stale_after)]
    if stale:
        why = f"what is known of {', '.join(stale)} is too old: nothing is taken and nothing given back"
        return Planned(wishes, (), why, waiting)
    return Planned(wishes, plan(wishes, live, ours, site.subtree, became), "", waiting)


def apply(
    engine: Engine,
    site: BudgetSite,
    slurm: Limits,
    change: Change,
    stale_after: int = STALE_SECONDS,
) -> Planned:
    """Carry out the plan and read back what became of it.

    Raises:
        BudgetError: somebody else is at it, or Slurm is not as it was told.
        CommandError: Slurm does not answer, or refuses; what was done is known, and the next apply goes on.
            What is refused of one account is told after the others have been done.
    """
    with alone(engine, "enforce") as mine:
        _check_alone(mine)
        raise_alerts(engine, site, change.at)  # the grace of a policy runs from its alert
        planned = make_plan(engine, site, slurm, change.at, stale_after)
        _carry_out(engine, slurm, planned.steps, change, "enforce.apply", "site")
        if any((step.action, step.kind) == ("give", "tier") for step in planned.steps):
            # Jobs that are to wait in another tier now have their own for a moment, and are taken at once.
            again = make_plan(engine, site, slurm, change.at, stale_after)
            _carry_out(engine, slurm, again.steps, change, "enforce.apply", "site")
            planned = replace(planned, steps=(*planned.steps, *again.steps))
        return planned


def give_back(
    engine: Engine, site: BudgetSite, slurm: Limits, account: str, change: Change
) -> tuple[Step, ...]:
    """Undo what was taken for an account's budget; fresh data is not needed for this.

    The next `apply` takes it again, unless the budget, an approval or the policy says otherwise by then.
    Raises as `apply` does.
    """
    with alone(engine, "enforce") as mine:
        _check_alone(mine)
        with reading(engine) as session:
            ours, became = _ours(session), _became(session)
        steps = undo(account, slurm.live([account]), ours, site.subtree, became)
        _carry_out(engine, slurm, steps, change, "enforce.undo", account)
        return steps


def _check_alone(mine: bool) -> None:
    if not mine:
        raise BudgetError("somebody else changes the cluster's limits right now", "try again in a minute")


def _is_over(outlook: Outlook) -> bool:
    rule = outlook.version.spec.enforcement
    kept = rule.policy in _TAKING and tier_is_open(outlook.account, outlook.version)
    return kept and reaches(outlook.spent, rule.at, outlook.spendable.total)


def grace_ends(session: Session, outlook: Outlook, now: int) -> int:
    """When the threshold was reached first, as far as alerts know (else now), and the grace after it."""
    rule = outlook.version.spec.enforcement
    query = select(BudgetAlert.at).where(
        BudgetAlert.version_id == outlook.version.id,
        BudgetAlert.period_first == outlook.period.first,
        BudgetAlert.kind == "enforce",
        BudgetAlert.threshold == rule.at,
    )
    reached = session.scalar(query)
    return (now if reached is None else reached) + rule.grace_seconds


def _wish(outlook: Outlook) -> Wish:
    rule = outlook.version.spec.enforcement
    spent, allowed = f"{outlook.spent:f}", f"{outlook.spendable.total:f}"
    why = f"{spent} of {allowed} {outlook.spendable.currency} are spent from {outlook.period}"
    return Wish(outlook.account.name, rule.policy, rule.tier, why)


def _ours(session: Session) -> list[Ours]:
    """What we took of jobs and have not given back: the last act on each counts."""
    query = select(EnforcementAct).where(EnforcementAct.kind != "limit").order_by(EnforcementAct.id)
    last = {(row.kind, row.subject, row.submitted): row for row in session.scalars(query)}
    return [
        Ours(
            cast(Kind, row.kind),
            int(row.subject),
            row.submitted,
            row.account,
            row.before,
            row.after,
            "begun" if row.state == "begun" else "left" if row.state == "left" else "held",
        )
        for row in last.values()
        if row.state != "returned"
    ]


def _became(session: Session) -> dict[tuple[str, str], set[str]]:
    """What limits became that we took and have not given back; of a change that was begun, both values."""
    found: dict[tuple[str, str], set[str]] = {}
    query = select(EnforcementAct).where(EnforcementAct.kind == "limit").order_by(EnforcementAct.id)
    for row in session.scalars(query):
        before = found.get((row.subject, row.key), set()) if row.state == "begun" else set()
        found[row.subject, row.key] = before | ({row.after} if row.state in ("begun", "held") else set())
    return found


def _carry_out(
    engine: Engine, slurm: Limits, steps: Sequence[Step], change: Change, action: str, subject: str
) -> None:
    if not steps:
        return
    with writing(engine) as session:
        told = [asdict(step) for step in steps]
        audit.record(session, change.principal, action, subject, None, told, at=change.at)
        session.add_all(_act(step, "begun", change) for step in steps if step.action == "take")
    refused: dict[str | Step, CommandError] = {}
    live = slurm.live([step.account for step in steps])
    for account in dict.fromkeys(step.account for step in steps if step.kind == "limit"):
        with _noted(refused, account):
            _set_limits(slurm, account, steps, live)
    rest = [step for step in steps if step.account not in refused]
    for step in rest:
        with _noted(refused, step):
            _change_job(slurm, step)
    _read_back(engine, slurm, [step for step in rest if step not in refused], change)
    for error in refused.values():
        raise error


@contextmanager
def _noted(refused: dict[str | Step, CommandError], what: str | Step) -> Iterator[None]:
    """What Slurm refuses of one account or job keeps nothing from the others; if nobody answers, it ends."""
    try:
        yield
    except CommandTimeout:
        raise
    except CommandError as error:
        if SILENCE.search(error.stderr_tail):
            raise
        refused[what] = error


def _set_limits(slurm: Limits, account: str, steps: Sequence[Step], live: Live) -> None:
    mine = [step for step in steps if step.kind == "limit" and step.account == account]
    mark = dict(live.marks.get(account, {}))
    for step in mine:
        if step.action == "take":
            mark.setdefault(step.key, step.before)
        else:
            mark.pop(step.key, None)
    changes = {step.key: (step.before, step.after) for step in mine if step.action != "forget"}
    slurm.set_limits(account, changes, mark)


def _change_job(slurm: Limits, step: Step) -> None:
    if step.action == "forget" or step.kind == "limit":
        return
    if step.kind == "tier":
        slurm.set_qos(int(step.subject), step.after)
    elif step.action == "take":
        slurm.hold(int(step.subject), step.account)
    else:
        slurm.release(int(step.subject))


def _read_back(engine: Engine, slurm: Limits, steps: Sequence[Step], change: Change) -> None:
    live = slurm.live([step.account for step in steps])
    states = {step: _state(step, live) for step in steps}
    with writing(engine) as session:
        session.add_all(_act(step, state, change) for step, state in states.items() if state)
    wrong = [step for step, state in states.items() if not state]
    if wrong:
        told = ", ".join(f"{step.kind} {step.subject} {step.key}".strip() for step in wrong)
        raise BudgetError(f"Slurm was told and is not so: {told}", "look at slurmdbd's log and apply again")


def _state(step: Step, live: Live) -> str:
    """What became of a step; "" when Slurm is not as it was told."""
    marked = step.kind == "limit" and step.key in live.marks.get(step.account, {})
    if step.action == "forget":
        return "" if marked else "left"
    done = "held" if step.action == "take" else "returned"
    if step.kind == "limit":
        there = live.limits.get(step.account, {}).get(step.key, "")
        return done if there == step.after and marked == (step.action == "take") else ""
    jobs = (each for each in live.pending if (str(each.id), each.submitted) == (step.subject, step.submitted))
    job = next(jobs, None)
    if job is None:
        return "left"  # it began or ended in between
    if step.kind == "tier":
        return done if job.qos == step.after else ""
    return done if job.held == (step.action == "take") else ""


def _act(step: Step, state: str, change: Change) -> EnforcementAct:
    taken = step.action == "take"
    return EnforcementAct(
        at=change.at,
        by=change.by,
        account=step.account,
        kind=step.kind,
        subject=step.subject,
        submitted=step.submitted,
        key=step.key,
        before=step.before if taken else step.after,
        after=step.after if taken else step.before,
        state=state,
    )
