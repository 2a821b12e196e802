"""How every bench ends: a table for people, one line of JSON for programs, and an exit code."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.course import INTERRUPTED


@dataclass(frozen=True)
class Goal:
    """A figure that was promised.

    Attributes:
        name: what was measured.
        value: the measurement, in `unit`.
        comparison: `<=` or `>=`.
        limit: the promised bound, in `unit`.
    """

    name: str
    value: float
    unit: str
    comparison: str
    limit: float

    @property
    def met(self) -> bool:
        """Whether the promise was kept."""
        return self.value <= self.limit if self.comparison == "<=" else self.value >= self.limit

    def to_json(self) -> dict[str, Any]:
        """The goal as every bench reports it."""
        return {
            "name": self.name,
            "value": round(self.value, 4),
            "unit": self.unit,
            "bound": f"{self.comparison} {self.limit:g}",
            "met": self.met,
        }


def report(
    bench: str,
    rows: Sequence[Mapping[str, object]],
    goals: Sequence[Goal],
    *,
    check: bool,
    complete: bool = True,
) -> int:
    """Print the table of the rows, then the goals as one JSON object.

    Args:
        rows: cells by column; all rows have the columns of the first.
        check: whether a goal that is not met is a failure.
        complete: whether the bench came to its end; else the JSON object says `"complete": false`.

    Returns:
        The exit code: 1 when `check` and a goal is not met; INTERRUPTED when it did not come to its end.
    """
    print(table(rows), end="")
    told = {"bench": bench, "machine": machine(), "goals": [goal.to_json() for goal in goals]}
    print(json.dumps(told if complete else {**told, "complete": False}))
    if not complete:
        return INTERRUPTED
    return 1 if check and not all(goal.met for goal in goals) else 0


def table(rows: Sequence[Mapping[str, object]]) -> str:
    """Aligned columns, with their names above them."""
    if not rows:
        return ""
    columns = list(rows[0])
    cells = [columns, *([_cell(row[column]) for column in columns] for row in rows)]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells)
    return "".join(f"{line.rstrip()}\n" for line in lines)


def machine() -> dict[str, Any]:
    """What it was measured on."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.system(),
        "release": platform.release(),
        "python": platform.python_version(),
    }


def _cell(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())
