"""What is wrong with a site file: one record per finding, and the error that carries all of them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hpctools.errors import SiteError

Step = str | int
Location = tuple[Step, ...]


@dataclass(frozen=True, order=True)
class Finding:
    """One thing that is wrong in a site file.

    Attributes:
        file: the file's path as it was given.
        line: counted from 1; 0 when the finding is about the whole file.
        path: where in the document, for example `departments[0].partition.node_groups[1]`; may be empty.
        found: what stands there.
        expected: what should stand there.
        severity: `error` keeps the site from being used, `warning` does not.
    """

    file: str
    line: int
    path: str
    found: str
    expected: str
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        subject = f" {self.path}:" if self.path else ""
        warning = " warning:" if self.severity == "warning" else ""
        return f"{place}:{subject}{warning} found {self.found}, expected {self.expected}"


class InvalidSiteError(SiteError):
    """A site file has findings.

    Attributes:
        findings: all of them, in the order of the file.
    """

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings: tuple[Finding, ...] = tuple(sorted(set(findings)))
        super().__init__("\n".join(str(finding) for finding in self.findings))


class UnreadableSiteError(InvalidSiteError):
    """A site file cannot be read at all: missing, not a file, no permission, not UTF-8."""

    def __init__(self, path: Path, found: str, expected: str) -> None:
        super().__init__([Finding(str(path), 0, "", found, expected)])


class NoSiteFileError(UnreadableSiteError):
    """There is no such site file, or none that we may read: the command line names another than was meant."""

    exit_code = 2


def spell_path(location: Sequence[Step]) -> str:
    """Spell a location as people read it: `("a", 0, "b")` becomes `a[0].b`.

    A key that would break the line, or do something to a terminal, is spelled with escapes.
    """
    text = ""
    for step in location:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + (step if step.isprintable() else repr(step))
    return text


def spell_value(value: object) -> str:
    """Spell a value of the document briefly, for a finding."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, (tuple, list)):
        return "a list" if value else "an empty list"
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else value[:57] + "...")
    return str(value)


def one_of(allowed: Iterable[str], found: object = None) -> str:
    """Spell a choice, with the nearest match when `found` looks like a slip of the pen."""
    names = list(dict.fromkeys(allowed))
    if not names:
        return "one that the file declares (it declares none)"
    text = f"one of: {', '.join(names)}"
    near = difflib.get_close_matches(found, names, n=1) if isinstance(found, str) else []
    return f"{text} (did you mean {near[0]!r}?)" if near else text
