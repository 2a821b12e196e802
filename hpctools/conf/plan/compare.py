"""From what the site wants and what there is to the plan: pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from hpctools.conf.account_changes import AccountDifference, Kept
from hpctools.conf.account_difference import difference
from hpctools.conf.accounts import AccountTree
from hpctools.conf.bundle import Bundle
from hpctools.conf.plan import effects, keys, partition_terms
from hpctools.conf.plan.accounts import account_changes
from hpctools.conf.plan.files import file_changes, file_texts
from hpctools.conf.plan.limit_jobs import Hindrance, Queue, hindered
from hpctools.conf.plan.live import Live, OnDisk
from hpctools.conf.plan.meaning import Meaning, read_meaning
from hpctools.conf.plan.model import Change, DisturbedJob, Need, Plan
from hpctools.conf.plan.named_qos import unknown_qos
from hpctools.conf.plan.nodes import node_changes
from hpctools.conf.plan.partition_jobs import reshaped, unusable
from hpctools.conf.plan.partitions import partition_changes, partition_edits
from hpctools.conf.plan.reservations import stranded
from hpctools.conf.plan.rules import changed, rules_of
from hpctools.conf.plan.settings import setting_changes
from hpctools.conf.plan.sides import Sides, folded
from hpctools.conf.plan.ways import Ways
from hpctools.conf.plan.whole_nodes import taken
from hpctools.errors import HpctoolsError
from hpctools.slurm.types import Job
from hpctools.slurm.versions import OLDEST, Release, reads_topology_yaml, spell_release

_SLURM_CONF = "slurm.conf"
_MOST_NAMED = 5
# What of a node jobs ask for, and a partition has as much of as its nodes.
_SIZES = {"CPUs", "Gres", "RealMemory", "MemSpecLimit"}
# What of a partition puts its jobs under other limits, or makes them larger: its QoS, whether they get whole
# nodes, and what it gives them.
_UNDER_LIMITS = {"QOS", "OverSubscribe"} | partition_terms.KEYS


def make_plan(
    wanted: Bundle,
    live: Live,
    *,
    folder: Path,
    release: Release | None = None,
    prune: bool = False,
    jobs_keep: bool = True,
) -> Plan:
    """Compare a bundle with what there is.

    Args:
        wanted: what the site wants.
        live: what there is (`read`).
        folder: the configuration folder, for people.
        release: the Slurm release when slurmctld does not tell it.
        prune: accounts and people go that the site does not name.
        jobs_keep: of these, what a job in the queue needs stays.

    Raises:
        HpctoolsError: the bundle's slurm.conf cannot be understood.
    """
    cluster = wanted.accounts.clusters[0]
    release = live.release or release or OLDEST
    disk, trouble = _disk(live, cluster)
    texts = {file.path: file.text for file in wanted.files}
    meaning = read_meaning({**live.disk.files, **texts}, _SLURM_CONF, cluster)
    sides = Sides(
        cluster,
        release,
        meaning,
        disk,
        live.running,
        live.jobs,
        live.status,
        live.demands,
        live.groups,
    )
    found = _Found(sides)
    files = list(file_changes(wanted, live.disk, sides))
    live = live.complete()  # slurmdbd has answered meanwhile
    kept = found.look_at_accounts(wanted, live, prune=prune, busy=live.jobs if jobs_keep else ())
    found.take_slurm_conf()
    found.take_files(files)
    found.take_accounts()
    found.attribute()
    return Plan(
        cluster=cluster,
        release=spell_release(release),
        folder=str(folder),
        changes=tuple(found.changes),
        files=tuple(file_texts(wanted, live.disk, found.meant)),
        jobs=tuple(found.jobs.values()),
        warnings=(*trouble, *_warnings(sides), *_other_topology(live.disk, release), *kept),
        unknown=live.unknown,
        digest=live.digest,
    )


class _Found:
    """Looks at everything, and then gathers the changes in the order in which people read them.

    What becomes of a job that named several partitions is known only when all has been looked at.
    """

    def __init__(self, sides: Sides) -> None:
        self.sides = sides
        self.changes: list[Change] = []
        self.jobs: dict[int, DisturbedJob] = {}
        self.meant: dict[str, bool] = {}
        self.hindered: list[DisturbedJob] = []
        self.ways = Ways(lambda job, partition: unusable(sides, job, partition))
        self._settings, self._nodes = [*setting_changes(sides)], [*node_changes(sides)]
        self._too_big, self._edits = [*reshaped(sides)], [*partition_edits(sides)]
        self._of_accounts: list[Change] = []
        self._limited: tuple[Hindrance, ...] = ()
        for partition, jobs in (*self._too_big, *((edit.partition, edit.jobs) for edit in self._edits)):
            self.ways.close(partition, jobs)

    def look_at_accounts(
        self, wanted: Bundle, live: Live, *, prune: bool, busy: Sequence[Job]
    ) -> tuple[str, ...]:
        """Find what separates slurmdbd from the site; return warnings: what stays unnamed, or cannot come."""
        if live.accounts is None:
            return ()
        found = difference(wanted.accounts, live.accounts, prune=prune, busy=busy)
        self._limited = _hindrances(found, live.accounts, live, self.sides, self.ways)
        trees = (live.accounts, wanted.accounts)
        parents = {account.parent for tree in trees for account in tree.accounts}
        self._of_accounts = [*account_changes(found, self._limited, self.sides.release, parents)]
        unfit = (*unknown_qos(wanted.accounts, live.accounts), *stranded(found, live.reservations))
        return (*unfit, *_kept(found.kept, prune=prune))

    def take_slurm_conf(self) -> None:
        if self.sides.now is None:
            self.changes.append(_new_cluster(self.sides))
        self._take(self._settings)
        told = (self.ways.told(name, job) for name, jobs in self._too_big for job in jobs)
        too_big = tuple({job.id: job for job in told}.values())
        self._take(_naming(self._nodes, too_big))
        self._name(too_big)
        self.hindered.extend(too_big)
        for change, jobs in partition_changes(self.sides, self._edits, self.ways):
            self.changes.append(change)
            self._name(jobs)
        self.meant[_SLURM_CONF] = bool(self.changes)

    def take_files(self, found: Iterable[tuple[str, Change]]) -> None:
        for path, change in found:
            self.changes.append(change)
            self.meant[path] = True

    def take_accounts(self) -> None:
        self.changes.extend(self._of_accounts)
        self._name(each.job for each in self._limited)
        self.hindered.extend(each.job for each in self._limited)

    def attribute(self) -> None:
        """Name jobs that no change names yet with the changes of partitions that hinder them."""
        named = {job for change in self.changes for job in change.jobs}
        unnamed = {job.id: job for job in reversed(self.hindered) if job.id not in named}
        self.changes = [_with_limited(change, [*unnamed.values()]) for change in self.changes]

    def _take(self, changes: Iterable[Change]) -> None:
        for change in changes:
            self.changes.append(change)
            self._name(_ended(change, self.sides))

    def _name(self, jobs: Iterable[DisturbedJob]) -> None:
        """Each job once, with the first of the worst that happens to it."""
        for job in jobs:
            if job.id not in self.jobs or (self.jobs[job.id].waits and not job.waits):
                self.jobs[job.id] = job


def _hindrances(
    found: AccountDifference, there: AccountTree, live: Live, sides: Sides, ways: Ways
) -> tuple[Hindrance, ...]:
    """What the limits to be do to the jobs there are."""
    present = sides.now or sides.wanted
    before = rules_of(there, _enforced(sides, present), _qos_of_partitions(present), sides.release)
    after = changed(before, found.changes, _enforced(sides, sides.wanted), _qos_of_partitions(sides.wanted))
    now, then = taken(sides)
    earlier = {way: demand for way, demand in now.items() if demand != then[way]}
    return tuple(hindered(before, after, Queue(live.jobs, live.demands, live.used, then, earlier), ways))


def _qos_of_partitions(meaning: Meaning) -> dict[str, str]:
    stated = {name: keys.partition("qos", raw.get("qos")) for name, raw in meaning.partitions.items()}
    return {name: qos for name, qos in stated.items() if qos}


def _with_limited(change: Change, jobs: Sequence[DisturbedJob]) -> Change:
    """A change of a partition, or of all, that brings jobs under limits or makes them larger, with those."""
    if change.area not in ("partition", "cluster") or change.key not in _UNDER_LIMITS:
        return change
    everywhere = change.area == "cluster"
    mine = tuple(job for job in jobs if everywhere or change.subject in job.partition.split(","))
    effect = effects.joined(change.effect, effects.of_jobs(mine))
    return replace(change, effect=effect, jobs=(*change.jobs, *(job.id for job in mine)))


def _enforced(sides: Sides, meaning: Meaning) -> frozenset[str]:
    """What of slurmdbd's limits slurmctld enforces."""
    key = "accountingstorageenforce"
    stated = meaning.settings[key].value if key in meaning.settings else sides.default(key)
    return frozenset(keys.setting(key, stated or "").split(","))


