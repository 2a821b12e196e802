"""What the nodes of a partition have, and whether a job fits on them: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hpctools.conf.plan import effects, values
from hpctools.conf.plan.demand import ON_NODES, Demand, Tres, generic
from hpctools.conf.plan.meaning import Meaning, Raw, expand


@dataclass(frozen=True)
class Capacity:
    """What a partition has.

    Attributes:
        nodes: how many nodes.
        total: CPUs, memory (MiB) and generic resources of all nodes.
        most: those of the largest node, each for itself.
    """

    nodes: int = 0
    total: Tres = field(default_factory=dict)
    most: Tres = field(default_factory=dict)


def capacity(meaning: Meaning, nodes: str) -> Capacity:
    """Count what a folded list of nodes has; nodes of one line share the object of their shape."""
    shapes: dict[int, tuple[Raw, int]] = {}
    names = [name for name in (expand(nodes) if nodes else ()) if name in meaning.nodes]
    for name in names:
        shape = meaning.nodes[name].shape
        shapes[id(shape)] = (shape, shapes.get(id(shape), (shape, 0))[1] + 1)
    total: dict[str, int] = {}
    most: dict[str, int] = {}
    for shape, number in shapes.values():
        for tres, count in _of_node(shape).items():
            total[tres] = total.get(tres, 0) + count * number
            most[tres] = max(most.get(tres, 0), count)
    return Capacity(len(names), total, most)


def fitting(meaning: Meaning, lists: Iterable[str], demand: Demand) -> tuple[Raw, ...]:
    """Return the shapes of nodes on which a job fits, each once.

    Args:
        lists: folded lists of nodes.
    """
    shapes = {
        id(meaning.nodes[name].shape): meaning.nodes[name].shape
        for nodes in lists
        for name in (expand(nodes) if nodes else ())
        if name in meaning.nodes
    }
    return tuple(shape for shape in shapes.values() if _fits(demand, _of_node(shape)))


def _fits(demand: Demand, node: Tres) -> bool:
    return all(count <= node.get(name, 0) for name, count in demand.per_node.items())


def least(shapes: Iterable[Raw]) -> Tres:
    """Count what the smallest node has, each TRES but memory for itself; {} of none."""
    nodes = [_of_node(shape) for shape in shapes]
    names = {*()}.union(*nodes) - {"mem"}
    return {name: min(node.get(name, 0) for node in nodes) for name in names}


def smallest(meaning: Meaning, nodes: str) -> Tres:
    """Count the CPUs and the memory of the smallest node of a folded list, each for itself; {} of none."""
    names = [name for name in (expand(nodes) if nodes else ()) if name in meaning.nodes]
    shapes = {id(meaning.nodes[name].shape): meaning.nodes[name].shape for name in names}
    found = [_of_node(shape) for shape in shapes.values()]
    return {name: min(node[name] for node in found) for name in ("cpu", "mem")} if found else {}


def fewest_threads(shapes: Iterable[Raw]) -> int:
    """Count the CPUs of a core, on the nodes where it has the fewest; 1 of none."""
    return min((_threads(shape) for shape in shapes), default=1)


def common_threads(meaning: Meaning) -> int | None:
    """Count the CPUs of a core where all nodes of a cluster have as many; None where they do not."""
    shapes = {id(node.shape): node.shape for node in meaning.nodes.values()}
    found = {_threads(shape) for shape in shapes.values()}
    return found.pop() if len(found) == 1 else None


def _threads(shape: Raw) -> int:
    """A node of as many CPUs as cores gives them out one by one (slurm.conf(5), CPUs)."""
    cores = _number(shape, "sockets", 1) * _number(shape, "corespersocket", 1)
    return max(1, _number(shape, "cpus", 1) // max(1, cores))


def _of_node(shape: Raw) -> Mapping[str, int]:
    memory = max(0, _number(shape, "realmemory", 1) - _number(shape, "memspeclimit", 0))
    plain = {"cpu": _number(shape, "cpus", 1), "mem": memory}
    return {**plain, **generic(values.gres(shape.get("gres") or ""))}


def _number(shape: Raw, key: str, default: int) -> int:
    text = shape.get(key) or ""
    return int(text) if text.isdecimal() else default


def reshapes(there: Meaning, then: Meaning) -> bool:
    """Whether a node that stays has more or less of what jobs ask for."""
    pairs = {
        (id(there.nodes[name].shape), id(node.shape)): (there.nodes[name].shape, node.shape)
        for name, node in then.nodes.items()
        if name in there.nodes
    }
    return any(_of_node(old) != _of_node(new) for old, new in pairs.values())


def misfit(demand: Demand, there: Capacity, *, stated: bool) -> str:
    """What a job asks for and a partition does not have, whoever else runs; "" when it may fit.

    Args:
        stated: whether of memory only counts what a job states, not what comes with its CPUs.
    """
    fewest = demand.tres.get("node", 1)
    if fewest > there.nodes:
        return f"it asks for {effects.amount('node', fewest)}, of which there {_are(there.nodes)} then"
    for tres, count in demand.tres.items():
        if tres == "mem" and stated:
            continue
        total = there.total.get(tres.lower(), 0)
        if (tres in ("cpu", "mem") or tres.startswith("gres/")) and count > total:
            told = f"it asks for {effects.amount(tres, count)}, of which there {_are(total)} then"
            return told + demand.doubt(tres)
    memory = demand.memory if stated else memory_on_a_node(demand)
    for tres, count in {**demand.per_node, "mem": memory}.items():
        if count > there.most.get(tres, 0):
            most = there.most.get(tres, 0)
            told = f"it asks for {effects.amount(tres, count)} on a node, and none has more than {most} then"
            return told + demand.doubt(tres, ON_NODES if tres == "mem" and _may_spread(demand, most) else "")
    return ""


def _may_spread(demand: Demand, most: int) -> bool:
    """Whether tasks find room on more nodes, if a job leaves that open: `-n12` looks like `-N1 -n12`."""
    one_task = demand.own_cpus <= demand.at_once
    if one_task or demand.whole or not demand.per_cpu or demand.memory > most:
        return False
    return demand.per_cpu * max(demand.at_once, demand.gpu_cpus) <= most


def memory_on_a_node(demand: Demand) -> int:
    """How much memory a job takes at least on one of its nodes; MiB."""
    spread = -(-demand.tres.get("mem", 0) // max(demand.nodes, demand.tres.get("node", 1), 1))
    return max(demand.memory, spread)


def _are(number: int) -> str:
    return f"{'is' if number == 1 else 'are'} {number or 'none'}"
