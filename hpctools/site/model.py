"""The site: everything that a site file declares, and the questions that others ask of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Protocol

from pydantic import Field

from hpctools.errors import UsageError
from hpctools.site.base import Model
from hpctools.site.cluster import Cluster
from hpctools.site.departments import Department
from hpctools.site.nodes import NodeGroup
from hpctools.site.scalars import AccountName, TemplateName, TierName, UserName
from hpctools.site.services import Billing, Login
from hpctools.site.tiers import Template, Tier


class NodeCounts(Protocol):
    """Something that may say how many nodes a group really has."""

    @property
    def node_counts(self) -> Mapping[str, int]:
        """Nodes by group; a group that is missing has what the site says."""
        ...


@dataclass(frozen=True)
class User:
    """One person on the cluster.

    Attributes:
        name: the Unix account.
        default_account: the Slurm account of jobs that name none.
        accounts: all Slurm accounts that the person may use, in the site's order.
    """

    name: str
    default_account: str
    accounts: tuple[str, ...]


class Site(Model):
    """Everything that a site file declares. Read one with `hpctools.site.load`."""

    cluster: Cluster
    """The cluster and its daemons."""
    node_groups: Annotated[tuple[NodeGroup, ...], Field(min_length=1)]
    """Nodes that are alike."""
    departments: Annotated[tuple[Department, ...], Field(min_length=1)]
    """Who works here."""
    tiers: Annotated[dict[TierName, Tier], Field(min_length=1)]
    """Who yields to whom."""
    templates: dict[TemplateName, Template] = Field(default_factory=dict)
    """The usual combinations."""
    login: Login = Login()
    """How people get in."""
    billing: Billing = Billing()
    """How the cloud bill is read."""
    default_accounts: dict[UserName, AccountName] = Field(default_factory=dict)
    """For people with several accounts: the account of their jobs that name none."""

    def group(self, name: str) -> NodeGroup:
        """Return a node group by name.

        Raises:
            UsageError: there is none of this name.
        """
        for group in self.node_groups:
            if group.name == name:
                return group
        raise UsageError(
            f"the site has no node group {name!r}", f"it has: {', '.join(g.name for g in self.node_groups)}"
        )

    def node_names(self, group: str, facts: NodeCounts | None = None) -> tuple[str, ...]:
        """Return the names of a group's nodes that are always there: `<group>-1`, `<group>-2`, ...

        Args:
            group: the node group's name.
            facts: how many nodes there really are, where that differs from the site.

        Raises:
            UsageError: there is no such group.
        """
        count = self.group(group).count.min
        if facts is not None:
            count = facts.node_counts.get(group, count)
        return tuple(f"{group}-{number}" for number in range(1, count + 1))

    @property
    def default_tier(self) -> str:
        """The tier of jobs that name none."""
        return next(name for name, tier in self.tiers.items() if tier.default)

    @property
    def replica_tier(self) -> str | None:
        """The tier of elastic replicas; None when the site has none."""
        return next((name for name, tier in self.tiers.items() if tier.for_replicas), None)

    def allowed_tiers(self, department: Department) -> tuple[str, ...]:
        """Return the tiers that a department's jobs may use, in the site's order."""
        wanted = set(department.tiers if department.tiers is not None else self.tiers)
        return tuple(name for name, tier in self.tiers.items() if name in wanted or tier.for_replicas)

    def accounts_of_users(self) -> Mapping[str, tuple[str, ...]]:
        """Return each person's Slurm accounts, departments before their labs, in the site's order."""
        found: dict[str, dict[str, None]] = {}
        for account, name in self._associations():
            found.setdefault(name, {})[account] = None
        return {name: tuple(accounts) for name, accounts in found.items()}

    def users(self) -> tuple[User, ...]:
        """Return every person with their accounts, in the site's order."""
        return tuple(
            User(name, self.default_accounts.get(name, accounts[0]), accounts)
            for name, accounts in self.accounts_of_users().items()
        )

    def _associations(self) -> Iterator[tuple[str, str]]:
        for department in self.departments:
            yield department.name, department.supervisor
            for lab in department.labs:
                for user in lab.users:
                    yield lab.name, user
