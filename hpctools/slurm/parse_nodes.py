"""What scontrol prints of nodes, as JSON and as text, read into records: pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from hpctools.errors import ReleaseError
from hpctools.slurm.parse import unreadable
from hpctools.slurm.types import Node

# Their values are anybody's words and come last (slurm 22.05 to 26.05, api/node_info.c).
_FREE_TEXT = re.compile(r" (?=(?:Reason|Comment|Extra)=)")
# The user and time that scontrol adds to a reason.
_SET_BY = re.compile(r" \[[^\s\[\]]+@[^\s\[\]]+\]$")
_SUFFIXES = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}
_COUNT = re.compile(r"(\d+)([KMGT]?)", re.IGNORECASE)


def nodes_from_json(text: str) -> list[Node]:
    """Read `scontrol show node --all --json` (data_parser v0.0.39 and later).

    Raises:
        ReleaseError: it is not what these releases print.
    """
    try:
        return [_from_json(row) for row in json.loads(text)["nodes"]]
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ReleaseError(
            f"scontrol's JSON of nodes cannot be read ({type(error).__name__}: {error})",
            "check that `scontrol --version` is a release between 22.05 and 26.05",
        ) from None


def _from_json(row: Mapping[str, Any]) -> Node:
    base, *flags = row["state"]
    return Node(
        name=row["name"],
        state=base,
        flags=tuple(sorted(flags)),
        reason=row["reason"],
        cpus=row["cpus"],
        memory_mb=row["real_memory"],
        gres=gres(row["gres"]),
        features=tuple(row["active_features"]),
        partitions=tuple(row["partitions"]),
        address=row["address"],
        version=row["version"],
    )


def nodes_from_text(text: str) -> list[Node]:
    """Read `scontrol --oneliner --all show node`.

    Raises:
        ReleaseError: a node is not told as these releases do; names it.
    """
    return [_from_line(line) for line in text.splitlines() if line.startswith("NodeName=")]


def _from_line(line: str) -> Node:
    try:
        return _node_of(line)
    except (KeyError, ValueError):  # a field that is not there, a number that is none
        raise unreadable("scontrol", line) from None


def _node_of(line: str) -> Node:
    settled, *free = _FREE_TEXT.split(line)
    fields = dict(part.partition("=")[::2] for part in re.split(r" +(?=[A-Za-z_]+=)", settled))
    base, *flags = fields["State"].rstrip("*").split("+")
    return Node(
        name=fields["NodeName"],
        state=base,
        flags=tuple(sorted(flags)),
        reason=_reason(free),
        cpus=int(fields["CPUTot"]),
        memory_mb=int(fields["RealMemory"]),
        gres=gres(fields["Gres"]),
        features=_words(fields.get("ActiveFeatures", "")),
        partitions=_words(fields.get("Partitions", "")),
        address=fields.get("NodeAddr", ""),
        version=fields.get("Version", ""),
    )


def _reason(free: list[str]) -> str:
    start = next((n for n, part in enumerate(free) if part.startswith("Reason=")), None)
    if start is None:
        return ""
    # A reason may itself hold what looks like the start of a field; only Comment and Extra are cut off.
    words = [free[start].removeprefix("Reason=")]
    words += [part for part in free[start + 1 :] if part.startswith("Reason=")]
    return _SET_BY.sub("", " ".join(words))


def _words(text: str) -> tuple[str, ...]:
    return () if text in ("", "(null)") else tuple(text.split(","))


def largest(nodes: Iterable[Node]) -> dict[str, dict[str, int]]:
    """The most that one node of each partition has of a TRES, by partition and Slurm's name of the TRES.

    Returns:
        CPUs, memory in MiB, and generic resources of all types together and of each (`gres/gpu:a100`).
    """
    found: dict[str, dict[str, int]] = {}
    for node in nodes:
        for partition in node.partitions:
            most = found.setdefault(partition, {})
            most.update({name: max(count, most.get(name, 0)) for name, count in _tres_of(node).items()})
    return found


def _tres_of(node: Node) -> dict[str, int]:
    kinds = {name.partition(":")[0] for name in node.gres}
    together = {
        kind: sum(n for name, n in node.gres.items() if name.partition(":")[0] == kind) for kind in kinds
    }
    counts = {f"gres/{name}": count for name, count in {**node.gres, **together}.items()}
    return {"cpu": node.cpus, "mem": node.memory_mb, **counts}


def gres(text: str) -> dict[str, int]:
    """Counts of generic resources as nodes have them: `gpu:a100:8(S:0-1),shard:16` and the like.

    Returns:
        counts by `name`, or `name:type` where there is a type.
    """
    plain = re.sub(r"\([^)]*\)", "", text)
    found: dict[str, int] = {}
    for entry in _words(plain):
        *name, last = entry.split(":")
        count = _COUNT.fullmatch(last)
        if count is None:
            name, number = [*name, last], 1
        else:
            number = int(count[1]) * _SUFFIXES[count[2].upper()]
        key = ":".join(word for word in name if word != "no_consume")
        found[key] = found.get(key, 0) + number
    return found
