"""The statements of Slurm's configuration files, with the place of each: pure.

Formats: slurm.conf(5): `key=value` words, several on a line, `#` begins a comment, a backslash at the end
continues a line, and `Include` takes in another file, its path relative to the folder of slurm.conf.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_WORD = re.compile(r"""([A-Za-z_][\w]*)\s*=\s*("[^"]*"|'[^']*'|\S*)""")
_INCLUDE = re.compile(r"^\s*include\s+(\S+)\s*$", re.IGNORECASE)
_COMMENT = re.compile(r"(?<!\\)#.*")
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
    for number, text in _logical_lines(files.get(name, "")):
        included = _INCLUDE.match(text)
        if included and depth < _DEEPEST:
            yield from _statements(files, folder, folder.staged(included[1]), depth + 1)
        elif not included:
            words = {key.lower(): value.strip("\"'") for key, value in _WORD.findall(text)}
            if words:
                yield Statement(name, number, words)


def includes(text: str, folder: Folder) -> Iterator[str]:
    """The staged paths of the files that a file includes."""
    for _, line in _logical_lines(text):
        included = _INCLUDE.match(line)
        if included:
            yield folder.staged(included[1])


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    begun, parts = 0, list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        bare = _COMMENT.sub("", line).rstrip()
        begun = begun or number
        parts.append(bare.removesuffix("\\"))
        if not bare.endswith("\\"):
            yield begun, " ".join(parts)
            begun, parts = 0, []
    if parts:
        yield begun, " ".join(parts)


def first(found: list[Statement], key: str, default: str = "") -> str:
    """The value of a setting that has one for the whole cluster; `default` where it is not set."""
    return next((each.words[key] for each in found if key in each.words), default)
