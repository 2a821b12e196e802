"""Reads Slurm's files as Slurm does, and knows nothing of ours: what was meant is compared with what is read.

slurm.conf(5): settings are `Key=value`, values stand in quotes where they have spaces, keys are the same in
upper and lower case, everything after a `#` is a comment.
"""

import re
from dataclasses import dataclass

from ClusterShell.NodeSet import NodeSet

_SETTING = re.compile(r'\s*([A-Za-z]+)\s*=\s*("[^"]*"|[^\s"]+)')


@dataclass
class Meaning:
    """What a configuration says, whatever its spelling.

    Attributes:
        settings: by key in lower case.
        nodes: the settings of each node by its name.
        partitions: the settings of each partition; its `nodes` as a set.
    """

    settings: dict[str, str]
    nodes: dict[str, dict[str, str]]
    partitions: dict[str, dict[str, object]]


def lines_of(text: str) -> list[dict[str, str]]:
    """The settings of each line that has any; what is no setting fails."""
    found = []
    for line in text.splitlines():
        rest, settings = line.split("#")[0].rstrip(), {}
        while rest:
            match = _SETTING.match(rest)
            assert match, line
            assert match[1].lower() not in settings, line
            settings[match[1].lower()] = match[2].strip('"')
            rest = rest[match.end() :]
        if settings:
            found.append(settings)
    return found


def read(text: str) -> Meaning:
    """Read a whole slurm.conf; what is said twice fails."""
    meaning = Meaning({}, {}, {})
    for line in lines_of(text):
        if "nodename" in line:
            _add_nodes(meaning, line)
        elif "partitionname" in line:
            name = line.pop("partitionname")
            assert name not in meaning.partitions
            meaning.partitions[name] = {**line, "nodes": set(NodeSet(line["nodes"]))}
        else:
            ((key, value),) = line.items()
            # Each controller has a line; the first is the primary one.
            if key == "slurmctldhost" and key in meaning.settings:
                value = f"{meaning.settings.pop(key)} {value}"
            assert key not in meaning.settings
            meaning.settings[key] = value
    return meaning


def _add_nodes(meaning: Meaning, line: dict[str, str]) -> None:
    names = list(NodeSet(line.pop("nodename")))
    addresses = list(NodeSet(line.pop("nodeaddr", "")))
    for place, name in enumerate(names):
        assert name not in meaning.nodes
        meaning.nodes[name] = dict(line)
        if addresses:
            meaning.nodes[name]["nodeaddr"] = addresses[place]


def leaves(text: str) -> dict[str, tuple[set[str], list[str]]]:
    """Read a topology.conf of switches: the nodes and the switches of each."""
    return {
        line["switchname"]: (
            set(NodeSet(line.get("nodes", ""))),
            [name for name in line.get("switches", "").split(",") if name],
        )
        for line in lines_of(text)
    }
