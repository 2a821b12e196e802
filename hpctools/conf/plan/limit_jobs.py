"""Which jobs changed limits would keep from starting, keep waiting for longer, or end: pure.

Tried on 22.05.8, 24.11.5 and 26.05.5 (docs/decisions/0079): jobs that run go on under lower limits, except
where they have used up one on minutes; jobs that wait stay in the queue, some for ever, and nobody is told.
Limits on submission do nothing to jobs that are in the queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hpctools.conf.plan import effects
from hpctools.conf.plan.capacity import memory_on_a_node
from hpctools.conf.plan.demand import Demand, Holder, Used
from hpctools.conf.plan.model import DisturbedJob
from hpctools.conf.plan.rules import Limit, Place, Rules
from hpctools.conf.plan.ways import Ways
from hpctools.slurm.states import WAITING
from hpctools.slurm.types import Job

_NOTHING = Demand()
_UNUSED = Used()
_ENDLESS = 2**62


class Hindrance(NamedTuple):
    """A job, and who states what is in its way, by which word of sacctmgr."""

    job: DisturbedJob
    holder: Holder
    key: str


@dataclass
class Held:
    """What the jobs of a group that run hold together."""

    jobs: int = 0
    tres: dict[str, int] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    nodes: set[str] = field(default_factory=set)

    def take(self, job: Job, demand: Demand) -> None:
        """Count a job."""
        self.jobs += 1
        self.nodes.update(job.nodes)
        for name, count in demand.tres.items():
            self.tres[name] = self.tres.get(name, 0) + count
            self.left[name] = self.left.get(name, 0) + count * (demand.left or 0)

    def of(self, tres: str) -> int:
        """How much of a TRES; nodes that jobs share count once."""
        return len(self.nodes) if tres == "node" else self.tres.get(tres, 0)


@dataclass(frozen=True)
class Queue:
    """The jobs there are, with what they ask for and hold.

    Attributes:
        demands: by job id; of a job that is missing only numbers and times are looked at.
        used: of limits on used time, by holder.
        then: what jobs that wait would take in each of their partitions; as in `demands` where it is missing.
        earlier: what they take now, where it is not that.
    """

    jobs: Sequence[Job]
    demands: Mapping[int, Demand] = field(default_factory=dict)
    used: Mapping[Holder, Used] = field(default_factory=dict)
    then: Mapping[tuple[int, str], Demand] = field(default_factory=dict)
    earlier: Mapping[tuple[int, str], Demand] = field(default_factory=dict)

    def held(self, rules: Rules) -> dict[tuple[str, ...], Held]:
        """What the jobs that run hold, by the groups of rules."""
        found: dict[tuple[str, ...], Held] = {}
        for job in self.jobs:
            if job.nodes and job.state != "COMPLETING":
                for group in rules.groups(job):
                    found.setdefault(group, Held()).take(job, self.demands.get(job.id, _NOTHING))
        return found


def hindered(before: Rules, after: Rules, queue: Queue, ways: Ways) -> Iterator[Hindrance]:
    """Yield the jobs that new rules would disturb, each with every limit that does, the worst first.

    Args:
        ways: what else keeps jobs out of partitions; what these rules do is noted there first.
    """
    if before == after and not queue.earlier:
        return
    look = _Look(before, after, queue, queue.held(after))
    waiting = [job for job in queue.jobs if job.state in WAITING and not before.refusing_qos(job)]
    found = [(job, {name: [*_in_partition(job, name, look)] for name in _named(job)}) for job in waiting]
    for _, by_partition in found:
        for name, hindrances in by_partition.items():
            ways.close(name, (each.job for each in hindrances if not each.job.waits))
    for job, by_partition in found:
        yield from _of_ways(job, by_partition, ways)
    for job in queue.jobs if "safe" not in after.enforced else ():
        if job.nodes and job.state not in WAITING:
            yield from _running(job, *_new_limits(job, job.partition, look), queue)


def _named(job: Job) -> list[str]:
    return job.partition.split(",")


def _of_ways(job: Job, found: Mapping[str, Sequence[Hindrance]], ways: Ways) -> Iterator[Hindrance]:
    """What closes partitions to a job; what makes it wait, unless nothing does in another one."""
    for name, hindrances in found.items():
        for each in hindrances:
            if not each.job.waits:
                yield each._replace(job=ways.told(name, each.job))
    free = [found[name] for name in found if ways.open(job.id, name)]
    later = min(free, key=len) if free else [each for hindrances in found.values() for each in hindrances]
    yield from (each for each in later if each.job.waits)


def _in_partition(job: Job, partition: str, look: _Look) -> Iterator[Hindrance]:
    """What would be in a waiting job's way in one of its partitions, and is not now."""
    queue, way = look.queue, (job.id, partition)
    demand = queue.then.get(way) or queue.demands.get(job.id, _NOTHING)
    earlier = queue.earlier.get(way, demand)
    limits, old = _new_limits(job, partition, look)
    if not _hopeless(old.values(), job, earlier, look.before):
        limits = list(look.rules.limits(job, partition)) if earlier != demand else limits
        yield from _waiting(job, demand, limits, look)


def _new_limits(job: Job, partition: str, look: _Look) -> tuple[list[Limit], dict[Place, Limit]]:
    """The limits that are tighter than before, and those of before."""
    old = {limit.place: limit for limit in look.before.limits(job, partition)}
    return [each for each in look.rules.limits(job, partition) if _tighter(each, old.get(each.place))], old


def _tighter(new: Limit, old: Limit | None) -> bool:
    return old is None or (new.value > old.value if new.kind.least else new.value < old.value)


