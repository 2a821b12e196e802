"""From the nodes and partitions of slurm.conf to the node groups and partitions of a site file."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from hpctools.conf.existing.fitting import fitting
from hpctools.conf.existing.gpus import gres_words
from hpctools.conf.existing.words import Words
from hpctools.conf.facts import Facts
from hpctools.conf.plan.meaning import Meaning, Node, Raw, expand, whole
from hpctools.conf.plan.values import minutes
from hpctools.conf.text import fold
from hpctools.site.nodes import NodeGroup
from hpctools.site.partitions import PartitionTerms
from hpctools.site.scalars import spell_duration

_LEAST_MEMORY = 256  # hpctools.site.nodes.Hardware
_EVERYONE = {"", "all", "(null)"}
_THERE = {("state", ""), ("state", "CLOUD")}


@dataclass
class Group:
    """Nodes that are alike and are in the same partitions.

    Attributes:
        words: the entry of `node_groups`.
        nodes: their names as the entry orders them, those that are always there first.
        partitions: the partitions that have them.
        shape: what slurm.conf says of each.
    """

    words: Words
    nodes: tuple[str, ...]
    partitions: frozenset[str]
    shape: Raw


@dataclass
class Machines:
    """What slurm.conf says of nodes and partitions, with the names that a site file needs."""

    groups: list[Group]
    partitions: dict[str, list[str]] = field(default_factory=dict)


def machines(meaning: Meaning, facts: Facts) -> Machines:
    """Gather nodes into groups; no partition has a part of a group.

    Args:
        meaning: of slurm.conf.
        facts: nodes whose endpoint they tell need no address in the site file.
    """
    members = {name: nodes_of(raw, meaning) for name, raw in meaning.partitions.items()}
    found: dict[tuple[Any, ...], list[str]] = {}
    for name, node in meaning.nodes.items():
        where = frozenset(partition for partition, nodes in members.items() if name in nodes)
        # Nodes that come and go are of the group of those that stay; what is yet to come is not.
        still = {key: value for key, value in node.shape.items() if (key, value) not in _THERE}
        found.setdefault((tuple(sorted(still.items())), where), []).append(name)
    groups: list[Group] = []
    for (_, where), names in found.items():
        # A group of a name that the facts speak of would get what they say of that.
        taken = [*(group.words["name"] for group in groups), *_spoken_of(facts, len(names))]
        groups.append(_group(names, where, meaning.nodes, taken, facts.node_endpoints))
    order = {
        partition: [group.words["name"] for group in groups if partition in group.partitions]
        for partition in members
    }
    return Machines(groups, order)


def _spoken_of(facts: Facts, nodes: int) -> Iterator[str]:
    yield from facts.hardware
    yield from (name for name, count in facts.node_counts.items() if count != nodes)


def nodes_of(partition: Raw, meaning: Meaning) -> Set[str]:
    """The nodes of a partition line: host lists, names of node sets, ALL."""
    text = partition.get("nodes", "")
    if text.lower() == "all":
        return meaning.nodes.keys()
    found: set[str] = set()
    for name in expand(text) if text else ():
        if name in meaning.node_sets:
            found |= _node_set(meaning.node_sets[name], meaning.nodes)
        else:
            found.add(name)
    return found


def _node_set(raw: Raw, nodes: Mapping[str, Node]) -> Set[str]:
    if "nodes" in raw:
        return set(expand(raw["nodes"]))
    feature = raw.get("features", "")
    return {name for name, node in nodes.items() if feature in node.shape.get("features", "").split(",")}


def _group(
    names: Sequence[str],
    where: frozenset[str],
    nodes: Mapping[str, Node],
    taken: Sequence[str],
    placed: Container[str],
) -> Group:
    cloud = [name for name in names if nodes[name].shape.get("state") == "CLOUD"]
    parts = [fold(name for name in names if name not in cloud), fold(cloud)]
    ordered = tuple(name for part in parts if part for name in expand(part))
    shape = nodes[ordered[0]].shape
    words: Words = {"name": group_name(ordered, taken)}
    counted = tuple(f"{words['name']}-{number}" for number in range(1, len(ordered) + 1))
    if counted != ordered:
        whole = fold(ordered)
        words["nodes"] = whole if tuple(expand(whole)) == ordered else ",".join(parts)
    size = len(ordered)
    if cloud:
        words["count"] = {"min": size - len(cloud), "max": size}
    elif counted == ordered:
        words["count"] = size
    addresses = [nodes[name].address or name for name in ordered]
    if addresses != list(ordered) and not all(name in placed for name in ordered):
        words["addresses"] = ",".join(addresses)
    words |= gres_words(shape.get("gres", ""))
    words["hardware"] = _hardware(shape)
    if shape.get("weight", "1") != "1" and shape["weight"].isdecimal():
        words["weight"] = int(shape["weight"])
    return Group(fitting(words, NodeGroup), ordered, where, shape)


def group_name(nodes: Sequence[str], taken: Iterable[str]) -> str:
    """A name for a node group: what its nodes' names begin with, in the letters that a group may have."""
    common = nodes[0]
    for name in nodes:
        while not name.startswith(common):
            common = common[:-1]
    words = re.findall(r"[a-z0-9]+", re.sub(r"\d+$", "", common).lower())
    stem = "-".join(words).lstrip("0123456789-")[:36] or "nodes"
    number = 1
    while (name := stem if number == 1 else f"{stem}-{number}") in taken:
        number += 1
    return name


