"""Which jobs a changed partition would disturb: pure.

Jobs that run go on; jobs that wait may never start, which Slurm tells nobody (tried on 22.05.8 and 24.11.5).
Those of a partition that goes end at once, all of them (tried on all releases).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from hpctools.conf.plan import effects, keys
from hpctools.conf.plan.capacity import capacity, misfit, reshapes
from hpctools.conf.plan.demand import ON_NODES, Demand
from hpctools.conf.plan.meaning import Meaning
from hpctools.conf.plan.model import DisturbedJob
from hpctools.conf.plan.partition_nodes import nodes_of
from hpctools.conf.plan.partition_terms import memory_for_limit
from hpctools.conf.plan.sides import Sides
from hpctools.conf.plan.terms import Terms, terms_of
from hpctools.conf.plan.whole_nodes import gives_nodes, taken
from hpctools.slurm.states import WAITING
from hpctools.slurm.types import Job
from hpctools.slurm.versions import holds_memory_of_cpus_against_nodes, keeps_jobs_of_other_partitions

Why = Callable[[Job, Demand], str]
"""Why a change keeps a pending job from starting; "" when it does not."""
_NOTHING = Demand()


def disturbed_by(sides: Sides, partition: str, key: str, before: str, after: str) -> tuple[DisturbedJob, ...]:
    """Return the jobs that a change of one key would keep from starting in a partition.

    Args:
        before, after: canonical texts.
    """
    why = _why(sides, partition, key, before, after)
    if why is None:
        return ()
    told = ((job, why(job, sides.demands.get(job.id, _NOTHING))) for job in _waiting(sides, partition))
    return tuple(effects.disturbed(job, reason) for job, reason in told if reason)


def misfits(sides: Sides, partition: str, before: str, after: str) -> tuple[DisturbedJob, ...]:
    """Return the jobs for which the nodes of a partition suffice now and will not then.

    Args:
        before, after: its nodes, as folded lists.
    """
    jobs = [job for job in _waiting(sides, partition) if job.id in sides.demands]
    now = sides.now
    if not jobs or now is None or not after:  # that it has no nodes at all is told as such
        return ()
    there = sides.once(("there", before), lambda: capacity(now, before))
    then = sides.once(("then", after), lambda: capacity(sides.wanted, after))
    earlier, later = taken(sides)
    if there == then:
        jobs = [job for job in jobs if earlier[job.id, partition] != later[job.id, partition]]
    stated = there != then and not holds_memory_of_cpus_against_nodes(sides.release)
    told = ((job, misfit(later[job.id, partition], then, stated=stated)) for job in jobs)
    return tuple(
        effects.disturbed(job, why)
        for job, why in told
        if why and not misfit(earlier[job.id, partition], there, stated=stated)
    )


def reshaped(sides: Sides) -> Iterator[tuple[str, tuple[DisturbedJob, ...]]]:
    """Yield partitions whose nodes have too little then, though they stay the same nodes, with their jobs."""
    if sides.now is None:
        return
    earlier, later = taken(sides)
    if earlier == later and not reshapes(sides.now, sides.wanted):
        return
    waiting = {name for job in sides.jobs if job.state in WAITING for name in job.partition.split(",")}
    there = sides.now.partitions
    for name in (each for each in sides.wanted.partitions if each in waiting and each in there):
        now, then = (nodes_of(each, each.partitions[name]) for each in (sides.now, sides.wanted))
        if now == then:
            yield name, misfits(sides, name, now, then)


def ended_with(sides: Sides, partition: str) -> tuple[Job, ...]:
    """Return the jobs that Slurm ends when a partition goes."""
    kept = keeps_jobs_of_other_partitions(sides.release)
    named = (job for job in sides.jobs if partition in job.partition.split(","))
    return tuple(job for job in named if not (kept and _elsewhere(sides, job)))


def _elsewhere(sides: Sides, job: Job) -> bool:
    return any(name in sides.wanted.partitions for name in job.partition.split(","))


def unusable(sides: Sides, number: int, partition: str) -> bool:
    """Whether a waiting job, by its id, could not start in a partition then, if it can now or not."""
    raw = sides.wanted.partitions.get(partition)
    job = sides.by_id.get(number)
    if raw is None or job is None:
        return True
    demand = sides.demands.get(number)
    for key in raw:
        before = "all" if key == "allowgroups" else ""
        why = _why(sides, partition, key, before, keys.partition(key, raw[key]))
        if why is not None and why(job, demand or _NOTHING):
            return True
    nodes = nodes_of(sides.wanted, raw)
    if demand is None or not nodes:
        return not nodes
    then = sides.once(("then", nodes), lambda: capacity(sides.wanted, nodes))
    stated = not holds_memory_of_cpus_against_nodes(sides.release)
    return bool(misfit(taken(sides)[1][number, partition], then, stated=stated))


def _waiting(sides: Sides, partition: str) -> Iterator[Job]:
    return (job for job in sides.jobs if job.state in WAITING and partition in job.partition.split(","))


def _why(sides: Sides, partition: str, key: str, before: str, after: str) -> Why | None:
    if key == "maxmempernode":
        return _too_much_memory(sides, partition, before, after)
    return _reason(sides, key, before, after)


def _reason(sides: Sides, key: str, before: str, after: str) -> Why | None:
    reasons: dict[str, Callable[[str, str], Why | None]] = {
        "maxtime": _too_long,
        "maxnodes": _too_many,
        "minnodes": _too_few,
        "allowgroups": lambda before, after: _not_in_groups(sides.groups, before, after),
        "allowaccounts": lambda _, after: _not_among("account", after),
        "allowqos": lambda _, after: _not_among("qos", after),
        "denyaccounts": lambda _, after: _among("account", after),
        "denyqos": lambda _, after: _among("qos", after),
        "state": _closed,
        "nodes": _nodes_gone,
    }
    return reasons[key](before, after) if key in reasons else None


def _too_long(before: str, after: str) -> Why | None:
    """Those that fitted before and do not any more."""
    if not after.isdecimal():
        return None
    most, old = int(after), int(before) if before.isdecimal() else None

    def why(job: Job, _: Demand) -> str:
        wanted = job.time_limit
        fitted = old is None or (wanted is not None and wanted <= old)
        if not fitted or (wanted is not None and wanted <= most):
            return ""
        return f"it asks for {effects.span(wanted)}, and at most {effects.span(most)} are allowed then"

    return why


def _too_many(before: str, after: str) -> Why | None:
    if not after.isdecimal():
        return None
    most, old = int(after), int(before) if before.isdecimal() else None

    def why(_: Job, demand: Demand) -> str:
        wanted = demand.tres.get("node", 1)
        if wanted <= most or (old is not None and wanted > old):
            return ""
        return f"it asks for {effects.amount('node', wanted)}, and at most {most} are allowed then"

    return why


def _too_few(before: str, after: str) -> Why | None:
    """What counts is the least number of nodes that a job asks for, also of one that would take more."""
    if not after.isdecimal():
        return None
    fewest, old = int(after), int(before) if before.isdecimal() else 0

    def why(_: Job, demand: Demand) -> str:
        wanted = demand.tres.get("node", 1)
        if wanted >= fewest or wanted < old:
            return ""
        return f"it asks for {effects.amount('node', wanted)}, and {fewest} are the fewest then"

    return why


def _too_much_memory(sides: Sides, partition: str, before: str, after: str) -> Why | None:
    """What a job gets of a node's memory as slurmctld reckons it, under the defaults then."""
    most, old = (int(text) if text.isdecimal() else 0 for text in (after, before))
    if not most or sides.now is None:
        return None
    now, then = (_memory_on_a_node(meaning, partition) for meaning in (sides.now, sides.wanted))
    earlier, later = taken(sides)

    def why(job: Job, _: Demand) -> str:
        way = job.id, partition
        if way not in later or (old and now(earlier[way])[0] > old):
            return ""
        least, likely = then(later[way])
        if likely <= most or (least <= most and old and now(earlier[way])[1] > old):
            return ""
        told = effects.amount("mem", least if least > most else likely)
        doubt = later[way].doubt("mem", "" if least > most else ON_NODES)
        return f"it asks for {told} on a node, and at most {most} are allowed then{doubt}"

    return why


