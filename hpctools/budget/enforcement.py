"""What keeps an account to its budget, as data: pure. Nothing here ends a job that runs.

What we took is known by marks: of limits in slurmdbd (what they were before stands there), of jobs in the
store and in the job itself. Only what is marked is given back, and only where it still is as we left it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from hpctools.budget.allowance import Policy

Kind = Literal["limit", "hold", "tier"]
Action = Literal["take", "give", "forget"]
Became = Mapping[tuple[str, str], Set[str]]
"""What limits became that we took, as the store knows it, by account and word: of one that it does not know,
nothing; of a change that was begun, both values."""
NOT_KNOWN: Became = MappingProxyType({})


@dataclass(frozen=True)
class Wish:
    """An account that is to be kept to its budget.

    Attributes:
        policy: `block`, `hold` or `lower-tier`; others want nothing of Slurm.
        tier: the QoS of `lower-tier`.
        why: one sentence.
    """

    account: str
    policy: Policy
    tier: str = ""
    why: str = ""


@dataclass(frozen=True)
class PendingJob:
    """A job that waits.

    Attributes:
        submitted: Unix seconds; ids are used again.
        held: nobody but an operator can let it go.
        marked: its AdminComment says that a budget holds it.
    """

    id: int
    submitted: int
    account: str
    qos: str
    held: bool = False
    marked: bool = False


@dataclass(frozen=True)
class Live:
    """What Slurm says now.

    Attributes:
        limits: of accounts, by sacctmgr's word; canonical, "" for not set.
        marks: what limits that we took were before, by account and word.
        pending: in the order of their ids.
    """

    limits: Mapping[str, Mapping[str, str]]
    marks: Mapping[str, Mapping[str, str]]
    pending: tuple[PendingJob, ...] = ()


@dataclass(frozen=True)
class Ours:
    """Something of a job's that we took, as the store knows it.

    Attributes:
        account: whose budget it was for.
        before: the QoS that it had; "" for a hold.
        after: the QoS that we gave it.
        state: `begun` (perhaps), `held` (certainly), `left` (somebody else changed it: hands off).
    """

    kind: Kind
    job: int
    submitted: int
    account: str
    before: str = ""
    after: str = ""
    state: Literal["begun", "held", "left"] = "held"


@dataclass(frozen=True)
class Step:
    """One thing to do.

    Attributes:
        action: `take`, `give` back, or `forget` (it is no longer as we left it, or no longer there).
        account: whose budget it is for.
        subject: the account whose limit it is, or the job's id.
        submitted: of a job; else 0.
        key: the limit in sacctmgr's word; else "".
        before, after: what it is and what it becomes; canonical.
    """

    action: Action
    kind: Kind
    account: str
    subject: str
    key: str = ""
    before: str = ""
    after: str = ""
    submitted: int = 0
    why: str = ""


def limits_of(wish: Wish) -> dict[str, str]:
    """The limits of an account that a wish takes."""
    if wish.policy in ("block", "hold"):
        return {"GrpSubmitJobs": "0"}
    return {"QOS": wish.tier, "DefaultQOS": wish.tier} if wish.policy == "lower-tier" else {}


def plan(
    wishes: Sequence[Wish],
    live: Live,
    ours: Sequence[Ours],
    below: Callable[[str], Set[str]],
    became: Became = NOT_KNOWN,
) -> tuple[Step, ...]:
    """All that separates Slurm from what is wished, and is ours to do.

    Args:
        wishes: one for an account, those of higher accounts first.
        ours: jobs that we changed, by the store.
        below: an account and all below it.
        became: limits that we changed, by the store.
    """
    return (*_limits(wishes, live, became), *_jobs(wishes, live, ours, below))


def undo(
    account: str,
    live: Live,
    ours: Sequence[Ours],
    below: Callable[[str], Set[str]],
    became: Became = NOT_KNOWN,
) -> tuple[Step, ...]:
    """Give back all that was taken for an account's budget, and nothing of others."""
    mine = Live(live.limits, {account: live.marks.get(account, {})}, live.pending)
    return plan((), mine, [each for each in ours if each.account == account], below, became)


