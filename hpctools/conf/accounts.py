"""The account tree: what slurmdbd should know of QoS, accounts, people and limits.

Settings are kept in sacctmgr's words, with one canonical spelling of each value (see `vocabulary.py`): this
is the rendered form, as slurm.conf's text is. An empty value means "not set".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hpctools.site.departments import Department, Lab, Limits
from hpctools.site.model import Site
from hpctools.site.tiers import Tier

Settings = Mapping[str, str]

ROOT = "root"


@dataclass(frozen=True)
class Qos:
    """A QoS: a tier."""

    name: str
    settings: Settings


@dataclass(frozen=True)
class Account:
    """A department (below `root`) or a lab (below its department), with the limits of its own association.

    Attributes:
        coordinators: people who may manage the account and those below it.
    """

    name: str
    parent: str
    settings: Settings
    coordinators: tuple[str, ...] = ()


@dataclass(frozen=True)
class Association:
    """One person in one account."""

    user: str
    account: str
    settings: Settings


@dataclass(frozen=True)
class AccountTree:
    """What slurmdbd knows, or should know, about one cluster.

    Attributes:
        clusters: clusters that are registered; the wanted tree has its own.
        qos: by tier, in the site's order.
        accounts: parents before children.
        default_accounts: each person's default account.
        associations: people in accounts.
    """

    clusters: tuple[str, ...]
    qos: tuple[Qos, ...]
    accounts: tuple[Account, ...]
    default_accounts: Mapping[str, str]
    associations: tuple[Association, ...]


def account_tree(site: Site) -> AccountTree:
    """Return the account tree that a site wants."""
    return AccountTree(
        clusters=(site.cluster.name,),
        qos=tuple(Qos(name, _qos_settings(tier)) for name, tier in site.tiers.items()),
        accounts=tuple(_accounts(site)),
        default_accounts={user.name: user.default_account for user in site.users()},
        associations=tuple(_associations(site)),
    )


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _minutes(seconds: int | None) -> str:
    """Seconds, rounded up to the whole minutes that Slurm keeps for time limits."""
    return "" if seconds is None else str(-(-seconds // 60) * 60)


def _tres(**counts: int | None) -> str:
    """Spell TRES limits in sacctmgr's order: cpu, node, then generic resources."""
    names = {"gpus": "gres/gpu", "cpus": "cpu", "nodes": "node"}
    return ",".join(sorted(f"{names[key]}={count}" for key, count in counts.items() if count is not None))


def _qos_settings(tier: Tier) -> Settings:
    return {
        "Priority": str(tier.priority),
        "Preempt": ",".join(sorted(tier.preempts)),
        "PreemptMode": tier.when_preempted or "cluster",
        "GraceTime": str(tier.grace_time),
        "PreemptExemptTime": _number(tier.protected_time),
        "MaxWall": _minutes(tier.max_time),
        "MaxTRESPerUser": _tres(gpus=tier.gpus_per_user),
        "MaxJobsPerUser": _number(tier.jobs_per_user),
        "UsageFactor": f"{tier.usage_percent // 100}.{tier.usage_percent % 100:02}0000",
    }


def _limit_settings(limits: Limits) -> dict[str, str]:
    """Limits of an account's association; what counts for each member alone stands on the members'."""
    return {
        "GrpTRES": _tres(gpus=limits.gpus, cpus=limits.cpus, nodes=limits.nodes),
        "GrpJobs": _number(limits.jobs),
        "MaxTRES": _tres(gpus=limits.gpus_per_job),
        "MaxJobs": _number(limits.jobs_per_user),
        "MaxSubmitJobs": _number(limits.submitted_jobs_per_user),
        "MaxWall": _minutes(limits.max_time),
    }


def _accounts(site: Site) -> Iterator[Account]:
    for department in site.departments:
        yield _department(site, department)
        for lab in department.labs:
            settings = {"Fairshare": str(lab.fair_share), **_limit_settings(lab.limits)}
            yield Account(lab.name, department.name, settings, (lab.supervisor,))


def _department(site: Site, department: Department) -> Account:
    settings = {
        "Fairshare": str(department.fair_share),
        **_limit_settings(department.limits),
        # Labs and people inherit both.
        "QOS": ",".join(sorted(site.allowed_tiers(department))),
        "DefaultQOS": site.default_tier,
    }
    return Account(department.name, ROOT, settings, (department.supervisor,))


def _associations(site: Site) -> Iterator[Association]:
    for department in site.departments:
        yield Association(department.supervisor, department.name, _member_settings(department, None))
        for lab in department.labs:
            settings = _member_settings(department, lab)
            yield from (Association(user, lab.name, settings) for user in lab.users)


def _member_settings(department: Department, lab: Lab | None) -> Settings:
    """The group limit of a person's own association is that person's limit in the account."""
    stated = [limits.gpus_per_user for limits in (lab.limits if lab else None, department.limits) if limits]
    gpus = [count for count in stated if count is not None]
    return {"GrpTRES": _tres(gpus=min(gpus, default=None))}
