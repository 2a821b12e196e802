"""The limits of QoS, accounts and people under which a job is: pure.

Slurm's order (sacctmgr(1), and tried): what the partition's QoS limits, the job's QoS does not limit again,
and what either limits, an association does not; a job's QoS with the flag OverPartQOS goes before the
partition's. Limits on a group count at every account above a person; limits on a job or on a person's jobs
are those of the nearest association that states any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from hpctools.conf.account_changes import AccountChange
from hpctools.conf.accounts import AccountTree, Settings, above
from hpctools.conf.plan.demand import Holder
from hpctools.conf.vocabulary import names_of, parse_tres
from hpctools.slurm.types import Job
from hpctools.slurm.versions import OLDEST, Release, keeps_people_to_minutes_left

Place = tuple[object, ...]
"""What a limit is, whatever its value."""


@dataclass(frozen=True)
class Kind:
    """A kind of limit.

    Attributes:
        qos: its word in a QoS; "" when a QoS has none.
        association: its word in an association; "" when there is none.
        scope: whom a QoS limits: `job`, `node`, `user`, `account` or `all`; an association's limit of the
            scope `all` is one on its group, any other one is on each person.
        measure: `tres`, `jobs`, `wall` (time of jobs), `minutes` (TRES times time) or `left` (TRES times
            the time that is left to jobs that run).
        least: whether it is the least that a job has to ask for.
        counts: in which releases of Slurm.
    """

    qos: str
    association: str
    scope: str
    measure: str
    least: bool = False
    counts: Callable[[Release], bool] = lambda release: True


# Limits on submission, an association's MaxTRESRunMins, MinPrioThresh and UsageThreshold keep no job from
# starting that is in the queue already (tried on 22.05.8).
KINDS = (
    Kind("GrpTRES", "GrpTRES", "all", "tres"),
    Kind("MaxTRESPerUser", "", "user", "tres"),
    Kind("MaxTRESPerAccount", "", "account", "tres"),
    Kind("MaxTRESPerJob", "MaxTRES", "job", "tres"),
    Kind("MaxTRESPerNode", "MaxTRESPerNode", "node", "tres"),
    Kind("MinTRESPerJob", "", "job", "tres", least=True),
    Kind("GrpJobs", "GrpJobs", "all", "jobs"),
    Kind("MaxJobsPerUser", "MaxJobs", "user", "jobs"),
    Kind("MaxJobsPerAccount", "", "account", "jobs"),
    Kind("MaxWall", "MaxWall", "job", "wall"),
    Kind("GrpWall", "GrpWall", "all", "wall"),
    Kind("MaxTRESMinsPerJob", "MaxTRESMins", "job", "minutes"),
    Kind("GrpTRESMins", "GrpTRESMins", "all", "minutes"),
    Kind("GrpTRESRunMins", "GrpTRESRunMins", "all", "left"),
    Kind("MaxTRESRunMinsPU", "", "user", "left", counts=keeps_people_to_minutes_left),
    Kind("MaxTRESRunMinsPA", "", "account", "left", counts=keeps_people_to_minutes_left),
)


@dataclass(frozen=True)
class Limit:
    """One limit that counts for one job.

    Attributes:
        kind: what it is.
        holder: who states it.
        key: its word there.
        tres: the TRES that it is about; "" for jobs and times.
        value: how much; times in minutes.
        group: whose jobs count together, a key of `Queue.held`; () for the job alone.
    """

    kind: Kind
    holder: Holder
    key: str
    tres: str
    value: int
    group: tuple[str, ...]

    @property
    def place(self) -> Place:
        """What it is, whatever its value."""
        return self.holder, self.key, self.tres, self.group


@dataclass(frozen=True)
class Rules:
    """All limits there are.

    Attributes:
        qos, accounts, people: settings in sacctmgr's words; people by name and account.
        parents: each account's parent.
        enforced: words of AccountingStorageEnforce, with what they bring along.
        partitions: the QoS of partitions that have one.
        release: of slurmctld.
    """

    qos: Mapping[str, Settings] = field(default_factory=dict)
    accounts: Mapping[str, Settings] = field(default_factory=dict)
    people: Mapping[tuple[str, str], Settings] = field(default_factory=dict)
    parents: Mapping[str, str] = field(default_factory=dict)
    enforced: frozenset[str] = frozenset()
    partitions: Mapping[str, str] = field(default_factory=dict)
    release: Release = OLDEST

    @cached_property
    def _known(self) -> dict[tuple[str, ...], tuple[Limit, ...]]:
        return {}

    def chain(self, account: str) -> tuple[str, ...]:
        """An account and those above it."""
        return (account, *above(account, self.parents))

    def groups(self, job: Job) -> tuple[tuple[str, ...], ...]:
        """The groups whose use a job that runs counts to; see `Limit.group`."""
        own = (
            group
            for qos in self._qos_of(job, job.partition)
            for group in (("qos", qos), ("qos", qos, "user", job.user), ("qos", qos, "account", job.account))
        )
        above = (("account", name) for name in self.chain(job.account))
        return (*own, ("association", job.user, job.account), *above)

    def limits(self, job: Job, partition: str) -> tuple[Limit, ...]:
        """The limits that count for a job in a partition; one person, account and QoS have the same."""
        place = (job.user, job.account, job.qos, self.partitions.get(partition, ""))
        if place not in self._known:
            self._known[place] = tuple(self._limits(job, partition)) if "limits" in self.enforced else ()
        return self._known[place]

    def _qos_of(self, job: Job, partition: str) -> tuple[str, ...]:
        """The QoS under which a job is, the one that counts first at the beginning."""
        other = self.partitions.get(partition, "")
        if not other or other == job.qos:
            return (job.qos,)
        flags = names_of(self.qos.get(job.qos, {}).get("Flags", "").lower())
        return (job.qos, other) if "overpartqos" in flags else (other, job.qos)

    def refusing_qos(self, job: Job) -> Holder | None:
        """Whose list of QoS leaves a job's out; None when it may use it. The nearest list counts."""
        lists = ((holder, names_of(settings.get("QOS", ""))) for holder, settings in self._above(job))
        holder, names = next((each for each in lists if each[1]), (None, frozenset()))
        open_ended = not names or any(name.startswith(("+", "-")) for name in names)
        return None if open_ended or job.qos in names or "qos" not in self.enforced else holder

    def _above(self, job: Job) -> Iterator[tuple[Holder, Settings]]:
        yield ("association", job.user, job.account), self.people.get((job.user, job.account), {})
        for name in self.chain(job.account):
            yield ("account", name, ""), self.accounts.get(name, {})

    def _limits(self, job: Job, partition: str) -> Iterator[Limit]:
        stated = [(name, self.qos.get(name, {})) for name in self._qos_of(job, partition)]
        counted = any(each.get("MaxJobsPerUser") or each.get("MaxJobsPerAccount") for _, each in stated)
        for kind in (each for each in KINDS if each.counts(self.release)):
            taken: dict[str, int] = {}
            for name, settings in stated:
                values = _values(kind, settings.get(kind.qos, ""))
                group = () if kind.scope in ("job", "node") else ("qos", name, *_part(kind, job))
                for tres in values.keys() - taken.keys():
                    yield Limit(kind, ("qos", name, ""), kind.qos, tres, values[tres], group)
                taken = {**values, **taken}
            if kind.association and not (kind.association == "MaxJobs" and counted):
                yield from self._of_associations(kind, job, taken)

    def _of_associations(self, kind: Kind, job: Job, taken: Mapping[str, int]) -> Iterator[Limit]:
        done = set(taken)
        for holder, settings in self._above(job):
            for tres, value in _values(kind, settings.get(kind.association, "")).items():
                if tres not in done:
                    yield Limit(kind, holder, kind.association, tres, value, _group(kind, holder, job))
                    done |= {tres} if kind.scope != "all" else set()