def _naming(changes: Iterable[Change], hindered: tuple[DisturbedJob, ...]) -> Iterator[Change]:
    """Nodes that change what they have, with the jobs that wait for more than that."""
    ids = tuple(job.id for job in hindered)
    for change in changes:
        if hindered and change.key in _SIZES and change.needs is not Need.NOTHING:
            effect = effects.joined(change.effect, effects.of_jobs(hindered))
            yield replace(change, effect=effect, jobs=(*change.jobs, *ids))
        else:
            yield change


def _ended(change: Change, sides: Sides) -> Iterator[DisturbedJob]:
    what = f"{change.key} changes" if change.area == "cluster" else f"{change.subject} changes"
    why = f"{what if change.key else f'{change.subject} goes'}, and jobs there must end first"
    return (effects.disturbed(job, why) for job in sides.jobs_on(change.drains))


def _kept(kept: Sequence[Kept], *, prune: bool) -> tuple[str, ...]:
    """What the site does not name and stays: with the reason where it was to go, else as a hint."""
    if prune or not kept:
        return tuple(f"{each.kind} {each.subject} stays: {each.why}" for each in kept)
    names = [f"{each.kind} {each.subject}" for each in kept[:_MOST_NAMED]]
    more = f" and {len(kept) - _MOST_NAMED} more" if len(kept) > _MOST_NAMED else ""
    return (f"slurmdbd has what the site does not name: {', '.join(names)}{more}; --prune removes it",)


