"""What `scontrol show` prints of the running configuration, read into its meaning: pure.

Measured on 22.05.8: lines of `--oneliner`, keys in the words of slurm.conf with a few exceptions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hpctools.conf.plan.alone import in_old_words
from hpctools.conf.plan.meaning import Meaning, Node, Raw, Setting

_INDEX = re.compile(r"\[\d+\]$")
_WORD = re.compile(r"(?:^| )([A-Za-z][A-Za-z_]*)=(\S*)")
# What scontrol calls otherwise than slurm.conf, in lower case.
_NODE_WORDS = {
    "CPUTot": "cpus",
    "Boards": "boards",
    "Sockets": "sockets",
    "CoresPerSocket": "corespersocket",
    "ThreadsPerCore": "threadspercore",
    "RealMemory": "realmemory",
    "TmpDisk": "tmpdisk",
    "Weight": "weight",
    "AvailableFeatures": "features",
    "Gres": "gres",
    "CoreSpecCount": "corespeccount",
    "MemSpecLimit": "memspeclimit",
}
_READ = (*_NODE_WORDS, "State", "Port", "NodeAddr", "NodeHostName", "Version", "SlurmdStartTime")
_NODE = re.compile(rf" ({'|'.join(_READ)})=(\S*)")
_LASTING = ("CLOUD", "FUTURE", "EXTERNAL")
# Of `show config`: what runs, and not what was configured.
_RUNTIME = {"boot_time", "hash_val", "multiple_slurmd", "next_job_id", "slurm_conf", "slurm_version"}


@dataclass(frozen=True)
class NodeStatus:
    """How a node does.

    Attributes:
        state: as scontrol spells it, for example `IDLE+DRAIN`.
        version: its slurmd's release; "" when none has registered.
        started: when its slurmd started, `2026-11-21T14:52:31` in slurmctld's time zone; "" when unknown.
    """

    state: str
    version: str
    started: str


@dataclass(frozen=True)
class Shown:
    """What slurmctld says about itself.

    Attributes:
        meaning: the configuration that it runs.
        status: by node.
        release: its own, as it spells it.
    """

    meaning: Meaning
    status: Mapping[str, NodeStatus]
    release: str


def read_shown(config: str, nodes: str, partitions: str) -> Shown:
    """Read what `scontrol show config` prints, and `scontrol --oneliner show node` and `show partition`."""
    settings = dict(_settings(config))
    release = settings["slurm_version"].value if "slurm_version" in settings else ""
    read = dict(_nodes(nodes))
    meaning = Meaning(
        {key: value for key, value in settings.items() if key not in _RUNTIME},
        {name: node for name, (node, _) in read.items()},
        dict(_partitions(partitions)),
    )
    status = {name: status for name, (_, status) in read.items()}
    return Shown(meaning, status, release)


def _settings(text: str) -> Iterator[tuple[str, Setting]]:
    """Settings of slurm.conf: other files' have sections of their own behind it."""
    lists: dict[str, list[str]] = {}
    for line in text.split("\n\n", 1)[0].splitlines():
        key, equals, value = line.partition("=")
        if not equals:
            continue
        name = _INDEX.sub("", key.strip())
        lists.setdefault(name, []).append(value.strip())
    for name, values in lists.items():
        yield name.lower(), Setting(name, ",".join(values))


def _nodes(text: str) -> Iterator[tuple[str, tuple[Node, NodeStatus]]]:
    shapes: dict[tuple[tuple[str, str], ...], Raw] = {}
    for line in text.splitlines():
        if not line.startswith("NodeName="):
            continue
        name = line[9 : line.index(" ")]
        # Words of people (Reason, Comment) come last: what is said first counts.
        said = dict(reversed(_NODE.findall(line)))
        state = said.get("State", "")
        pairs = (
            *((word, said.get(shown, "")) for shown, word in _NODE_WORDS.items()),
            ("state", _lasting(state)),
        )
        shape = shapes.setdefault(pairs, dict(pairs))
        node = Node(shape, said.get("NodeAddr", ""), said.get("NodeHostName", ""), said.get("Port", ""))
        yield name, (node, NodeStatus(state, said.get("Version", ""), said.get("SlurmdStartTime", "")))


def _lasting(state: str) -> str:
    return next((word for word in _LASTING if word in state), "")


def _partitions(text: str) -> Iterator[tuple[str, Raw]]:
    for line in text.splitlines():
        words = {key.lower(): value for key, value in _WORD.findall(line)}
        name = words.pop("partitionname", "")
        if name:
            # JobDefaults=DefCpuPerGPU=12,DefMemPerGPU=1024
            defaults = (
                pair.partition("=") for pair in words.pop("jobdefaults", "").split(",") if "=" in pair
            )
            yield name, in_old_words({**words, **{key.lower(): value for key, _, value in defaults}})
