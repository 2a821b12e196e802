"""The site: everything that a site file declares, and the questions that others ask of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Protocol

from pydantic import Field, PrivateAttr

from hpctools.errors import UsageError
from hpctools.site.access import Access
from hpctools.site.aws import Aws
from hpctools.site.base import Model
from hpctools.site.billing import Billing
from hpctools.site.cluster import Cluster
from hpctools.site.departments import Department, Lab
from hpctools.site.findings import Location
from hpctools.site.hyperpod import HyperPod
from hpctools.site.identity import Identity
from hpctools.site.lifecycle import Lifecycle
from hpctools.site.nodes import NodeGroup
from hpctools.site.partitions import SharedPartition
from hpctools.site.scalars import AccountName, TemplateName, TierName, UserName
from hpctools.site.services import Login
from hpctools.site.source import Source
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


@dataclass(frozen=True)
class SiteAccount:
    """A department or lab at its place in the tree.

    Attributes:
        owner: what the site says of it.
        above: the department and labs that it is in, outermost first; empty for a department.
        location: where the site file says it.
    """

    owner: Department | Lab
    above: tuple[Department | Lab, ...]
    location: Location

    @property
    def name(self) -> str:
        """The Slurm account."""
        return self.owner.name

    @property
    def parent(self) -> str | None:
        """The Slurm account above; None for a department."""
        return self.above[-1].name if self.above else None

    @property
    def department(self) -> Department:
        """The department that it is or belongs to."""
        outermost = (*self.above, self.owner)[0]
        if not isinstance(outermost, Department):
            raise TypeError(f"{self.name} is in no department")
        return outermost


class Site(Model):
    """Everything that a site file declares. Read one with `hpctools.site.load`."""

    cluster: Cluster
    """The cluster and its daemons."""
    node_groups: Annotated[tuple[NodeGroup, ...], Field(min_length=1)]
    """Nodes that are alike."""
    departments: Annotated[tuple[Department, ...], Field(min_length=1)]
    """Who works here."""
    partitions: tuple[SharedPartition, ...] = ()
    """Partitions that departments share, beside those of their own."""
    tiers: Annotated[dict[TierName, Tier], Field(min_length=1)]
    """Who yields to whom."""
    templates: dict[TemplateName, Template] = Field(default_factory=dict)
    """The usual combinations."""
    login: Login = Login()
    """How people get in."""
    billing: Billing = Billing()
    """How the cloud bill is read."""
    hyperpod: HyperPod | None = None
    """The cluster on Amazon SageMaker HyperPod; left out for clusters elsewhere."""
    aws: Aws | None = None
    """What is around the cluster on AWS; left out where you have that already."""
    identity: Identity | None = None
    """The directory that knows the people; left out where Unix accounts come from elsewhere."""
    access: Access = Access()
    """Who may log in on which node."""
    lifecycle: Lifecycle = Lifecycle()
    """What nodes do to themselves when they are created or replaced."""
    default_accounts: dict[UserName, AccountName] = Field(default_factory=dict)
    """For people with several accounts: the account of their jobs that name none."""

    _source: Source = PrivateAttr(default_factory=Source)
    _groups_read: frozenset[str] = PrivateAttr(default=frozenset())

    @property
    def source(self) -> Source:
        """Where each thing stood in the site file; knows nothing of a site that was built in code."""
        return self._source

    def with_source(self, source: Source) -> Site:
        """Return the same site, which knows the file that it was read from."""
        copy = self.model_copy()
        copy._source = source
        return copy

    def with_groups_read(self, groups: Iterable[str]) -> Site:
        """Return the same site, which knows of which groups of the directory it has the people."""
        copy = self.model_copy()
        copy._groups_read = frozenset(groups)
        return copy

    @property
    def directory_groups(self) -> tuple[str, ...]:
        """The groups of the directory whose people work here, each once, in the site's order."""
        return tuple(dict.fromkeys(name for each in self.accounts() for name in each.owner.members_from))

    @property
    def unread_accounts(self) -> frozenset[str]:
        """Accounts of which not everybody is known, since a group in `members_from` has not been read."""
        return frozenset(
            each.name for each in self.accounts() if not self._groups_read.issuperset(each.owner.members_from)
        )

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
        """Return the names of a group's nodes that are always there: the first `count.min` of it.

        Args:
            group: the node group's name.
            facts: how many nodes there really are, where that differs from the site.

        Raises:
            UsageError: there is no such group.
        """
        stated = self.group(group)
        count = stated.count.min
        if facts is not None:
            count = facts.node_counts.get(group, count)
        return stated.first_names(count)

    def cloud_node_names(self, group: str, facts: NodeCounts | None = None) -> tuple[str, ...]:
        """Return the names of a group's nodes that come and go; none unless the cluster saves power.

        Raises:
            UsageError: there is no such group.
        """
        if self.cluster.power_saving is None:
            return ()
        return self.group(group).names[len(self.node_names(group, facts)) :]

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
        return self.with_replicas(department.tiers if department.tiers is not None else self.tiers)

    def with_replicas(self, tiers: Iterable[str]) -> tuple[str, ...]:
        """Return these tiers and that of elastic replicas, in the site's order."""
        wanted = set(tiers)
        return tuple(name for name, tier in self.tiers.items() if name in wanted or tier.for_replicas)

    def accounts_of_users(self) -> Mapping[str, tuple[str, ...]]:
        """Return each person's Slurm accounts, departments before their labs, in the site's order."""
        found: dict[str, dict[str, None]] = {}
        for account, name in self._associations():
            found.setdefault(name, {})[account] = None
        return {name: tuple(accounts) for name, accounts in found.items()}

    def users(self) -> tuple[User, ...]:
        """Return every person with their accounts, in the site's order.

        A default account that is stated for somebody whom the directory does not have in it is left out.
        """
        stated = self.default_accounts
        return tuple(
            User(name, stated[name] if stated.get(name) in accounts else accounts[0], accounts)
            for name, accounts in self.accounts_of_users().items()
        )

    def accounts(self) -> tuple[SiteAccount, ...]:
        """Return departments and labs, each after the one above it, in the site's order."""
        found: list[SiteAccount] = []
        for index, department in enumerate(self.departments):
            found += _with_labs(department, (), ("departments", index))
        return tuple(found)

    def _associations(self) -> Iterator[tuple[str, str]]:
        for account in self.accounts():
            for user in account.owner.users:
                yield account.name, user


def _with_labs(
    owner: Department | Lab, above: tuple[Department | Lab, ...], location: Location
) -> Iterator[SiteAccount]:
    yield SiteAccount(owner, above, location)
    for index, lab in enumerate(owner.labs):
        yield from _with_labs(lab, (*above, owner), (*location, "labs", index))
