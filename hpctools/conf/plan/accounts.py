"""Changes of accounts and QoS, told as changes of a plan: pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpctools.conf.account_changes import AccountChange, AccountDifference
from hpctools.conf.plan import effects
from hpctools.conf.plan.model import Change, DisturbedJob, Need
from hpctools.site.scalars import spell_duration
from hpctools.slurm.types import Job

_LIMITS = {"MaxWall"}
_NOUNS = {
    "cluster": "registered in slurmdbd",
    "qos": "a QoS",
    "account": "an account",
    "association": "a member",
    "user": "a default account",
    "coordinator": "a coordinator",
}
# Kept in seconds; what people know is days and hours.
_TIMES = {"MaxWall", "GrpWall", "GraceTime", "PreemptExemptTime"}


def account_changes(
    difference: AccountDifference, jobs: Sequence[Job]
) -> Iterator[tuple[Change, tuple[DisturbedJob, ...]]]:
    """Yield each change with the jobs that it would keep from starting."""
    for change in difference.changes:
        stuck = tuple(_stuck(change, jobs))
        yield _told(change, stuck), stuck


def _told(change: AccountChange, stuck: Sequence[DisturbedJob]) -> Change:
    before, after = (_spelled(change.key, value) for value in (change.before, change.after))
    key, noun = change.key, _NOUNS[change.kind]
    if change.action == "add":
        before, after, key = (
            None,
            ", ".join(f"{name}={_spelled(name, value)}" for name, value in change.settings) or noun,
            "",
        )
    elif change.action == "remove":
        before, after, key = noun, None, ""
    elif change.action == "rename":
        key = key or "Name"
    waiting = f"{effects.count(len(stuck), 'pending job')} would not start any more" if stuck else ""
    effect = effects.joined(change.why, _for_whom(change), waiting)
    ids = tuple(job.id for job in stuck)
    return Change(change.kind, change.subject, key, before, after, Need.LIVE, effect, (), ids)


def _spelled(key: str, value: str) -> str | None:
    if key in _TIMES and value.isdecimal():
        return spell_duration(int(value))
    return value or None


def _for_whom(change: AccountChange) -> str:
    """People, where it is not plain from the subject."""
    if change.kind in ("association", "user", "coordinator") or not change.users:
        return ""
    number = len(change.users)
    return (
        f"for {', '.join(change.users)}"
        if number <= 3
        else f"for {effects.count(number, 'person').replace('persons', 'people')}"
    )


def _stuck(change: AccountChange, jobs: Sequence[Job]) -> Iterator[DisturbedJob]:
    """Pending jobs that ask for more time than a lowered limit allows."""
    if change.action != "set" or change.key not in _LIMITS or not change.after.isdecimal():
        return
    most = int(change.after) // 60
    old = int(change.before) // 60 if change.before.isdecimal() else None
    account = change.account or change.name
    for job in jobs:
        concerned = job.qos == change.name if change.kind == "qos" else job.account == account
        fitted = old is None or (job.time_limit is not None and job.time_limit <= old)
        too_long = job.time_limit is None or job.time_limit > most
        if job.state == "PENDING" and concerned and fitted and too_long:
            told = f"it asks for {effects.span(job.time_limit)}"
            yield effects.disturbed(job, f"{told}, and {change.subject} allows {effects.span(most)} then")
