"""Changes of partitions: pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from hpctools.conf.plan import effects, keys
from hpctools.conf.plan.alone import hides
from hpctools.conf.plan.meaning import Meaning, Raw
from hpctools.conf.plan.model import Change, DisturbedJob, Need
from hpctools.conf.plan.partition_jobs import disturbed_by, ended_with, misfits
from hpctools.conf.plan.partition_nodes import nodes_of
from hpctools.conf.plan.sides import Difference, Sides, differ, lighter
from hpctools.conf.plan.ways import Ways


class Found(NamedTuple):
    """A change, and the jobs that it would disturb."""

    change: Change
    jobs: tuple[DisturbedJob, ...] = ()


class Edit(NamedTuple):
    """One key of one partition that changes, and the jobs that it keeps out of it; values are canonical."""

    partition: str
    key: str
    difference: Difference
    before: str
    after: str
    jobs: tuple[DisturbedJob, ...] = ()


def partition_edits(sides: Sides) -> Iterator[Edit]:
    """Yield what changes of partitions that stay."""
    there = sides.now.partitions if sides.now else {}
    for name in (each for each in sides.wanted.partitions if each in there):
        yield from (edit._replace(jobs=_hindered(sides, edit)) for edit in _edits(sides, name))


def partition_changes(sides: Sides, edits: Iterable[Edit], ways: Ways) -> Iterator[Found]:
    """Yield what comes, what goes and what changes.

    Args:
        edits: of `partition_edits`.
        ways: what keeps jobs out of which partitions, these edits included.
    """
    there = sides.now.partitions if sides.now else {}
    changed: dict[str, list[Found]] = {}
    for edit in edits:
        jobs = tuple(ways.told(edit.partition, job) for job in edit.jobs)
        changed.setdefault(edit.partition, []).append(_change(edit, jobs))
    for name, raw in sides.wanted.partitions.items():
        yield from changed.get(name, ()) if name in there else (Found(_coming(sides, name, raw)),)
    for name, raw in there.items():
        if name not in sides.wanted.partitions:
            yield _going(sides, name, raw)
    yield from map(Found, _unwritten(sides))


def _coming(sides: Sides, name: str, raw: Raw) -> Change:
    written = sides.running is not None and sides.disk is not None and name in sides.disk.partitions
    nodes = nodes_of(sides.wanted, raw)
    told = effects.joined("written, but not loaded" if written else "", effects.of_new_partition(raw))
    return Change("partition", name, "", None, f"{nodes or 'no nodes'}", Need.RECONFIGURE, told)


def _going(sides: Sides, name: str, raw: Raw) -> Found:
    """Slurm ends the jobs of a partition that goes (slurm.conf(5), and tried on all releases)."""
    jobs = ended_with(sides, name)
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
        nodes_of(now, raw) or "no nodes",
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
            yield Change("partition", name, "", None, nodes_of(sides.wanted, raw), Need.NOTHING, told)
    for name, raw in disk.items():
        if name not in running and name not in wanted:
            told = "it does not run; only the file has it"
            yield Change("partition", name, "", nodes_of(sides.disk, raw), None, Need.NOTHING, told)


def _edits(sides: Sides, name: str) -> Iterator[Edit]:
    wanted = sides.wanted.partitions[name]
    disk = sides.disk.partitions.get(name) if sides.disk else None
    running = sides.running.partitions.get(name) if sides.running else None
    known = keys.PARTITION_KEYS if running is not None else ()
    for key in dict.fromkeys((*wanted, *(disk or {}), *known)):
        found = _compare(sides, key, (wanted, disk, running))
        if found:
            usual = _inherited(sides, key)
            before, after = (keys.partition(key, value, usual) for value in (found.before, found.after))
            yield Edit(name, key, found, before, after)


def _hindered(sides: Sides, edit: Edit) -> tuple[DisturbedJob, ...]:
    if edit.difference.loaded:
        return ()
    jobs = disturbed_by(sides, edit.partition, edit.key, edit.before, edit.after)
    return jobs + (misfits(sides, edit.partition, edit.before, edit.after) if edit.key == "nodes" else ())


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
        (loaded,) if running is not None and _is_shown(running, key) else None,
        lambda value: keys.partition(key, value, _inherited(sides, key)),
    )


def _is_shown(running: Raw, key: str) -> bool:
    return key in keys.PARTITION_KEYS and not hides(running, key)


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
    return nodes_of(meaning, raw) if key == "nodes" else raw.get(key)


def _change(edit: Edit, jobs: tuple[DisturbedJob, ...]) -> Found:
    found = edit.difference
    sentence = effects.of_partition(edit.partition, edit.key, edit.before, edit.after, jobs)
    change = Change(
        "partition",
        edit.partition,
        keys.PARTITION_WORDS.get(edit.key, edit.key),
        found.before,
        found.after,
        lighter(found, Need.RECONFIGURE),
        effects.joined(effects.loading(found), "" if found.loaded else sentence),
        (),
        tuple(job.id for job in jobs),
    )
    return Found(change, jobs)
