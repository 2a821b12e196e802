"""The lines of Slurm's files as keys and values: pure, and lenient with what Slurm itself would refuse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hpctools.doctor.installation import ConfFile
from hpctools.slurm.conf_text import included, logical_lines, pairs


def lines(text: str) -> Iterator[dict[str, str]]:
    """Each line's settings by key in lower case."""
    for _, line in logical_lines(text):
        found = {key.lower(): value for key, value in pairs(line)}
        if found:
            yield found


def includes(file: ConfFile) -> tuple[str, ...]:
    """The files that a file includes, as it spells them (slurm.conf(5), Include).

    plugstack.conf is of another kind: its includes may be patterns that match nothing.
    """
    if file.path == "plugstack.conf":
        return ()
    found = (included(line) for _, line in logical_lines(file.text or ""))
    return tuple(path for path in found if path)


def settings(files: Sequence[ConfFile], path: str) -> Mapping[str, str]:
    """The settings of a file with all that it includes, by key in lower case; the last one counts."""
    found: dict[str, str] = {}
    for file in with_includes(files, path):
        for line in lines(file.text or ""):
            found.update(line)
    return found


def with_includes(files: Sequence[ConfFile], path: str) -> tuple[ConfFile, ...]:
    """A file and those that it includes, each once."""
    by_path = {file.path: file for file in files}
    found: dict[str, ConfFile] = {}
    waiting = [path]
    while waiting:
        name = waiting.pop(0)
        if name in by_path and name not in found:
            found[name] = by_path[name]
            waiting += includes(by_path[name])
    return tuple(found.values())
