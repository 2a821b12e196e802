"""What a configuration means: its settings, and every node and partition by name.

The same for slurm.conf and for what `scontrol show` prints, so that they can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hpctools.conf.plan.alone import in_old_words
from hpctools.conf.plan.slurmfile import Line, parse_lines
from hpctools.errors import HpctoolsError
from hpctools.site import hostlist


class Setting(NamedTuple):
    """A setting as it is spelled, key and value."""

    key: str
    value: str


Raw = Mapping[str, str]
"""Values as they are spelled, by key in lower case."""


class Node(NamedTuple):
    """One node.

    Attributes:
        shape: what it has; the same object for nodes of one line, so that they are compared once.
        address, hostname, port: where its slurmd listens; "" for Slurm's default.
    """

    shape: Raw
    address: str
    hostname: str
    port: str


@dataclass(frozen=True)
class Meaning:
    """What a configuration means.

    Attributes:
        settings: by key in lower case; what is not stated is missing.
        nodes: by name.
        partitions: by name; values by key in lower case.
        node_sets: host lists or features by the name of a NodeSet.
    """

    settings: Mapping[str, Setting]
    nodes: Mapping[str, Node]
    partitions: Mapping[str, Raw]
    node_sets: Mapping[str, Raw] = field(default_factory=dict)


# Other words for the same, in lower case (slurm.conf(5), and older manuals).
ALIASES = {
    "controlmachine": "slurmctldhost",
    "procs": "cpus",
    "feature": "features",
    "shared": "oversubscribe",
    "maxcpuspernode": "maxcpuspernode",
}
# Lines that stand for something of their own; a setting's key may be repeated by none but these.
_REPEATED = {"slurmctldhost", "controlmachine", "backupcontroller"}
_PLACE = {"nodename", "nodeaddr", "nodehostname", "port"}
_IGNORED = {"downnodes", "frontendname"}


def read_meaning(files: Mapping[str, str], path: str = "slurm.conf", cluster: str = "") -> Meaning:
    """Read slurm.conf with what it includes.

    Args:
        files: texts by path relative to the configuration folder.
        path: slurm.conf's name.
        cluster: what `%c` stands for.

    Raises:
        HpctoolsError: an included file is missing, or a node line cannot be understood.
    """
    reader = _Reader()
    for line in parse_lines(files, path, cluster):
        reader.take(line)
    return Meaning(reader.settings, reader.nodes, reader.partitions, reader.node_sets)


class _Reader:
    """Takes lines in their order; `DEFAULT` counts for the lines after it."""

    def __init__(self) -> None:
        self.settings: dict[str, Setting] = {}
        self.nodes: dict[str, Node] = {}
        self.partitions: dict[str, Raw] = {}
        self.node_sets: dict[str, Raw] = {}
        self._node_defaults: Raw = {}
        self._partition_defaults: Raw = {}

    def take(self, line: Line) -> None:
        first = line[0].key.lower()
        if first == "nodename":
            self._node(_raw(line))
        elif first == "partitionname":
            self._partition(line[0].value, _raw(line[1:]))
        elif first == "nodeset":
            self.node_sets[line[0].value] = _raw(line[1:])
        elif first not in _IGNORED:
            for pair in line:
                self._setting(pair.key, pair.value)

    def _setting(self, key: str, value: str) -> None:
        lower = ALIASES.get(key.lower(), key.lower())
        before = self.settings.get(lower)
        if before is not None and lower in _REPEATED:
            self.settings[lower] = Setting(before.key, f"{before.value},{value}")
        else:
            self.settings[lower] = Setting(key, value)

    def _partition(self, name: str, raw: Raw) -> None:
        if name.upper() == "DEFAULT":
            self._partition_defaults = {**self._partition_defaults, **raw}
        else:
            self.partitions[name] = in_old_words({**self._partition_defaults, **raw})

    def _node(self, raw: Raw) -> None:
        folded = raw["nodename"]
        if not folded:
            raise HpctoolsError("NodeName= names no node", "correct it in slurm.conf")
        merged = {**self._node_defaults, **raw}
        if folded.upper() == "DEFAULT":
            self._node_defaults = {key: value for key, value in merged.items() if key != "nodename"}
            return
        shape = node_shape({key: value for key, value in merged.items() if key not in _PLACE})
        names = expand(folded)
        places = [_spread(merged.get(key, ""), names) for key in ("nodeaddr", "nodehostname", "port")]
        for name, address, hostname, port in zip(names, *places, strict=True):
            self.nodes[name] = Node(shape, address, hostname, port)


def _raw(line: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {ALIASES.get(key.lower(), key.lower()): value for key, value in line}


def node_shape(raw: Raw) -> Raw:
    """What a node has, with the counts that its line leaves to be worked out.

    slurm.conf(5): sockets follow from the CPUs when nothing else is said, and CPUs from the sockets.
    """
    cores, threads = whole("CoresPerSocket", raw), whole("ThreadsPerCore", raw)
    boards = whole("Boards", raw)
    stated = raw.get("sockets") or _times("SocketsPerBoard", raw, boards)
    if stated is None:
        stated = str(max(1, whole("CPUs", raw) // max(1, cores * threads)))
    counts = {
        "boards": str(boards),
        "sockets": stated,
        "corespersocket": str(cores),
        "threadspercore": str(threads),
        "cpus": raw.get("cpus") or str(whole("Sockets", {"sockets": stated}) * cores * threads),
    }
    rest = {key: value for key, value in raw.items() if key != "socketsperboard"}
    return {**rest, **counts, "state": _lasting_state(raw.get("state", ""))}


def whole(key: str, raw: Raw, usual: int = 1) -> int:
    """A whole number of a line.

    Args:
        key: as people write it.
        usual: what a missing one stands for.

    Raises:
        HpctoolsError: it is none.
    """
    text = raw.get(key.lower(), str(usual))
    if not text.isdecimal():
        raise HpctoolsError(f"{key}={text}: that is no whole number", "correct it in the Slurm file")
    return int(text)


def _times(key: str, raw: Raw, factor: int) -> str | None:
    return str(whole(key, raw) * factor) if key.lower() in raw else None


def _lasting_state(text: str) -> str:
    """What of a node's state is configuration: whether it comes and goes, or is yet to come."""
    upper = text.upper()
    return next((word for word in ("CLOUD", "FUTURE", "EXTERNAL") if word in upper), "")


