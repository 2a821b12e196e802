"""Changes of nodes: pure. Nodes that change alike are one change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpctools.conf.plan import effects, keys
from hpctools.conf.plan.meaning import Meaning, Node, Raw
from hpctools.conf.plan.model import Change, Need
from hpctools.conf.plan.needs import loses_jobs, node_needs
from hpctools.conf.plan.sides import Difference, Sides, differ, folded, lighter

_PLACE = ("nodeaddr", "nodehostname", "port")
_MOST_PLACES = 3


def node_changes(sides: Sides) -> Iterator[Change]:
    """Yield what comes, what goes and what changes."""
    there = sides.now.nodes if sides.now else {}
    wanted = sides.wanted.nodes
    yield from _coming(sides, [name for name in wanted if name not in there])
    yield from _going(sides, [name for name in there if name not in wanted])
    yield from _unwritten(sides)
    both = [name for name in wanted if name in there]
    yield from _reshaped(sides, both)
    for key in _PLACE:
        yield from _moved(sides, both, key)


def _unwritten(sides: Sides) -> Iterator[Change]:
    """Nodes that run as wanted and that the file does not have, or has besides."""
    if sides.disk is None or sides.running is None:
        return
    running, disk, wanted = sides.running.nodes, sides.disk.nodes, sides.wanted.nodes
    told = "they run already; only the file does not have them"
    lost = [name for name in wanted if name in running and name not in disk]
    if lost:
        yield Change("node", folded(lost), "", None, _shape_text(wanted[lost[0]].shape), Need.NOTHING, told)
    extra = [name for name in disk if name not in running and name not in wanted]
    if extra:
        told = "they do not run; only the file has them"
        yield Change("node", folded(extra), "", _shape_text(disk[extra[0]].shape), None, Need.NOTHING, told)


def _coming(sides: Sides, names: Sequence[str]) -> Iterator[Change]:
    written = sides.disk.nodes if sides.disk and sides.running else {}
    groups: dict[tuple[str, bool], list[str]] = {}
    for name in names:
        groups.setdefault((_shape_text(sides.wanted.nodes[name].shape), name in written), []).append(name)
    need = Need.RECONFIGURE if sides.anew else Need.RESTART_DAEMONS
    for (shape, known), group in groups.items():
        told = "written, but not loaded" if known else ""
        others = () if need is Need.RECONFIGURE else (*sides.slurmds(), *group)
        effect = effects.joined(f"{effects.count(len(group), 'node')} more", told, _all_slurmds(need))
        yield Change("node", folded(group), "", None, shape, need, effect, others)


def _all_slurmds(need: Need) -> str:
    return "every slurmd must know every node" if need is Need.RESTART_DAEMONS else ""


def _going(sides: Sides, names: Sequence[str]) -> Iterator[Change]:
    there = sides.now.nodes if sides.now else {}
    groups: dict[tuple[str, bool], list[str]] = {}
    for name in names:
        busy = name in sides.held
        groups.setdefault((_shape_text(there[name].shape), busy), []).append(name)
    usual = Need.RECONFIGURE if sides.anew else Need.RESTART_DAEMONS
    for (shape, busy), group in groups.items():
        need = Need.DRAIN if busy else usual
        jobs = sides.jobs_on(group) if busy else ()
        told = f"{effects.count(len(jobs), 'job')} on {'it' if len(group) == 1 else 'them'} must end first"
        effect = effects.joined(
            f"{effects.count(len(group), 'node')} fewer", told if jobs else "", _all_slurmds(usual)
        )
        nodes = sides.slurmds() if usual is Need.RESTART_DAEMONS else ()
        drains, ids = tuple(group) if busy else (), tuple(job.id for job in jobs)
        yield Change("node", folded(group), "", shape, None, need, effect, nodes, ids, drains)


def _shape_text(shape: Raw) -> str:
    parts = [f"{shape.get('cpus', '1')} CPUs", f"{shape.get('realmemory') or '1'} MiB"]
    words = (keys.node("gres", shape.get("gres")), keys.node("features", shape.get("features")))
    return ", ".join([*parts, *(word for word in words if word), *(w for w in (shape.get("state"),) if w)])


_Shapes = tuple[Raw, Raw | None, Raw | None]


def _reshaped(sides: Sides, names: Sequence[str]) -> Iterator[Change]:
    """Nodes of one line share the object of their shape, so that few are compared where there are many."""
    known: dict[tuple[int, int, int], tuple[tuple[str, Difference], ...]] = {}
    groups: dict[tuple[str, Difference], list[str]] = {}
    for name in names:
        shapes = (
            sides.wanted.nodes[name].shape,
            _shape(sides.disk, name),
            _shape(sides.running, name),
        )
        place = (id(shapes[0]), id(shapes[1]), id(shapes[2]))
        if place not in known:
            known[place] = tuple(_compare(shapes))
        for found in known[place]:
            groups.setdefault(found, []).append(name)
    for (key, difference), group in groups.items():
        yield from _changed(sides, key, difference, group)


def _shape(meaning: Meaning | None, name: str) -> Raw | None:
    found = meaning.nodes.get(name) if meaning else None
    return found.shape if found else None


def _compare(shapes: _Shapes) -> Iterator[tuple[str, Difference]]:
    wanted, disk, running = shapes
    for key in dict.fromkeys((*wanted, *(disk or {}), *(running or {}))):
        shown = running is not None and keys.node_is_shown(key)
        found = differ(
            wanted.get(key),
            None if disk is None else (disk.get(key),),
            (running.get(key),) if shown and running is not None else None,
            lambda value, key=key: keys.node(key, value),  # type: ignore[misc]
        )
        if found:
            yield key, found


def _changed(sides: Sides, key: str, found: Difference, group: Sequence[str]) -> Iterator[Change]:
    """Nodes with jobs that would not survive it are a change of their own."""
    busy = sides.held if loses_jobs(key) else {}
    parts = ([name for name in group if name not in busy], [name for name in group if name in busy])
    usual = node_needs(key, sides.release)
    for part, heaviest in zip(parts, (usual, Need.DRAIN), strict=True):
        if part:
            need = lighter(found, heaviest)
            jobs = sides.jobs_on(part) if need is Need.DRAIN else ()
            told = f"{effects.count(len(jobs), 'job')} there must end first" if jobs else ""
            yield Change(
                "node",
                folded(part),
                keys.NODE_WORDS.get(key, key),
                _spelled(found.before),
                _spelled(found.after),
                need,
                effects.joined(effects.loading(found), told),
                tuple(part) if need is not Need.NOTHING and usual is not Need.RECONFIGURE else (),
                tuple(job.id for job in jobs),
                tuple(part) if need is Need.DRAIN else (),
            )


def _spelled(value: str | None) -> str | None:
    return value if value not in ("", "(null)") else None


def _moved(sides: Sides, names: Sequence[str], key: str) -> Iterator[Change]:
    """Where slurmds listen: what each node has of its own, so that all that move are one change."""
    moved = [(name, found) for name in names if (found := _elsewhere(sides, name, key))]
    if not moved:
        return
    group = [name for name, _ in moved]
    before, after = (
        _some([getattr(found, side) or "" for _, found in moved]) for side in ("before", "after")
    )
    need = max(lighter(found, node_needs(key, sides.release)) for _, found in moved)
    told = effects.loading(moved[0][1]) if len({found[2:] for _, found in moved}) == 1 else ""
    nodes = tuple(group) if need is Need.RESTART_DAEMONS else ()
    yield Change("node", folded(group), keys.NODE_WORDS[key], before, after, need, told, nodes)


def _some(values: Sequence[str]) -> str | None:
    distinct = list(dict.fromkeys(value for value in values if value))
    more = [f"and {len(distinct) - _MOST_PLACES} more"] if len(distinct) > _MOST_PLACES else []
    return ", ".join([*distinct[:_MOST_PLACES], *more]) or None


def _elsewhere(sides: Sides, name: str, key: str) -> Difference | None:
    wanted = sides.wanted.nodes[name]
    running = sides.running.nodes.get(name) if sides.running else None
    if running is not None and running.shape.get("state") == "CLOUD" and key != "port":
        running = None  # its address is what ResumeProgram said last
    disk = sides.disk.nodes.get(name) if sides.disk else None
    if wanted[1:] == (running or wanted)[1:] == (disk or wanted)[1:]:
        return None
    mine, written, loaded = (_place(sides, name, each, key) for each in (wanted, disk, running))
    return differ(
        mine,
        None if disk is None else (written,),
        None if running is None else (loaded,),
        lambda value: value or "",
    )


def _place(sides: Sides, name: str, node: Node | None, key: str) -> str | None:
    """Where a slurmd listens, with what follows when it is not said."""
    if node is None:
        return None
    if key == "port":
        setting = sides.wanted.settings.get("slurmdport")
        return node.port or (setting.value if setting else sides.default("slurmdport"))
    hostname = node.hostname or name
    return hostname if key == "nodehostname" else node.address or hostname