def _new_cluster(sides: Sides) -> Change:
    return Change(
        "cluster",
        sides.cluster,
        "",
        None,
        f"Slurm {spell_release(sides.release)}",
        Need.RESTART_DAEMONS,
        "there is no slurm.conf yet, and no slurmctld answers",
        tuple(sides.wanted.nodes),
    )


def _disk(live: Live, cluster: str) -> tuple[Meaning | None, tuple[str, ...]]:
    """What slurm.conf says; a text that nobody can understand counts as none."""
    if _SLURM_CONF not in live.disk.files:
        return None, ()
    try:
        return read_meaning(live.disk.files, _SLURM_CONF, cluster), ()
    except HpctoolsError as error:
        return None, (f"slurm.conf as it stands there cannot be understood: {error}",)


def _other_topology(disk: OnDisk, release: Release) -> Iterator[str]:
    """A file that no site makes, and that slurmctld prefers to ours without a word."""
    if "topology.yaml" in disk.files and reads_topology_yaml(release):
        yield (
            f"topology.yaml is in the folder, and Slurm {spell_release(release)} reads it instead of "
            "topology.conf and TopologyPlugin; for the site to count, move it away and restart slurmctld"
        )


def _warnings(sides: Sides) -> Iterator[str]:
    refused = [name for name, status in sides.status.items() if "INVAL" in status.state]
    if refused:
        told = f"{folded(refused)}: slurmctld refuses what its slurmd registers (INVALID_REG)"
        yield f"{told}; see `scontrol show node {refused[0]}`"
    own = spell_release(sides.release)
    others: dict[str, list[str]] = {}
    for name, status in sides.status.items():
        if status.version and status.version != own:
            others.setdefault(status.version, []).append(name)
    for version, names in others.items():
        yield f"{folded(names)}: slurmd is of release {version}, slurmctld of {own}"
