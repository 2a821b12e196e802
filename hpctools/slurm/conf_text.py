"""The lines of Slurm's configuration files, as its daemons read them: pure.

slurm.conf(5) and measured on slurmctld: keys in any case, `key=value` pairs between blanks, values perhaps in
double quotes (single ones belong to the value), comments from `#`, lines that go on after a backslash, and
Include.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_PAIR = re.compile(r'([A-Za-z0-9_]+)\s*[-+*/]?=\s*("[^"]*"|\S*)')
_INCLUDE = re.compile(r"include\s+(\S.*)", re.IGNORECASE)


class Pair(NamedTuple):
    """A key as it is written, and its value without quotes."""

    key: str
    value: str


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that say something, without comments and with what follows a backslash.

    Returns:
        The number of the line that it begins in, from 1, and the text.
    """
    first, begun = 0, ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = _without_comment(raw) if "#" in raw else raw
        first = first or number
        if line.endswith("\\"):
            begun += line[:-1]  # and nothing between: slurmctld reads `a,\` and `b` as `a,b` (measured)
            continue
        whole = (begun + line).strip()
        if whole:
            yield first, whole
        first, begun = 0, ""
    if begun.strip():
        yield first, begun.strip()


def pairs(line: str) -> tuple[Pair, ...]:
    """The settings of a logical line, in their order."""
    return tuple(Pair(key, value.strip('"')) for key, value in _PAIR.findall(line))


def included(line: str) -> str | None:
    """The path that a logical line includes, as it is spelled; None when it includes nothing."""
    found = _INCLUDE.fullmatch(line)
    return found[1].strip().strip('"') if found else None


def _without_comment(line: str) -> str:
    # A `\#` is a plain `#`.
    return re.split(r"(?<!\\)#", line, maxsplit=1)[0].replace("\\#", "#")