def _memory_on_a_node(meaning: Meaning, partition: str) -> Callable[[Demand], tuple[int, int]]:
    terms = terms_of(meaning, partition) or Terms()
    whole = gives_nodes(meaning.partitions.get(partition, {}))
    return lambda demand: memory_for_limit(demand, terms, whole=whole or demand.whole)


def _not_in_groups(groups: Mapping[str, frozenset[str]], before: str, after: str) -> Why | None:
    """Slurm's own people may use every partition; of those who are not known here nothing is said."""
    allowed, old = set(after.split(",")), set(before.split(","))
    if allowed == {"all"}:
        return None

    def why(job: Job, _: Demand) -> str:
        mine = {name.lower() for name in groups.get(job.user, ())}
        if job.user == "root" or not mine or mine & allowed or not (old == {"all"} or mine & old):
            return ""
        return f"{job.user} is in no group that may use it then"

    return why


def _not_among(field: str, after: str) -> Why | None:
    allowed = set(after.split(","))
    if allowed == {"all"}:
        return None
    return lambda job, _: (
        ""
        if getattr(job, field).lower() in allowed
        else f"its {_NAMES[field]} {getattr(job, field)} is not allowed then"
    )


def _among(field: str, after: str) -> Why:
    denied = set(after.split(","))
    return lambda job, _: (
        f"its {_NAMES[field]} {getattr(job, field)} is refused then"
        if getattr(job, field).lower() in denied
        else ""
    )


_NAMES = {"account": "account", "qos": "QoS"}


def _closed(before: str, after: str) -> Why | None:
    return (lambda *_: f"the partition is {after.upper()} then") if after in ("down", "inactive") else None


def _nodes_gone(before: str, after: str) -> Why | None:
    return None if after else lambda *_: "the partition has no nodes then"
