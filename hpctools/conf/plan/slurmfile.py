"""Slurm's configuration files, read as slurmctld reads them: pure.

slurm.conf(5): keys in any case, `key=value` pairs between blanks, values perhaps in double quotes, comments
from `#`, lines that go on after a backslash, and Include.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from hpctools.errors import HpctoolsError

_PAIR = re.compile(r'([A-Za-z0-9_]+)\s*[-+*/]?=\s*("[^"]*"|\S*)')
_INCLUDE = re.compile(r"include\s+(\S.*)", re.IGNORECASE)
_DEEPEST = 8


class Pair(NamedTuple):
    """A key as it is written, and its value without quotes."""

    key: str
    value: str


Line = tuple[Pair, ...]


def parse_lines(files: Mapping[str, str], path: str, cluster: str = "") -> Iterator[Line]:
    """Yield the lines of a file that say something, with those of the files that it includes in their place.

    Args:
        files: texts by path; relative ones are relative to the configuration folder.
        path: where to begin.
        cluster: what `%c` in an Include stands for.

    Raises:
        HpctoolsError: an included file is missing, or files include each other.
    """
    yield from _lines(files, path, cluster, _DEEPEST)


def included_paths(text: str, cluster: str = "") -> tuple[str, ...]:
    """Return the paths that a file includes itself, in order."""
    found = (_included(line, cluster) for line in _logical(text))
    return tuple(path for path in found if path)


def _lines(files: Mapping[str, str], path: str, cluster: str, depth: int) -> Iterator[Line]:
    if path not in files:
        raise HpctoolsError(
            f"{path} is included and does not exist", "take out the Include or bring back the file"
        )
    if depth == 0:
        raise HpctoolsError(f"{path} is included by itself", "take out the Include")
    for line in _logical(files[path]):
        inner = _included(line, cluster)
        if inner:
            yield from _lines(files, inner, cluster, depth - 1)
        else:
            pairs = tuple(Pair(key, value.strip('"')) for key, value in _PAIR.findall(line))
            if pairs:
                yield pairs


def _logical(text: str) -> Iterator[str]:
    """Lines without comments and with what follows a backslash."""
    begun = ""
    for raw in text.splitlines():
        line = _without_comment(raw) if "#" in raw else raw
        if line.endswith("\\"):
            begun += line[:-1]  # and nothing between: slurmctld reads `a,\` and `b` as `a,b` (measured)
            continue
        whole = (begun + line).strip()
        begun = ""
        if whole:
            yield whole
    if begun.strip():
        yield begun.strip()


def _without_comment(line: str) -> str:
    # A `\#` is a plain `#`.
    return re.split(r"(?<!\\)#", line, maxsplit=1)[0].replace("\\#", "#")


def _included(line: str, cluster: str) -> str | None:
    found = _INCLUDE.fullmatch(line)
    return found.group(1).strip().strip('"').replace("%c", cluster) if found else None
