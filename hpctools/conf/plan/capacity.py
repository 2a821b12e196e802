"""What the nodes of a partition have, and whether a job fits on them: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hpctools.conf.plan import effects, values
from hpctools.conf.plan.demand import Demand, Tres, generic
from hpctools.conf.plan.meaning import Meaning, Raw, expand


@dataclass(frozen=True)
class Capacity:
    """What a partition has.

    Attributes:
        nodes: how many nodes.
        total: CPUs and generic resources of all nodes.
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


def least(meaning: Meaning, lists: Iterable[str], demand: Demand) -> Tres:
    """Count what the smallest node has, each TRES for itself, of those on which a job fits; {} of none.

    Args:
        lists: folded lists of nodes.
    """
    shapes = {
        id(meaning.nodes[name].shape): meaning.nodes[name].shape
        for nodes in lists
        for name in (expand(nodes) if nodes else ())
        if name in meaning.nodes
    }
    fitting = [node for node in map(_of_node, shapes.values()) if _fits(demand, node)]
    return {name: min(node.get(name, 0) for node in fitting) for name in {*()}.union(*fitting)}


def _fits(demand: Demand, node: Tres) -> bool:
    return all(count <= node.get(name, 0) for name, count in demand.per_node.items())


def _of_node(shape: Raw) -> Mapping[str, int]:
    cpus = shape.get("cpus", "1")
    return {"cpu": int(cpus) if cpus.isdecimal() else 1, **generic(values.gres(shape.get("gres") or ""))}


def reshapes(there: Meaning, then: Meaning) -> bool:
    """Whether a node that stays has more or less of what jobs ask for."""
    pairs = {
        (id(there.nodes[name].shape), id(node.shape)): (there.nodes[name].shape, node.shape)
        for name, node in then.nodes.items()
        if name in there.nodes
    }
    return any(_of_node(old) != _of_node(new) for old, new in pairs.values())


def misfit(demand: Demand, there: Capacity) -> str:
    """What a job asks for and a partition does not have, whoever else runs; "" when it may fit."""
    fewest = demand.tres.get("node", 1)
    if fewest > there.nodes:
        return f"it asks for {effects.amount('node', fewest)}, of which there {_are(there.nodes)} then"
    for tres, count in demand.tres.items():
        total = there.total.get(tres.lower(), 0)
        if (tres == "cpu" or tres.startswith("gres/")) and count > total:
            return f"it asks for {effects.amount(tres, count)}, of which there {_are(total)} then"
    for tres, count in demand.per_node.items():
        if count > there.most.get(tres, 0):
            most = there.most.get(tres, 0)
            return f"it asks for {effects.amount(tres, count)} on a node, and none has more than {most} then"
    return ""


def _are(number: int) -> str:
    return f"{'is' if number == 1 else 'are'} {number or 'none'}"
