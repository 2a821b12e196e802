"""What a partition gives to jobs that do not say, and how much memory may come with each CPU: pure."""

from __future__ import annotations

from dataclasses import dataclass

from hpctools.conf.plan.capacity import smallest
from hpctools.conf.plan.meaning import Meaning, Raw
from hpctools.conf.plan.partition_nodes import nodes_of

# One limit on memory excludes the other, and so do two of the defaults (slurm.conf(5)).
_SIBLINGS = {
    "defmempercpu": ("defmempercpu", "defmempernode"),
    "defmempernode": ("defmempercpu", "defmempernode"),
    "maxmempercpu": ("maxmempercpu", "maxmempernode"),
}


@dataclass(frozen=True)
class Terms:
    """What a partition gives and allows; 0 for what it does not say.

    Attributes:
        per_cpu, per_node, per_gpu: MiB for jobs that state no memory.
        gpu_cpus: CPUs for each GPU of jobs that state none.
        most_per_cpu: MiB that may come with a CPU.
        node_memory: MiB that its smallest node has; jobs get it of each node where nothing else is said.
    """

    per_cpu: int = 0
    per_node: int = 0
    per_gpu: int = 0
    gpu_cpus: int = 0
    most_per_cpu: int = 0
    node_memory: int = 0

    @property
    def memory(self) -> tuple[int, int, int]:
        """The defaults of memory."""
        return self.per_cpu, self.per_node, self.per_gpu


def terms_of(meaning: Meaning, partition: str) -> Terms | None:
    """Return a partition's terms; None of one that is not there."""
    raw = meaning.partitions.get(partition)
    if raw is None:
        return None
    return Terms(
        _stated(meaning, raw, "defmempercpu"),
        _stated(meaning, raw, "defmempernode"),
        _stated(meaning, raw, "defmempergpu"),
        _stated(meaning, raw, "defcpupergpu"),
        _stated(meaning, raw, "maxmempercpu"),
        smallest(meaning, nodes_of(meaning, raw)).get("mem", 0),
    )


def _stated(meaning: Meaning, raw: Raw, key: str) -> int:
    """A number of the partition or, where it says nothing of the kind, of the cluster."""
    own = {name: raw.get(name) or "" for name in _SIBLINGS.get(key, (key,))}
    setting = meaning.settings.get(key)
    text = own[key] if any(each.isdecimal() for each in own.values()) else setting.value if setting else ""
    return int(text) if text.isdecimal() else 0
