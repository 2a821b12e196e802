"""From a site to the account tree that it wants: pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hpctools.conf.accounts import ROOT, Account, AccountTree, Association, Qos, Settings, without_inherited
from hpctools.conf.vocabulary import (
    ASSOCIATION_SETTINGS,
    QOS_SETTINGS,
    Setting,
    canonical_setting,
    parse_tres,
)
from hpctools.site.departments import Department, Lab, Limits, MemberLimits
from hpctools.site.model import Site
from hpctools.site.tiers import Tier

_Owner = Department | Lab


def account_tree(site: Site) -> AccountTree:
    """Return the account tree that a site wants; every setting of sacctmgr stands in it, most as "".

    Raises:
        SiteError: a word or value in `settings` is none of sacctmgr's.
    """
    return AccountTree(
        clusters=(site.cluster.name,),
        qos=tuple(_qos(name, tier) for name, tier in site.tiers.items()),
        accounts=without_inherited([row for each in site.departments for row in _department(site, each)]),
        default_accounts={user.name: user.default_account for user in site.users()},
        associations=tuple(row for department in site.departments for row in _people((), department)),
        unread=frozenset(_unread(site)),
    )


def _unread(site: Site) -> Iterator[str]:
    """Accounts whose people the directory knows and nobody has asked for, under all of their names."""
    unread = site.unread_accounts  # once: it looks at all accounts
    for account in site.accounts():
        if account.name in unread:
            yield from filter(None, (account.name, account.owner.renamed_from))


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _minutes(seconds: int | None) -> str:
    """Seconds, rounded up to the whole minutes that Slurm keeps for time limits."""
    return "" if seconds is None else str(-(-seconds // 60) * 60)


_TRES_NAMES = {"gpus": "gres/gpu", "cpus": "cpu", "nodes": "node", "memory_mib": "mem"}


def _tres(**counts: int | None) -> str:
    """Spell TRES limits in sacctmgr's order: by name."""
    return ",".join(
        sorted(f"{_TRES_NAMES[key]}={count}" for key, count in counts.items() if count is not None)
    )


def _tres_minutes(*, gpu_hours: int | None, cpu_hours: int | None) -> str:
    return _tres(
        gpus=None if gpu_hours is None else gpu_hours * 60, cpus=None if cpu_hours is None else cpu_hours * 60
    )


def _complete(
    known: Mapping[str, Setting], ours: Settings, theirs: Mapping[str, str], place: str
) -> dict[str, str]:
    """Every known word: the site's own `settings` win over ours, TRES by TRES."""
    settings = {**dict.fromkeys(known, ""), **ours}
    for told, value in theirs.items():
        word, text = canonical_setting(known, told, value, place)
        if known[word].tres and text:
            merged = {**parse_tres(settings[word]), **parse_tres(text)}
            text = ",".join(f"{name}={count}" for name, count in sorted(merged.items()))
        settings[word] = text
    return settings


def _qos(name: str, tier: Tier) -> Qos:
    ours = {
        "Priority": str(tier.priority),
        "Preempt": ",".join(sorted(tier.preempts)),
        "PreemptMode": tier.when_preempted or "cluster",
        "GraceTime": str(tier.grace_time),
        "PreemptExemptTime": _number(tier.protected_time),
        "MaxWall": _minutes(tier.max_time),
        "MaxTRESPerUser": _tres(gpus=tier.gpus_per_user, cpus=tier.cpus_per_user),
        "MaxTRESPerJob": _tres(gpus=tier.gpus_per_job),
        "GrpTRES": _tres(gpus=tier.gpus),
        "MaxJobsPerUser": _number(tier.jobs_per_user),
        "MaxSubmitJobsPerUser": _number(tier.submitted_jobs_per_user),
        "UsageFactor": f"{tier.usage_percent // 100}.{tier.usage_percent % 100:02}0000",
    }
    settings = _complete(QOS_SETTINGS, ours, tier.settings, f"tier {name}")
    return Qos(name, settings, tier.renamed_from or "")


def _together(limits: Limits) -> dict[str, str]:
    """What holds for all jobs together, and for each job."""
    return {
        "GrpTRES": _tres(
            gpus=limits.gpus, cpus=limits.cpus, nodes=limits.nodes, memory_mib=limits.memory_mib
        ),
        "GrpTRESMins": _tres_minutes(gpu_hours=limits.gpu_hours, cpu_hours=limits.cpu_hours),
        "GrpJobs": _number(limits.jobs),
        "GrpSubmitJobs": _number(limits.submitted_jobs),
        "MaxTRES": _tres(gpus=limits.gpus_per_job, cpus=limits.cpus_per_job, nodes=limits.nodes_per_job),
        "MaxJobs": _number(limits.jobs_per_user),
        "MaxSubmitJobs": _number(limits.submitted_jobs_per_user),
        "MaxWall": _minutes(limits.max_time),
    }


def _account(owner: _Owner, parent: str, more: Settings) -> Account:
    ours = {"Fairshare": str(owner.fair_share), **_together(owner.limits), **more}
    settings = _complete(ASSOCIATION_SETTINGS, ours, owner.settings, f"account {owner.name}")
    return Account(owner.name, parent, settings, owner.coordinators, owner.renamed_from or "")


def _department(site: Site, department: Department) -> Iterator[Account]:
    # Labs and people inherit both.
    tiers = {"QOS": ",".join(sorted(site.allowed_tiers(department))), "DefaultQOS": site.default_tier}
    yield _account(department, ROOT, tiers)
    yield from _labs(department)


def _labs(owner: _Owner) -> Iterator[Account]:
    for lab in owner.labs:
        yield _account(lab, owner.name, {})
        yield from _labs(lab)


def _people(above: Sequence[Limits], owner: _Owner) -> Iterator[Association]:
    """People of an account and of those below it; `above` has the limits of the accounts above it."""
    chain = (*above, owner.limits)
    for user in owner.users:
        own = owner.members_limits.get(user)
        place = f"{user} in account {owner.name}"
        more = own.settings if own else {}
        settings = _complete(ASSOCIATION_SETTINGS, _person(chain, own), more, place)
        yield Association(user, owner.name, settings)
    for lab in owner.labs:
        yield from _people(chain, lab)


def _person(chain: Sequence[Limits], own: MemberLimits | None) -> Settings:
    """The group limit of a person's own association is that person's limit in the account."""
    stated = [limits.gpus_per_user for limits in chain if limits.gpus_per_user is not None]
    gpus = min(stated, default=None)
    if own is None:
        return {"Fairshare": "1", "GrpTRES": _tres(gpus=gpus)}
    mine = [count for count in (own.gpus, own.gpus_per_user) if count is not None]
    limits = own.model_copy(update={"gpus": min(mine, default=gpus)})
    return {"Fairshare": str(own.fair_share or 1), **_together(limits)}
