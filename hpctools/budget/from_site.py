"""What the budget needs of a site file."""

from __future__ import annotations

from datetime import date, timedelta

from hpctools.budget.allowance import Calendar, Enforcement, Notify, Spec
from hpctools.budget.billing_site import prices
from hpctools.budget.tree import SITE_ACCOUNT, Account, Allowance, BudgetSite, NodeGroup, Weights
from hpctools.site import Site, SiteAccount
from hpctools.site.budget import Budget, Enforce
from hpctools.site.departments import Department
from hpctools.site.gpus import Gpus
from hpctools.site.nodes import NodeGroup as SiteGroup


def budget_site(site: Site, metric: str = "NetAmortizedCost") -> BudgetSite:
    """The accounts, budgets and node groups of a site.

    Args:
        metric: the cost measure that the site reads from its bill.
    """
    return BudgetSite(
        cluster=site.cluster.name,
        accounts=tuple(_account(site, account) for account in site.accounts()),
        node_groups=tuple(_group(group) for group in site.node_groups),
        idle=site.billing.idle,
        owners={group.name: _owners(site, group.name) for group in site.node_groups},
        pools=dict(site.billing.pools),
        burst=site.billing.burst,
        weights=Weights(**site.billing.weights.model_dump(include={"cpu", "memory", "gpu"})),
        tag_key=site.billing.node_group_tag,
        metric=metric,
        currency=_currency(site),
        prices=prices(site),
    )


def _currency(site: Site) -> str:
    """Of the budgets, which are all in one; without any, of what own nodes cost; AWS bills in dollars."""
    budgets = (account.owner.budget for account in site.accounts())
    stated = [budget.currency for budget in budgets if budget]
    return next(iter([*stated, *(card.currency for card in site.billing.rate_cards)]), "USD")


def _owners(site: Site, group: str) -> tuple[str, ...]:
    """The departments that have a node group in their partition."""
    return tuple(
        department.name
        for department in site.departments
        if department.partition and group in department.partition.node_groups
    )


def _account(site: Site, account: SiteAccount) -> Account:
    owner = account.owner
    spec = spec_of(owner.budget) if owner.budget else None
    return Account(
        name=owner.name,
        level="department" if isinstance(owner, Department) else "lab",
        parent=account.parent or SITE_ACCOUNT,
        supervisor=owner.supervisor or "",
        budget=monthly(spec),
        title=owner.description or "",
        spec=spec,
        fair_share=owner.fair_share or 1,
        lower_tiers=_lower_tiers(site, account),
    )


def _lower_tiers(site: Site, account: SiteAccount) -> tuple[str, ...]:
    """Tiers of its department whose jobs come after those that name none; and what the file itself names.

    Not that of replicas: what yields there is cancelled, and an ordinary job would be lost.
    """
    default, own = site.tiers[site.default_tier], account.owner.budget
    stated = own.enforce.tier if own else None
    return tuple(
        name
        for name, tier in site.tiers.items()
        if name == stated
        or (
            name in site.allowed_tiers(account.department)
            and tier.priority < default.priority
            and not tier.for_replicas
        )
    )


def monthly(spec: Spec | None) -> Allowance | None:
    """What a budget allows in a month; None when its periods are not months."""
    if spec is None or spec.calendar.kind != "monthly":
        return None
    return Allowance(spec.amount, spec.currency, spec.alert_at)


def spec_of(budget: Budget) -> Spec:
    """A budget of the site file."""
    return Spec(
        amount=budget.amount,
        currency=budget.currency,
        calendar=_calendar(budget),
        carry=budget.carry_over,
        carry_at_most=budget.carry_at_most,
        over_commit=budget.over_commit,
        alert_at=budget.alert_at,
        alert_on_forecast=budget.alert_on_forecast,
        enforcement=_enforcement(budget.enforce),
        notify=Notify(budget.notify.mail, budget.notify.sns or "", budget.notify.webhook or ""),
    )


def _calendar(budget: Budget) -> Calendar:
    first = date.fromisoformat(budget.first) if budget.first else None
    end = date.fromisoformat(budget.last) + timedelta(days=1) if budget.last else None
    starts = tuple((int(day[:2]), int(day[3:])) for day in budget.starts)
    return Calendar(budget.period, starts, first, end)


def _enforcement(enforce: Enforce) -> Enforcement:
    return Enforcement(enforce.policy, enforce.at, enforce.grace, enforce.tier or "")


def _group(group: SiteGroup) -> NodeGroup:
    hardware = group.node_hardware
    return NodeGroup(
        name=group.name,
        role="compute" if group.role == "compute" else "shared",
        nodes=group.names,
        always_on=group.count.min,
        # What Slurm is told and counts: hardware threads as CPUs, and the memory that jobs may use.
        cpus=hardware.cpus if hardware else 0,
        memory_mb=hardware.memory_mib if hardware else 0,
        gpus=_gpus(group.gpus),
        shards=_shards(group.gpus),
        instance_type=group.instance_type or "",
        capacity=group.capacity or "",
    )


def _gpus(gpus: Gpus | None) -> int:
    """What Slurm counts as `gres/gpu`: with MIG, each slice is one."""
    if gpus is None:
        return 0
    slices = sum(gpus.share.mig.values()) if gpus.share and gpus.share.mig else 1
    return gpus.count * slices


def _shards(gpus: Gpus | None) -> int:
    per_gpu = gpus.share.shards_per_gpu if gpus and gpus.share else None
    return gpus.count * per_gpu if gpus and per_gpu else 0
