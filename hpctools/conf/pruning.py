"""What slurmdbd holds and the site does not name: what of it may go, and why the rest stays. Pure.

Never removed: root, what other clusters use, the QoS `normal`, what a job in the queue needs, associations
for one partition only, people whom a directory that was not read may name, and whatever stands above
something that stays. Nothing is lost with what goes: slurmdbd marks rows as deleted, accounting still shows
the jobs, and who comes back finds the usage again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TypeVar

from hpctools.conf.account_changes import AccountChange, Kept, Kind
from hpctools.conf.accounts import ROOT, Account, AccountTree, above
from hpctools.conf.renames import renamed_accounts, renamed_qos
from hpctools.conf.stated_qos import stated_qos
from hpctools.conf.vocabulary import names_of
from hpctools.slurm import states
from hpctools.slurm.types import Job

Item = tuple[Kind, str, str]
"""Kind, name and account, as in `AccountChange`."""

Key = TypeVar("Key", bound=Hashable)

NOT_ASKED = "the site does not name it; pruning removes it"
UNREAD = "the directory may name them, and was not read: hpctools identity sync"


@dataclass(frozen=True)
class _Reason:
    """Why something stays; "" when it may go."""

    why: str
    jobs: tuple[int, ...] = ()


def pruned(
    wanted: AccountTree,
    live: AccountTree,
    *,
    prune: bool,
    busy: Sequence[Job],
    prunable: Set[Item] | None,
) -> tuple[tuple[AccountChange, ...], tuple[Kept, ...]]:
    """Return the removals, in an order in which they can be carried out, and what is kept.

    Args:
        prune: nothing is removed without it.
        busy: the jobs in the queue; those that have ended do not count.
        prunable: what may be removed at most; all of it when None.
    """
    waiting = tuple(job for job in busy if job.state not in states.OVER)
    look = _Look(wanted, live, prune, waiting, prunable)
    people = look.people()
    accounts = look.accounts({item for item, reason in people.items() if not reason.why})
    staying = {item[1] for item, reason in accounts.items() if reason.why}
    coordinators = look.coordinators(staying)
    qos = look.qos({item[1:] for item, reason in people.items() if reason.why}, staying)
    found = {**coordinators, **people, **accounts, **qos}
    kept = [Kept(*item, reason.why, reason.jobs) for item, reason in found.items() if reason.why]
    gone = [item for item, reason in found.items() if not reason.why]
    moved = look.defaults_moved({item for item in gone if item[0] == "association"})
    return (*moved, *(_removal(item) for item in gone)), tuple(kept)


def _removal(item: Item) -> AccountChange:
    kind, name, account = item
    users = (name,) if kind in ("association", "coordinator") else ()
    return AccountChange(kind, "remove", name, account, users=users, late=True)


@dataclass(frozen=True)
class _Look:
    """One look at what is left over; each method answers for one kind."""

    wanted: AccountTree
    live: AccountTree
    prune: bool
    busy: tuple[Job, ...]
    prunable: Set[Item] | None

    def people(self) -> dict[Item, _Reason]:
        """Associations, the default ones last: newer releases refuse to leave a person without a default."""
        named = {(row.user, row.account) for row in self.wanted.associations}
        jobs = _jobs_by(self.busy, lambda job: (job.user, job.account))
        found: dict[Item, _Reason] = {}
        defaults = self.live.default_accounts
        for row in sorted(self.live.associations, key=lambda row: defaults.get(row.user) == row.account):
            key = (row.user, row.account)
            if row.account == ROOT or key in named:
                continue
            item: Item = ("association", *key)
            own = "has an association for one partition" if key in self.live.beside.partitioned else ""
            if row.account in self.wanted.unread:
                own = UNREAD
            found[item] = self._reason(item, jobs.get(key, ()), own)
        return found

    def accounts(self, free: Set[Item]) -> dict[Item, _Reason]:
        """Accounts, children before parents: one stays when something in it or below it does."""
        named = {account.name for account in self.wanted.accounts}
        jobs = _jobs_by(self.busy, lambda job: job.account)
        occupied = self._occupied(free)
        renamed = renamed_accounts(self.wanted, self.live)
        found: dict[Item, _Reason] = {}
        for account in _deepest_first(self.live.accounts):
            if account.name == ROOT or account.name in named:
                continue
            item: Item = ("account", account.name, "")
            own = f"not all of it can go: {occupied[account.name]}" if account.name in occupied else ""
            reason = self._reason(item, jobs.get(account.name, ()), own, renamed.get(account.name, ""))
            found[item] = reason
            if reason.why:
                occupied.setdefault(account.parent, f"account {account.name} stays")
        return found

    def _occupied(self, free: Set[Item]) -> dict[str, str]:
        """What stays in an account, by account."""
        found: dict[str, str] = {}
        for user, name in sorted(self.live.beside.partitioned):
            found.setdefault(name, f"{user} has an association for one partition")
        for row in self.live.associations:
            if ("association", row.user, row.account) not in free:
                found.setdefault(row.account, f"{row.user} stays")
        if self.live.beside.unread:
            for account in self.live.accounts:
                found.setdefault(account.name, "slurmdbd holds names that cannot be read")
        return found

    def coordinators(self, staying: Set[str]) -> dict[Item, _Reason]:
        """Coordinators of accounts that stay."""
        named = {account.name: account.coordinators for account in self.wanted.accounts}
        found: dict[Item, _Reason] = {}
        for account in self.live.accounts:
            stays = account.name in named or account.name in staying
            # An account's row outlives it where there are other clusters, and its coordinators with it.
            outlives = bool(self.live.beside.clusters) and account.name not in self.live.beside.accounts
            if account.name == ROOT or not (stays or outlives):
                continue
            for user in account.coordinators:
                if user not in named.get(account.name, ()):
                    item: Item = ("coordinator", user, account.name)
                    found[item] = self._reason(item, (), "")
        return found

    def qos(self, people: Set[tuple[str, str]], accounts: Set[str]) -> dict[Item, _Reason]:
        """QoS that neither the site nor what stays speaks of."""
        stated = (names for _, _, names in stated_qos(self.wanted))
        named = {qos.name for qos in self.wanted.qos}.union(*stated)
        jobs = _jobs_by(self.busy, lambda job: job.qos)
        used = set(self.live.beside.qos)
        staying = [
            *(each.settings for each in self.live.accounts if each.name == ROOT or each.name in accounts),
            *(each.settings for each in self.live.associations if (each.user, each.account) in people),
        ]
        for settings in staying:
            used |= names_of(settings.get("QOS", "")) | names_of(settings.get("DefaultQOS", ""))
        renamed = renamed_qos(self.wanted, self.live)
        found: dict[Item, _Reason] = {}
        for qos in self.live.qos:
            if qos.name in named or qos.name == "normal":
                continue
            item: Item = ("qos", qos.name, "")
            own = "other accounts use it" if qos.name in used else ""
            found[item] = self._reason(item, jobs.get(qos.name, ()), own, renamed.get(qos.name, ""))
        return found

    def defaults_moved(self, gone: Set[Item]) -> Iterator[AccountChange]:
        """Whoever loses the default account and keeps another needs a new one, or jobs are refused."""
        left: dict[str, list[str]] = {}
        for row in self.live.associations:
            if ("association", row.user, row.account) not in gone:
                left.setdefault(row.user, []).append(row.account)
        for _, user, account in sorted(gone):
            default = self.live.default_accounts.get(user)
            if default == account and user not in self.wanted.default_accounts and user in left:
                new = left[user][0]
                yield AccountChange(
                    "user", "set", user, new, "DefaultAccount", account, new, users=(user,), late=True
                )

    def _reason(self, item: Item, jobs: Sequence[Job], own: str, new_name: str = "") -> _Reason:
        """Why it stays: a job weighs more than that nobody asked."""
        if jobs:
            return _Reason(_count(jobs), tuple(job.id for job in jobs))
        if own == UNREAD:
            return _Reason(own)
        if self.prune and (self.prunable is None or item in self.prunable):
            return _Reason(own)
        return _Reason(f"renamed to {new_name}; pruning removes it" if new_name else NOT_ASKED)


def _count(jobs: Sequence[Job]) -> str:
    """`2 jobs running, 1 job pending`."""
    states = Counter(job.state.lower() for job in jobs)
    return ", ".join(
        f"{states[state]} {'job' if states[state] == 1 else 'jobs'} {state}"
        for state in sorted(states, key=lambda state: (state != "running", state))
    )


def _jobs_by(jobs: Iterable[Job], key: Callable[[Job], Key]) -> Mapping[Key, Sequence[Job]]:
    found: dict[Key, list[Job]] = {}
    for job in jobs:
        found.setdefault(key(job), []).append(job)
    return found


def _deepest_first(accounts: Sequence[Account]) -> list[Account]:
    parents = {account.name: account.parent for account in accounts}
    return sorted(accounts, key=lambda account: -sum(1 for _ in above(account.name, parents)))


def people_below(*trees: AccountTree) -> Mapping[str, tuple[str, ...]]:
    """Return who is in each account or below it, in any of the trees, each once."""
    found: dict[str, dict[str, None]] = {}
    for tree in trees:
        parents = {account.name: account.parent for account in tree.accounts}
        for row in tree.associations:
            for name in (row.account, *above(row.account, parents)):
                found.setdefault(name, {})[row.user] = None
    return {name: tuple(users) for name, users in found.items()}
