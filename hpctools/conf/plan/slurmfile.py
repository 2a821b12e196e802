"""Slurm's configuration files with what they include: pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hpctools.errors import HpctoolsError
from hpctools.slurm.conf_text import Pair, included, logical_lines, pairs

_DEEPEST = 8

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
    found = (_included(line, cluster) for _, line in logical_lines(text))
    return tuple(path for path in found if path)


def _lines(files: Mapping[str, str], path: str, cluster: str, depth: int) -> Iterator[Line]:
    if path not in files:
        raise HpctoolsError(
            f"{path} is included and does not exist", "take out the Include or bring back the file"
        )
    if depth == 0:
        raise HpctoolsError(f"{path} is included by itself", "take out the Include")
    for _, line in logical_lines(files[path]):
        inner = _included(line, cluster)
        if inner:
            yield from _lines(files, inner, cluster, depth - 1)
        else:
            found = pairs(line)
            if found:
                yield found


def _included(line: str, cluster: str) -> str | None:
    found = included(line)
    return found.replace("%c", cluster) if found else None
