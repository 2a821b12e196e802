"""The part of a site that money needs: accounts with their budgets, node groups with their hardware."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Literal

from hpctools.budget.allowance import Spec
from hpctools.budget.rate_card import Price

SITE_ACCOUNT = "root"

Level = Literal["site", "department", "lab"]
IdlePolicy = Literal["unallocated", "proportional", "partition-owner", "reservation-owner"]
PoolRule = Literal["unallocated", "equally", "by-use", "by-fair-share"]
Role = Literal["compute", "shared"]


@dataclass(frozen=True)
class Allowance:
    """What an account may spend in a month.

    Attributes:
        amount: in `currency`.
        alert_at: percentages of the amount, ascending.
    """

    amount: Decimal
    currency: str
    alert_at: tuple[int, ...] = ()


@dataclass(frozen=True)
class Account:
    """One Slurm account that a person answers for.

    Attributes:
        parent: the account above; None for the site itself.
        supervisor: the Unix account of its head; empty for the site.
        budget: of a month; None when nobody set one.
        title: what people call it; empty when they use the name.
        spec: the whole budget, for any period; `budget` is None when its period is not the month.
        fair_share: its weight among its siblings.
        lower_tiers: those in which a budget may have its jobs run.
    """

    name: str
    level: Level
    parent: str | None
    supervisor: str = ""
    budget: Allowance | None = None
    title: str = ""
    spec: Spec | None = None
    fair_share: int = 1
    lower_tiers: tuple[str, ...] = ()


@dataclass(frozen=True)
class NodeGroup:
    """Nodes of one kind, whose cost carries one tag value.

    Attributes:
        role: `compute` is charged to jobs; `shared` (login, controller) is a pool.
        nodes: the names of all nodes that it can have.
        always_on: how many of them run when nobody asks for more.
        cpus, memory_mb, gpus, shards: of one node; a job's share of a node is measured against these.
        instance_type, capacity: in the cloud's words; empty for own nodes.
    """

    name: str
    role: Role = "compute"
    nodes: tuple[str, ...] = ()
    always_on: int = 0
    cpus: int = 0
    memory_mb: int = 0
    gpus: int = 0
    shards: int = 0
    instance_type: str = ""
    capacity: str = ""


@dataclass(frozen=True)
class Weights:
    """How much of its part of a node's processors, memory and GPUs counts for a job, in percent."""

    cpu: int = 100
    memory: int = 100
    gpu: int = 100


@dataclass(frozen=True)
class BudgetSite:
    """A site as the budget sees it.

    Attributes:
        cluster: Slurm's ClusterName.
        accounts: departments and labs, parents before children.
        idle: who pays for node time that no job used.
        owners: of node groups: the departments that have the group in their partition.
        pools: how the cost of shared node groups is divided; without a rule nobody is charged.
        burst: whether groups without always-on nodes are wholly charged to those whose jobs ran on them on
            the day, or else on the day before, whatever `idle` says.
        weights: of what a job's share of a node is measured by.
        tag_key: the cost allocation tag whose value names the node group.
        metric: Cost Explorer's name of the cost measure; one site uses one.
        prices: of own nodes, by the rate cards.
    """

    cluster: str
    accounts: tuple[Account, ...]
    node_groups: tuple[NodeGroup, ...]
    idle: IdlePolicy = "unallocated"
    tag_key: str = "hpctools:node-group"
    metric: str = "NetAmortizedCost"
    currency: str = "USD"
    owners: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    pools: Mapping[str, PoolRule] = field(default_factory=dict)
    burst: bool = False
    weights: Weights = Weights()
    prices: tuple[Price, ...] = ()

    @cached_property
    def by_name(self) -> dict[str, Account]:
        """Every account, the site itself included, by name."""
        whole = Account(SITE_ACCOUNT, "site", None, budget=_sum_of_departments(self))
        return {SITE_ACCOUNT: whole} | {account.name: account for account in self.accounts}

    @cached_property
    def group_of_node(self) -> dict[str, NodeGroup]:
        """The node group of each node."""
        return {node: group for group in self.node_groups for node in group.nodes}

    @cached_property
    def groups(self) -> dict[str, NodeGroup]:
        """Every node group by name."""
        return {group.name: group for group in self.node_groups}

    @cached_property
    def shape(self) -> tuple[object, ...]:
        """What a statement depends on beside its own account: the same for the same tree of accounts."""
        return (self.currency, *((each.name, each.parent, each.level) for each in self.accounts))

    @cached_property
    def departments(self) -> tuple[Account, ...]:
        """Accounts directly below the site."""
        return self.children(SITE_ACCOUNT)

    @cached_property
    def _below(self) -> dict[str, tuple[Account, ...]]:
        found: defaultdict[str, list[Account]] = defaultdict(list)
        for account in self.accounts:
            found[account.parent or ""].append(account)
        return {name: tuple(children) for name, children in found.items()}

    def children(self, name: str) -> tuple[Account, ...]:
        """The accounts directly below one."""
        return self._below.get(name, ())

    def subtree(self, name: str) -> frozenset[str]:
        """An account and all below it."""
        if name not in self._subtrees:
            below = [self.subtree(child.name) for child in self.children(name)]
            self._subtrees[name] = frozenset({name}).union(*below)
        return self._subtrees[name]

    @cached_property
    def _subtrees(self) -> dict[str, frozenset[str]]:
        """Those that were asked for: each request asks of many accounts whether they lie in one."""
        return {}

    def currency_of(self, account: Account) -> str:
        """The currency that an account's figures are told in: of its budget, else of the site."""
        return account.budget.currency if account.budget else self.currency

    def lineage(self, name: str) -> tuple[str, ...]:
        """An account and all above it, nearest first; empty when the site does not know it."""
        account = self.by_name.get(name)
        if account is None:
            return ()
        return (name, *(self.lineage(account.parent) if account.parent else ()))


def _sum_of_departments(site: BudgetSite) -> Allowance | None:
    budgets = [account.budget for account in site.accounts if account.level == "department"]
    same = [budget.amount for budget in budgets if budget and budget.currency == site.currency]
    return Allowance(sum(same, Decimal(0)), site.currency) if same else None
