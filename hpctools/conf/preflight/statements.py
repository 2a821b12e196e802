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
_DEEPEST = 8


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
    yield from _statements(files, folder, name, 0)


def _statements(files: Mapping[str, str], folder: str, name: str, depth: int) -> Iterator[Statement]:
    for number, text in _logical_lines(files.get(name, "")):
        included = _INCLUDE.match(text)
        if included and depth < _DEEPEST:
            yield from _statements(files, folder, relative(included[1], folder), depth + 1)
        elif not included:
            words = {key.lower(): value.strip("\"'") for key, value in _WORD.findall(text)}
            if words:
                yield Statement(name, number, words)


def relative(path: str, folder: str) -> str:
    """Spell an Include's path relative to the configuration folder, where it lies in there."""
    normal = posixpath.normpath(path)
    return posixpath.relpath(normal, folder) if normal.startswith(f"{folder}/") else normal


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
