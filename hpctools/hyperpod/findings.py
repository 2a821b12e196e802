"""What is wrong with HyperPod's files: one record for each finding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Step = str | int
Location = tuple[Step, ...]
Severity = Literal["error", "warning"]


@dataclass(frozen=True, order=True)
class Finding:
    """One thing that is wrong in a file.

    Attributes:
        file: the file's path as it was given.
        line: counted from 1; 0 when the finding is about the whole file.
        pointer: where in the document, a JSON pointer (RFC 6901); empty for the whole document.
        rule: the rule's name, for scripts; docs/hyperpod.md lists them.
        found: what stands there.
        remedy: what to do about it.
        severity: with an `error` CreateCluster fails, or builds a cluster that does not work; a `warning` is
            something that people should see.
    """

    file: str
    line: int
    pointer: str
    rule: str
    found: str
    remedy: str
    severity: Severity = "error"

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        subject = f" {self.pointer}" if self.pointer else ""
        warning = "warning: " if self.severity == "warning" else ""
        return harmless(f"{place}:{subject} {warning}{self.found}; {self.remedy} [{self.rule}]")


def harmless(line: str) -> str:
    """A line with escapes for whatever would break it, or do something to a terminal."""
    return line if line.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


def spell_pointer(location: Sequence[Step]) -> str:
    """Spell a location as a JSON pointer: `("a", 0, "b/c")` becomes `/a/0/b~1c`.

    A key that would break the line, or do something to a terminal, is spelled with escapes.
    """
    return "".join("/" + _spell_step(str(step)) for step in location)


def _spell_step(step: str) -> str:
    step = harmless(step)
    return (step if len(step) <= 80 else step[:77] + "...").replace("~", "~0").replace("/", "~1")


def spell(value: object) -> str:
    """Spell a value of a document briefly, harmless to terminals."""
    if isinstance(value, (dict, list)):
        kind = "an object" if isinstance(value, dict) else "a list"
        return kind if value else f"{kind} with nothing in it"
    if isinstance(value, str):
        return ascii(value if len(value) <= 60 else value[:57] + "...")
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return str(value)[:60]
