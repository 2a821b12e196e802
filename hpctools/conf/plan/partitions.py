"""Changes of partitions: pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from hpctools.conf.plan import effects, keys
from hpctools.conf.plan.meaning import Meaning, Raw
from hpctools.conf.plan.model import Change, DisturbedJob, Need
from hpctools.conf.plan.partition_jobs import disturbed_by
from hpctools.conf.plan.sides import Difference, Sides, differ, folded, lighter


class Found(NamedTuple):
    """A change, and the jobs that it would disturb."""

    change: Change
    jobs: tuple[DisturbedJob, ...] = ()


def partition_changes(sides: Sides) -> Iterator[Found]:
    """Yield what comes, what goes and what changes."""
    there = sides.now.partitions if sides.now else {}
    for name, raw in sides.wanted.partitions.items():
        if name not in there:
            yield Found(_coming(sides, name, raw))
        else:
            yield from _changed(sides, name)
    for name, raw in there.items():
        if name not in sides.wanted.partitions:
            yield _going(sides, name, raw)
    yield from map(Found, _unwritten(sides))


def _coming(sides: Sides, name: str, raw: Raw) -> Change:
    written = sides.running is not None and sides.disk is not None and name in sides.disk.partitions
    nodes = _nodes(sides.wanted, raw)
    told = effects.joined("written, but not loaded" if written else "", effects.of_new_partition(raw))
    return Change("partition", name, "", None, f"{nodes or 'no nodes'}", Need.RECONFIGURE, told)


def _going(sides: Sides, name: str, raw: Raw) -> Found:
    """Slurm ends the jobs of a partition that goes (slurm.conf(5), and tried on 22.05.8)."""
    jobs = [job for job in sides.jobs if name in job.partition.split(",")]
    running = [job for job in jobs if job.nodes]
    told = (
        f"Slurm cancels the jobs of a partition that goes: {effects.count(len(jobs), 'job')} must end first"
    )
    busy = tuple(dict.fromkeys(node for job in running for node in job.nodes))
    now = sides.now or sides.wanted
    change = Change(
        "partition",
        name,
        "",
        _nodes(now, raw) or "no nodes",
        None,
        Need.DRAIN if running else Need.RECONFIGURE,
        effects.joined(f"nobody can use {name} any more", told if jobs else ""),
        (),
        tuple(job.id for job in jobs),
        busy,
    )
    why = f"its partition {name} goes, and Slurm cancels it with it"
    return Found(change, tuple(effects.disturbed(job, why) for job in jobs))


def _unwritten(sides: Sides) -> Iterator[Change]:
    """Partitions that run as wanted and that the file does not have, or has besides."""
    if sides.disk is None or sides.running is None:
        return
    running, disk, wanted = sides.running.partitions, sides.disk.partitions, sides.wanted.partitions
    for name, raw in wanted.items():
        if name in running and name not in disk:
            told = "it runs already; only the file does not have it"
            yield Change("partition", name, "", None, _nodes(sides.wanted, raw), Need.NOTHING, told)
    for name, raw in disk.items():
        if name not in running and name not in wanted:
            told = "it does not run; only the file has it"
            yield Change("partition", name, "", _nodes(sides.disk, raw), None, Need.NOTHING, told)


def _changed(sides: Sides, name: str) -> Iterator[Found]:
    wanted = sides.wanted.partitions[name]
    disk = sides.disk.partitions.get(name) if sides.disk else None
    running = sides.running.partitions.get(name) if sides.running else None
    known = keys.PARTITION_KEYS if running is not None else ()
    for key in dict.fromkeys((*wanted, *(disk or {}), *known)):
        found = _compare(sides, key, (wanted, disk, running))
        if found:
            yield _change(sides, name, key, found)


def _compare(sides: Sides, key: str, sources: tuple[Raw, Raw | None, Raw | None]) -> Difference | None:
    _, disk, running = sources
    meanings = (sides.wanted, sides.disk, sides.running)
    mine, written, loaded = (
        None if raw is None or meaning is None else _value(sides, meaning, raw, key)
        for raw, meaning in zip(sources, meanings, strict=True)
    )
    return differ(
        mine,
        None if disk is None else (written,),
        (loaded,) if running is not None and key in keys.PARTITION_KEYS else None,
        lambda value: keys.partition(key, value, _inherited(sides, key)),
    )


def _inherited(sides: Sides, key: str) -> str | None:
    """What a partition takes from the cluster's settings when it says nothing itself."""
    if key not in ("preemptmode", "defmempercpu", "defmempernode", "maxmempercpu", "maxmempernode"):
        return None
    setting = sides.wanted.settings.get(key)
    if key == "preemptmode":
        # GANG is the cluster's alone.
        words = (setting.value if setting else "OFF").upper().split(",")
        return ",".join(word for word in words if word != "GANG") or "OFF"
    if key.endswith("pernode") and f"{key[:6]}percpu" in sides.wanted.settings:
        return ""
    return setting.value if setting else None


def _value(sides: Sides, meaning: Meaning, raw: Raw, key: str) -> str | None:
    """A value as that side has it; a partition's nodes as one folded list."""
    return _nodes(meaning, raw) if key == "nodes" else raw.get(key)


def _nodes(meaning: Meaning, raw: Raw) -> str:
    """The partition's nodes: ALL and NodeSets are lists of their own."""
    text = raw.get("nodes", "")
    if text.upper() == "ALL":
        return folded(meaning.nodes) if meaning.nodes else ""
    if not meaning.node_sets:
        return keys.partition("nodes", text)
    parts = [_of_set(meaning, part) for part in text.split(",")]
    return keys.partition("nodes", ",".join(part for part in parts if part))


def _of_set(meaning: Meaning, name: str) -> str:
    found: Mapping[str, str] | None = meaning.node_sets.get(name)
    if found is None:
        return name
    if "nodes" in found:
        return found["nodes"]
    words = set(found.get("features", "").split(","))
    return folded(
        name for name, node in meaning.nodes.items() if words & set(node.shape.get("features", "").split(","))
    )


def _change(sides: Sides, name: str, key: str, found: Difference) -> Found:
    need = lighter(found, Need.RECONFIGURE)
    before = keys.partition(key, found.before, _inherited(sides, key))
    after = keys.partition(key, found.after, _inherited(sides, key))
    jobs = () if found.loaded else disturbed_by(sides, name, key, before, after)
    sentence = effects.of_partition(name, key, before, after, jobs) if not found.loaded else ""
    change = Change(
        "partition",
        name,
        keys.PARTITION_WORDS.get(key, key),
        found.before,
        found.after,
        need,
        effects.joined(effects.loading(found), sentence),
        (),
        tuple(job.id for job in jobs),
    )
    return Found(change, jobs)