def _hardware(shape: Raw) -> Words:
    memory = max(_LEAST_MEMORY, whole("RealMemory", shape))
    words: Words = {
        "sockets": whole("Sockets", shape),
        "cores_per_socket": int(shape["corespersocket"]),
        "threads_per_core": int(shape["threadspercore"]),
        "memory_mib": memory,
    }
    return {key: value for key, value in words.items() if (key, value) != ("threads_per_core", 1)}


def partition_words(raw: Raw, node_groups: Sequence[str]) -> Words:
    """The terms of a partition, without its name and whom it is for."""
    words: Words = {"node_groups": list(node_groups)}
    for key, word in (("maxtime", "max_time"), ("defaulttime", "default_time")):
        limit = minutes(raw.get(key, "unlimited"))
        if limit.isdecimal() and limit != "0":
            words[word] = spell_duration(int(limit) * 60)
    if {"max_time", "default_time"} <= words.keys() and _is_beyond(raw):
        del words["default_time"]  # Slurm takes it, a site file does not: in Slurm's words
    words |= dict(_job_defaults(raw))
    if raw.get("prioritytier", "1") != "1" and raw["prioritytier"].isdecimal():
        words["priority_tier"] = int(raw["prioritytier"])
    shared = raw.get("oversubscribe", "no").lower()
    if re.fullmatch(r"exclusive|(?:yes|force):[1-9]\d{0,3}", shared):
        words["over_subscribe"] = shared
    for key, word in (("exclusiveuser", "exclusive_user"), ("default", "default")):
        if raw.get(key, "no").lower() == "yes":
            words[word] = True
    return fitting(words, PartitionTerms)


def _is_beyond(raw: Raw) -> bool:
    """Whether jobs that ask for no time would get more than the most that they may have."""
    return int(minutes(raw["defaulttime"])) > int(minutes(raw["maxtime"]))


def _job_defaults(raw: Raw) -> Iterator[tuple[str, int]]:
    """What jobs get for each GPU or CPU, stated for itself or in JobDefaults."""
    stated = dict(part.lower().split("=", 1) for part in raw.get("jobdefaults", "").split(",") if "=" in part)
    every = {**stated, **raw}
    for key, word in (("defcpupergpu", "cpus_per_gpu"), ("defmempergpu", "memory_mib_per_gpu")):
        if every.get(key, "").isdecimal():
            yield word, int(every[key])
    if every.get("defmempercpu", "").isdecimal() and "defmempergpu" not in every:
        yield "memory_mib_per_cpu", int(every["defmempercpu"])


def allowed(raw: Raw, key: str) -> frozenset[str] | None:
    """Names in AllowAccounts or AllowQos; None for everyone."""
    text = raw.get(key, "")
    return None if text.lower() in _EVERYONE else frozenset(text.lower().split(","))
