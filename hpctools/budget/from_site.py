"""What the budget needs of a site file."""

from __future__ import annotations

from collections.abc import Iterator

from hpctools.budget.tree import SITE_ACCOUNT, Account, Allowance, BudgetSite, NodeGroup
from hpctools.site import Site
from hpctools.site.departments import Budget, Department
from hpctools.site.nodes import Gpus
from hpctools.site.nodes import NodeGroup as SiteGroup


def budget_site(site: Site, metric: str = "NetAmortizedCost") -> BudgetSite:
    """The accounts, budgets and node groups of a site.

    Args:
        metric: the cost measure that the site reads from its bill.
    """
    budgets = [department.budget for department in site.departments if department.budget]
    return BudgetSite(
        cluster=site.cluster.name,
        accounts=tuple(account for department in site.departments for account in _accounts(department)),
        node_groups=tuple(_group(group) for group in site.node_groups),
        idle=site.billing.idle,
        tag_key=site.billing.node_group_tag,
        metric=metric,
        currency=budgets[0].currency if budgets else "USD",
    )


def _accounts(department: Department) -> Iterator[Account]:
    yield Account(
        name=department.name,
        level="department",
        parent=SITE_ACCOUNT,
        supervisor=department.supervisor,
        budget=_allowance(department.budget),
        title=department.description or "",
    )
    for lab in department.labs:
        yield Account(lab.name, "lab", department.name, lab.supervisor, title=lab.description or "")


def _allowance(budget: Budget | None) -> Allowance | None:
    return Allowance(budget.amount, budget.currency, budget.alert_at) if budget else None


def _group(group: SiteGroup) -> NodeGroup:
    hardware = group.node_hardware
    return NodeGroup(
        name=group.name,
        role="compute" if group.role == "compute" else "shared",
        nodes=tuple(f"{group.name}-{number}" for number in range(1, group.count.max + 1)),
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