def _part(kind: Kind, job: Job) -> tuple[str, ...]:
    return {"user": ("user", job.user), "account": ("account", job.account)}.get(kind.scope, ())


def _group(kind: Kind, holder: Holder, job: Job) -> tuple[str, ...]:
    if kind.scope in ("job", "node"):
        return ()
    if kind.scope == "user":  # stated above, it counts for each person by herself
        return "association", job.user, job.account
    return holder if holder[0] == "association" else holder[:2]


def _values(kind: Kind, text: str) -> dict[str, int]:
    """A setting's limits by TRES; "" for the only one of jobs and times."""
    if kind.measure in ("jobs", "wall"):
        return {"": int(text) // (60 if kind.measure == "wall" else 1)} if text.isdecimal() else {}
    return {name: int(count) for name, count in parse_tres(text).items() if count.isdecimal()}


def rules_of(
    tree: AccountTree,
    enforced: frozenset[str],
    partitions: Mapping[str, str] | None = None,
    release: Release = OLDEST,
) -> Rules:
    """The rules that slurmdbd holds, and the QoS of partitions."""
    return Rules(
        {qos.name: qos.settings for qos in tree.qos},
        {account.name: account.settings for account in tree.accounts},
        {(row.user, row.account): row.settings for row in tree.associations},
        {account.name: account.parent for account in tree.accounts},
        enforced,
        partitions or {},
        release,
    )


def changed(
    rules: Rules,
    changes: Sequence[AccountChange],
    enforced: frozenset[str],
    partitions: Mapping[str, str] | None = None,
) -> Rules:
    """The rules after changes of slurmdbd; what is removed has no jobs in the queue."""
    qos, accounts = dict(rules.qos), dict(rules.accounts)
    people, parents = dict(rules.people), dict(rules.parents)
    for change in changes:
        if change.action not in ("add", "set"):
            continue
        told = dict(change.settings) if change.action == "add" else {change.key: change.after}
        if change.kind == "qos":
            qos[change.name] = {**qos.get(change.name, {}), **told}
        elif change.kind == "association":
            place = (change.name, change.account)
            people[place] = {**people.get(place, {}), **told}
        elif change.kind == "account":
            parents |= {change.name: told["Parent"]} if "Parent" in told else {}
            accounts[change.name] = {**accounts.get(change.name, {}), **told}
    return Rules(qos, accounts, people, parents, enforced, partitions or {}, rules.release)