def expand(folded: str) -> Sequence[str]:
    """The names of a host list, in its order: Slurm gives the first name the first address, and so on.

    Raises:
        HpctoolsError: it is none.
    """
    if "[" not in folded and "," not in folded:
        return (folded,)
    try:
        return hostlist.expand(folded)
    except hostlist.TooManyError:
        raise HpctoolsError(
            f"{folded!r} names more than {hostlist.MOST_NODES} hosts", "correct it in slurm.conf"
        ) from None
    except ValueError:
        return _expand_otherwise(folded)


def _expand_otherwise(folded: str) -> Sequence[str]:
    """What names something twice, or is spelled otherwise than a site may: sorted, and each once."""
    from ClusterShell.NodeSet import NodeSet, NodeSetException

    try:
        return tuple(NodeSet(folded))
    except NodeSetException as error:
        raise HpctoolsError(f"{folded!r} is no host list: {error}", "correct it in slurm.conf") from None


def _spread(value: str, names: Sequence[str]) -> Sequence[str]:
    """One value for each name: a list of as many, or the same for all."""
    if not value or len(names) == 1:
        return (value,) * len(names)
    if "-" in value and "[" in value and value.startswith("["):
        found: Sequence[str] = [text.removeprefix("n") for text in expand(f"n{value}")]
    else:
        found = expand(value)
    return found if len(found) == len(names) else (value,) * len(names)
