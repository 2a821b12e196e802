"""Which slurmds are asked what they make of gres.conf, and with which configuration: pure.

slurmctld reads gres.conf, too, but merges it for no node: it starts with a node whose shards have no record
of their GPUs, and the slurmd there does not (22.05.8, 24.11.5 and 26.05.5). `slurmd -G` tells, in some
milliseconds. It gets one node's line and records; devices are stood in for, since a controller has none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hpctools.conf.preflight.expected import unfold
from hpctools.conf.preflight.statements import Statement, first, statements
from hpctools.conf.text import fold
from hpctools.slurm.throwaway.places import PRIVATE

DEVICES = f"{PRIVATE}/devices"
"""Where files lie that stand in for devices, by their paths."""
MOST = 32
"""So many are asked at most; sites have some kinds of nodes, not hundreds."""
_SETTINGS = ("AuthType", "AuthInfo", "CredType", "SlurmUser", "PluginDir", "GresTypes")
_OF_NODE = ("boards", "sockets", "corespersocket", "threadspercore", "cpus", "realmemory", "gres")
_FILES = ("file", "multiplefiles")


@dataclass(frozen=True)
class NodeTry:
    """One node whose slurmd is asked, for all that are like it.

    Attributes:
        node: its name.
        nodes: the folded names of all.
        conf: its slurm.conf.
        gres: its gres.conf.
        devices: files that stand in for its devices.
    """

    node: str
    nodes: str
    conf: str
    gres: str
    devices: tuple[str, ...]


def tries(files: Mapping[str, str], folder: str) -> tuple[tuple[NodeTry, ...], tuple[str, ...]]:
    """Return what to ask, and what cannot be asked here, a sentence each.

    Args:
        files: texts as they are staged, by path relative to the configuration folder.
        folder: where they are meant to lie.
    """
    found = list(statements(files, folder))
    records = list(statements(files, folder, "gres.conf"))
    alike = _alike(found, records)
    detected = [names for (_, mine), names in alike.items() if _detects(mine)]
    asked = [(like, names) for like, names in alike.items() if not _detects(like[1])]
    settings = "".join(f"{key}={value}\n" for key in _SETTINGS if (value := first(found, key.lower())))
    silent = (
        *_unasked(detected, "only they detect their GPUs"),
        *_unasked([names for _, names in asked[MOST:]], f"not more than {MOST} kinds of nodes are asked"),
    )
    return tuple(_try(settings, *each) for each in asked[:MOST]), silent


def _unasked(kinds: list[list[str]], why: str) -> Iterator[str]:
    if kinds:
        nodes = fold(name for names in kinds for name in names)
        yield f"gres.conf as slurmds read it, of {nodes}: {why}"


_Words = tuple[tuple[str, str], ...]
_Like = tuple[_Words, tuple[_Words, ...]]
"""What makes nodes alike: the words of their line that count, and their records."""


def _alike(found: list[Statement], records: list[Statement]) -> dict[_Like, list[str]]:
    """Nodes with generic resources, by what their slurmds are told."""
    mine: dict[str, list[_Words]] = {}
    everywhere: list[_Words] = []
    for record in records:
        words = tuple((key, value) for key, value in record.words.items() if key != "nodename")
        for name in unfold(record.words.get("nodename", "")):
            mine.setdefault(name, []).append(words)
        everywhere += [words] if "nodename" not in record.words else []
    alike: dict[_Like, list[str]] = {}
    for name, line in _lines(found):
        alike.setdefault((line, (*everywhere, *mine.get(name, ()))), []).append(name)
    return alike


def _lines(found: list[Statement]) -> Iterator[tuple[str, _Words]]:
    usual: Mapping[str, str] = {}
    for each in found:
        name = each.words.get("nodename", "")
        stated = {key: value for key, value in {**usual, **each.words}.items() if key in _OF_NODE}
        if name.lower() == "default":
            usual = stated
        elif name and stated.get("gres"):
            words = tuple(stated.items())
            yield from ((node, words) for node in unfold(name))


def _detects(records: tuple[_Words, ...]) -> bool:
    stated = [value.lower() for words in records for key, value in words if key == "autodetect"]
    return bool(stated) and stated[-1] != "off"


def _try(settings: str, like: _Like, names: list[str]) -> NodeTry:
    line, records = like
    files = (value for words in records for key, value in words if key in _FILES)
    devices = tuple(f"{DEVICES}{path}" for value in files for path in unfold(value))
    node = names[0]
    conf = (
        f"ClusterName=preflight\nSlurmctldHost={node}(127.0.0.1)\n{settings}"
        f"SlurmdSpoolDir={PRIVATE}/spool\nSlurmdPidFile={PRIVATE}/slurmd.pid\n"
        "ProctrackType=proctrack/linuxproc\nMpiDefault=none\nSelectType=select/cons_tres\n"
        f"NodeName={node} NodeAddr=127.0.0.1 {_spelled(line)}\nPartitionName=all Nodes={node}\n"
    )
    text = "".join(f"{_spelled(tuple(_stood_in(words)))}\n" for words in records)
    return NodeTry(node, fold(names), conf, text, devices)


def _stood_in(words: _Words) -> Iterator[tuple[str, str]]:
    for key, value in words:
        yield key, ",".join(f"{DEVICES}{part}" for part in _parts(value)) if key in _FILES else value


def _parts(value: str) -> list[str]:
    """The parts of a list of paths; a comma inside brackets parts nothing."""
    depth, parts = 0, [""]
    for letter in value:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _spelled(words: _Words) -> str:
    return " ".join(f"{key}={value}" for key, value in words)
