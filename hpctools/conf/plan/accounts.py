"""Changes of accounts and QoS, told as changes of a plan: pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpctools.conf.account_changes import AccountChange, AccountDifference
from hpctools.conf.plan import effects
from hpctools.conf.plan.demand import Holder
from hpctools.conf.plan.limit_jobs import Hindrance
from hpctools.conf.plan.model import Change, DisturbedJob, Need
from hpctools.site.scalars import spell_duration

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
    difference: AccountDifference, hindrances: Sequence[Hindrance]
) -> Iterator[tuple[Change, tuple[DisturbedJob, ...]]]:
    """Yield each change with the jobs that it would disturb.

    Args:
        hindrances: what the limits to be do to the jobs there are.
    """
    by_limit: dict[tuple[Holder, str], dict[int, DisturbedJob]] = {}
    for job, holder, key in hindrances:
        by_limit.setdefault((holder, key), {}).setdefault(job.id, job)  # one limit may speak of several TRES
    for change in difference.changes:
        account = "" if change.kind == "account" else change.account
        stuck = tuple(by_limit.get(((change.kind, change.name, account), change.key), {}).values())
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
    effect = effects.joined(change.why, _for_whom(change), effects.of_jobs(stuck))
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
