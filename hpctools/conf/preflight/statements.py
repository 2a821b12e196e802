"""The statements of Slurm's configuration files, with the place of each: pure.

An Include's path is relative to the folder of slurm.conf.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hpctools.slurm.conf_text import included, logical_lines, pairs

_CLUSTER = re.compile(r"^\s*ClusterName\s*=\s*(\S+)", re.IGNORECASE | re.MULTILINE)
_DEEPEST = 8
OUTSIDE = "outside-of-the-folder"
"""Where files are staged that are included from elsewhere."""


@dataclass(frozen=True)
class Statement:
    """One logical line.

    Attributes:
        file: where it stands, relative to the configuration folder.
        line: number of its first line.
        words: its values without quotes, by key in lower case.
    """

    file: str
    line: int
    words: Mapping[str, str]


def statements(files: Mapping[str, str], folder: str, name: str = "slurm.conf") -> Iterator[Statement]:
    """Yield the statements of a file and of all that it includes, in the order in which Slurm reads them.

    Args:
        files: texts by path relative to the configuration folder.
        folder: where the files will lie; an Include may name it.
        name: the file to begin with.
    """
    place = Folder(folder, cluster_name(files))
    yield from _statements(files, place, name, 0)


@dataclass(frozen=True)
class Folder:
    """Where a configuration is meant to lie, and the cluster's name, which paths may hold as `%c`."""

    path: str
    cluster: str

    def staged(self, path: str) -> str:
        """Spell an Include's path relative to this folder; what lies elsewhere goes under OUTSIDE."""
        normal = posixpath.normpath(path.replace("%c", self.cluster))
        if normal.startswith(f"{self.path}/"):
            return posixpath.relpath(normal, self.path)
        if normal.startswith(".."):
            normal = posixpath.normpath(posixpath.join(self.path, normal))
        return f"{OUTSIDE}{normal}" if normal.startswith("/") else normal


def cluster_name(files: Mapping[str, str]) -> str:
    """The ClusterName of slurm.conf, in lower case as Slurm puts it into paths; "" without one."""
    found = _CLUSTER.search(files.get("slurm.conf", ""))
    return found[1].lower() if found else ""


def _statements(files: Mapping[str, str], folder: Folder, name: str, depth: int) -> Iterator[Statement]:
    for number, text in logical_lines(files.get(name, "")):
        path = included(text)
        if path and depth < _DEEPEST:
            yield from _statements(files, folder, folder.staged(path), depth + 1)
        elif not path:
            words = {key.lower(): value for key, value in pairs(text)}
            if words:
                yield Statement(name, number, words)


def includes(text: str, folder: Folder) -> Iterator[str]:
    """The staged paths of the files that a file includes."""
    for _, line in logical_lines(text):
        path = included(line)
        if path:
            yield folder.staged(path)


def first(found: list[Statement], key: str, default: str = "") -> str:
    """The value of a setting that has one for the whole cluster; `default` where it is not set."""
    return next((each.words[key] for each in found if key in each.words), default)