class _Look(NamedTuple):
    """What a job is compared with: the rules now and then, and what there is."""

    before: Rules
    rules: Rules
    queue: Queue
    held: Mapping[tuple[str, ...], Held]


def _waiting(job: Job, demand: Demand, new: Sequence[Limit], look: _Look) -> Iterator[Hindrance]:
    refusing = look.rules.refusing_qos(job)
    if refusing:
        told = f"its QoS {job.qos} is not allowed to {job.user} in {job.account} then"
        yield Hindrance(effects.disturbed(job, told), refusing, "QOS")
    later = []
    for limit in new:
        asked = _asked(limit, job, demand, look.rules)
        if _never(limit, asked):
            told = _told_never(limit, asked) + demand.doubt(limit.tres)
            yield Hindrance(effects.disturbed(job, told), limit.holder, limit.key)
        elif asked and (used := _in_use(limit, look)) + asked > limit.value:
            told = _told_later(limit, used) + demand.doubt(limit.tres)
            later.append(Hindrance(effects.disturbed(job, told, waits=True), limit.holder, limit.key))
    yield from later


def _running(job: Job, new: Sequence[Limit], old: Mapping[Place, Limit], queue: Queue) -> Iterator[Hindrance]:
    """Where jobs may begin that cannot complete, Slurm ends them once a limit on minutes is used up."""
    for limit in new:
        if limit.kind.scope != "all" or limit.kind.measure not in ("minutes", "wall"):
            continue
        used = _spent(limit, queue)
        before = old.get(limit.place)
        if used >= limit.value and not (before and used >= before.value):
            told = f"{_who(limit)} may use {_much(limit)} then, which are used up: Slurm ends it"
            yield Hindrance(effects.disturbed(job, told), limit.holder, limit.key)


def _hopeless(limits: Iterable[Limit], job: Job, demand: Demand, rules: Rules) -> bool:
    return any(_never(limit, _asked(limit, job, demand, rules)) for limit in limits)


def _asked(limit: Limit, job: Job, demand: Demand, rules: Rules) -> int:
    """How much of a limit a job takes; where jobs may begin that cannot complete, a minute is enough."""
    kind, tres = limit.kind, demand.tres.get(limit.tres, 0)
    if kind.measure == "jobs":
        return 1
    if kind.measure == "tres":
        return tres if kind.scope != "node" else _per_node(demand, limit.tres)
    minutes = _ENDLESS if job.time_limit is None else job.time_limit
    asked = minutes if kind.measure == "wall" else tres * minutes
    used_up = kind.scope == "all" and kind.measure != "left" and "safe" not in rules.enforced
    return min(asked, 1) if used_up else asked


def _per_node(demand: Demand, tres: str) -> int:
    """As many as it wants on every node, or at least has on one of them."""
    if tres == "mem":
        return memory_on_a_node(demand)
    spread = -(-demand.tres.get(tres, 0) // max(demand.nodes, demand.tres.get("node", 1), 1))
    return demand.per_node.get(tres, spread)


def _never(limit: Limit, asked: int) -> bool:
    if limit.kind.least:
        return asked < limit.value
    return asked > limit.value


def _in_use(limit: Limit, look: _Look) -> int:
    if not limit.group:
        return 0
    held = look.held.get(limit.group, Held())
    if limit.kind.measure == "jobs":
        return held.jobs
    if limit.kind.measure == "tres":
        return held.of(limit.tres)
    left, spent = held.left.get(limit.tres, 0), int(_spent(limit, look.queue))
    if limit.kind.measure == "left":
        return left
    return spent + left if "safe" in look.rules.enforced else spent


def _spent(limit: Limit, queue: Queue) -> float:
    used = queue.used.get(limit.holder, _UNUSED)
    return used.wall if limit.kind.measure == "wall" else used.minutes.get(limit.tres, 0.0)


def _who(limit: Limit) -> str:
    kind, name, account = limit.holder
    holder = {"qos": f"QoS {name}", "account": f"account {name}"}.get(kind, f"{name} in {account}")
    if limit.group[:1] == ("association",) and kind != "association":
        return f"{limit.group[1]} in {limit.group[2]}"
    if kind == "qos" and len(limit.group) > 2:
        return f"{limit.group[3]} in {holder}"
    return (
        holder
        if limit.group
        else {"node": f"a job of {holder} on a node"}.get(limit.kind.scope, f"a job of {holder}")
    )


def _told_never(limit: Limit, asked: int) -> str:
    if limit.kind.measure == "jobs":
        return f"{_who(limit)} may run no jobs then"
    if limit.kind.least:
        return f"it asks for {_much(limit, asked)}, and {_who(limit)} has to ask for {_much(limit)} then"
    return f"it asks for {_much(limit, asked)}, and {_who(limit)} may have {_much(limit)} then"


def _told_later(limit: Limit, used: int) -> str:
    if limit.kind.measure == "jobs":
        return f"{_who(limit)} may run {_much(limit)} then, with {used} running"
    return f"{_who(limit)} may have {_much(limit)} then, with {_much(limit, used)} in use"


def _much(limit: Limit, value: int | None = None) -> str:
    count = limit.value if value is None else value
    if limit.kind.measure == "jobs":
        return effects.count(count, "job")
    if limit.kind.measure == "wall":
        return effects.span(None if count >= _ENDLESS else count)
    if count >= _ENDLESS:
        return "no end of time"
    return effects.amount(limit.tres, count, "" if limit.kind.measure == "tres" else "-minute")
