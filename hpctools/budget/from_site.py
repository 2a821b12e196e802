"""What the budget needs of a site file."""

from __future__ import annotations

from hpctools.budget.tree import SITE_ACCOUNT, Account, Allowance, BudgetSite, NodeGroup
from hpctools.site import Site, SiteAccount
from hpctools.site.departments import Budget, Department
from hpctools.site.gpus import Gpus
from hpctools.site.nodes import NodeGroup as SiteGroup


def budget_site(site: Site, metric: str = "NetAmortizedCost") -> BudgetSite:
    """The accounts, budgets and node groups of a site.

    Args:
        metric: the cost measure that the site reads from its bill.
    """
    budgets = [department.budget for department in site.departments if department.budget]
    return BudgetSite(
        cluster=site.cluster.name,
        accounts=tuple(_account(account) for account in site.accounts()),
        node_groups=tuple(_group(group) for group in site.node_groups),
        idle=site.billing.idle,
        tag_key=site.billing.node_group_tag,
        metric=metric,
        currency=budgets[0].currency if budgets else "USD",
    )


def _account(account: SiteAccount) -> Account:
    owner = account.owner
    return Account(
        name=owner.name,
        level="department" if isinstance(owner, Department) else "lab",
        parent=account.parent or SITE_ACCOUNT,
        supervisor=owner.supervisor or "",
        budget=_allowance(owner.budget) if isinstance(owner, Department) else None,
        title=owner.description or "",
    )


def _allowance(budget: Budget | None) -> Allowance | None:
    return Allowance(budget.amount, budget.currency, budget.alert_at) if budget else None


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