def _limits(wishes: Sequence[Wish], live: Live, became: Became) -> Iterator[Step]:
    wanted = {wish.account: (wish, limits_of(wish)) for wish in wishes}
    for account, (wish, limits) in wanted.items():
        there_now = live.limits.get(account, {})
        # What is as we set it may become another tier's.
        left = all(there_now.get(key, "") in became.get((account, key), ()) for key in limits)
        for key, after in limits.items():
            there = there_now.get(key, "")
            # Without our mark it is somebody else's doing, and theirs to undo.
            if there != after and (left or key not in live.marks.get(account, {})):
                yield Step("take", "limit", account, account, key, there, after, 0, wish.why)
    for account, marks in live.marks.items():
        for key, before in marks.items():
            if key not in wanted.get(account, (None, {}))[1]:
                yield _given_back(account, key, before, live, became)


def _given_back(account: str, key: str, before: str, live: Live, became: Became) -> Step:
    there = live.limits.get(account, {}).get(key, "")
    why = ""
    if not _as_we_left_it(account, key, live, became):
        why = f"somebody set it to {there or 'nothing'} since: it stays"
    elif key == "DefaultQOS" and not _as_we_left_it(account, "QOS", live, became):
        why = "somebody set QOS since, which may be without what it was: it stays"
    if why:
        return Step("forget", "limit", account, account, key, there, there, 0, why)
    return Step("give", "limit", account, account, key, there, before, 0, "its budget allows it again")


def _as_we_left_it(account: str, key: str, live: Live, became: Became) -> bool:
    values = {"0"} if key == "GrpSubmitJobs" else became.get((account, key))
    return not values or live.limits.get(account, {}).get(key, "") in values


def _jobs(
    wishes: Sequence[Wish], live: Live, ours: Sequence[Ours], below: Callable[[str], Set[str]]
) -> Iterator[Step]:
    known = {(each.kind, each.job, each.submitted): each for each in ours}
    wanted = _wanted_jobs(wishes, live, below)
    for key, (job, wish) in list(wanted.items()):
        if key in known and _is_to_change(job, known[key], wish):
            del wanted[key]  # it is to be in another tier now: given back first, and taken at the next look
    for (kind, _, _), (job, wish) in wanted.items():
        before = known.get((kind, job.id, job.submitted))
        if _is_as_wished(job, kind, wish) or (before is not None and before.state != "begun"):
            continue
        had, becomes = ("", "") if kind == "hold" else (job.qos, wish.tier)
        step = Step("take", kind, wish.account, str(job.id), "", had, becomes, job.submitted, wish.why)
        yield step
    pending = {(job.id, job.submitted): job for job in live.pending}
    for key, each in known.items():
        there = pending.get((each.job, each.submitted))
        if each.state != "left" and (key not in wanted or not _still_ours(there, each)):
            yield from _let_go(there, each, wished=key in wanted)


def _is_to_change(job: PendingJob, ours: Ours, wish: Wish) -> bool:
    """Whether we have it in another tier: certainly, or as far as one can tell after an interruption."""
    return ours.after not in ("", wish.tier) and (ours.state == "held" or _still_ours(job, ours))


def _wanted_jobs(
    wishes: Sequence[Wish], live: Live, below: Callable[[str], Set[str]]
) -> dict[tuple[Kind, int, int], tuple[PendingJob, Wish]]:
    """What is to become of which job; the first wish that speaks of it counts."""
    found: dict[tuple[Kind, int, int], tuple[PendingJob, Wish]] = {}
    kinds: dict[str, Kind] = {"hold": "hold", "lower-tier": "tier"}
    for wish in wishes:
        kind = kinds.get(wish.policy)
        accounts = below(wish.account) if kind else frozenset()
        for job in live.pending:
            if kind and job.account in accounts:
                found.setdefault((kind, job.id, job.submitted), (job, wish))
    return found


def _is_as_wished(job: PendingJob, kind: str, wish: Wish) -> bool:
    return job.held if kind == "hold" else job.qos == wish.tier


def _still_ours(job: PendingJob | None, ours: Ours) -> bool:
    if job is None:
        return False
    return (job.held and job.marked) if ours.kind == "hold" else job.qos == ours.after


def _let_go(job: PendingJob | None, ours: Ours, *, wished: bool) -> Iterator[Step]:
    gone = Step("forget", ours.kind, ours.account, str(ours.job), "", ours.after, ours.before, ours.submitted)
    if _still_ours(job, ours):
        step = Step(
            "give", ours.kind, ours.account, str(ours.job), "", ours.after, ours.before, ours.submitted
        )
        yield step
    elif not (wished and ours.state == "begun"):
        yield gone
