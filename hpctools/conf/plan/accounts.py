"""Changes of accounts and QoS, told as changes of a plan: pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from hpctools.conf.account_changes import AccountChange, AccountDifference
from hpctools.conf.plan import effects
from hpctools.conf.plan.demand import Holder
from hpctools.conf.plan.limit_jobs import Hindrance
from hpctools.conf.plan.model import Change, DisturbedJob, Need
from hpctools.site.scalars import spell_duration
from hpctools.slurm.versions import Release, hands_limits_down, takes_limits_of_new_parent

_NOUNS = {
    "cluster": "registered in slurmdbd",
    "qos": "a QoS",
    "account": "an account",
    "association": "a member",
    "user": "a default account",
    "coordinator": "a coordinator",
}
# Kept in seconds; what people know is days and hours.
# What an account states for each person, and people below it inherit.
_INHERITED = {
    *("MaxTRES", "MaxTRESPerNode", "MaxTRESMins", "MaxTRESRunMins", "MaxJobs", "MaxJobsAccrue"),
    *("MaxSubmitJobs", "MaxWall", "MinPrioThresh", "DefaultQOS", "QOS"),
}
_TIMES = {"MaxWall", "GrpWall", "GraceTime", "PreemptExemptTime"}


def account_changes(
    difference: AccountDifference, hindrances: Sequence[Hindrance], release: Release, parents: Set[str]
) -> Iterator[Change]:
    """Yield each change, with the jobs that it would disturb.

    Args:
        hindrances: what the limits to be do to the jobs there are.
        parents: accounts that have others below.
    """
    by_limit: dict[tuple[Holder, str], dict[int, DisturbedJob]] = {}
    for job, holder, key in hindrances:
        by_limit.setdefault((holder, key), {}).setdefault(job.id, job)  # one limit may speak of several TRES
    for change in difference.changes:
        account = "" if change.kind == "account" else change.account
        stuck = tuple(by_limit.get(((change.kind, change.name, account), change.key), {}).values())
        yield _told(change, stuck, late=_hears_late(change, release, parents))


def _hears_late(change: AccountChange, release: Release, parents: Set[str]) -> bool:
    """Whether slurmctld does not pass it on to the people below before it starts anew."""
    if (change.kind, change.action) != ("account", "set"):
        return False
    if change.key == "Parent":
        return not takes_limits_of_new_parent(release)
    return change.key in _INHERITED and change.name in parents and not hands_limits_down(release)


def _told(change: AccountChange, stuck: Sequence[DisturbedJob], *, late: bool) -> Change:
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
    passed_on = "slurmctld passes it on to people in labs when it reads all anew" if late else ""
    effect = effects.joined(change.why, _for_whom(change), passed_on, effects.of_jobs(stuck))
    need = Need.RECONFIGURE if late else Need.LIVE
    ids = tuple(job.id for job in stuck)
    return Change(change.kind, change.subject, key, before, after, need, effect, (), ids)


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
