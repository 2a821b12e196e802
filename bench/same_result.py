"""What the workers of bench/exact_programs/history.py wrote down, and whether it is what it should be. Pure
but for the reading.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.steps import Written

Line = dict[str, Any]
Ledger = list[Line]


class Tail:
    """The lines as they come; each look reads only what is new.

    Args:
        out: the folder of the workers' files.
    """

    def __init__(self, out: Path) -> None:
        self._out = out
        self._written = Written()

    def look(self) -> Ledger:
        """Whole lines that were written since the last look, file by file."""
        return [line for path in sorted(self._out.glob("*.jsonl")) for line in self._written.since_last(path)]


def read(out: Path) -> Ledger:
    """All whole lines that the workers have written; one that was killed may have torn its last."""
    return Tail(out).look()


def committed(ledger: Ledger) -> dict[int, Line]:
    """By step: its result, and the samples that went through a model in it."""
    fed: dict[int, set[int]] = {}
    for line in ledger:
        if "fed" in line:
            fed.setdefault(line["step"], set()).update(line["fed"])
    return {line["step"]: {**line, "fed": fed.get(line["step"], set())} for line in ledger if "loss" in line}


def differences(ledger: Ledger, lone: Ledger, tolerance: float = 0.0) -> list[str]:
    """How a run's result differs from the undisturbed one's.

    Args:
        tolerance: how far losses and weights may be from those of the undisturbed run, as a share of it; 0:
            equal to the bit. What was seen in which step is never allowed to differ, nor is one worker's end
            from another's.
    """
    problems = []
    ours, theirs = committed(ledger), committed(lone)
    if sorted(ours) != sorted(theirs):
        problems.append(f"{len(ours)} steps instead of {len(theirs)}")
    for line in ledger:
        expected = theirs.get(line["step"]) if "loss" in line else None
        if expected is not None and not _same_step(line, expected, tolerance):
            problems.append(f"step {line['step']} of {line['worker']} has another result")
    for step in sorted(set(ours) & set(theirs)):
        if not ours[step]["fed"] >= theirs[step]["fed"]:
            problems.append(f"step {step} was not fed {theirs[step]['fed'] - ours[step]['fed']}")
    return problems + _ends(ledger, lone, tolerance) + _not_once(lone) + _not_once(_one_a_step(ledger))


def _same_step(line: Line, expected: Line, tolerance: float) -> bool:
    loss, wanted = (float.fromhex(each["loss"]) for each in (line, expected))
    return all(line[key] == expected[key] for key in ("drawn", "committed")) and (
        line["loss"] == expected["loss"] if tolerance == 0 else math.isclose(loss, wanted, rel_tol=tolerance)
    )


def _ends(ledger: Ledger, lone: Ledger, tolerance: float) -> list[str]:
    """Whether all workers that came to the end have the same weights, and the right ones."""
    finals = [(line["final"], line["lr"]) for line in ledger if "final" in line]
    ((weights, rate),) = ((line["final"], line["lr"]) for line in lone if "final" in line)
    agree = bool(finals) and all(each == finals[0] for each in finals) and finals[0][1] == rate
    if agree and (finals[0][0] == weights or (tolerance and _distance(finals[0][0], weights) <= tolerance)):
        return []
    return [f"weights at the end of {len(finals)} workers"]


def _distance(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> float:
    """The largest distance of two weights, as a share of the largest weight."""
    pairs = list(zip(_flat([ours[name] for name in theirs]), _flat(list(theirs.values())), strict=True))
    return max(abs(one - other) for one, other in pairs) / max(abs(other) for _, other in pairs)


def _flat(values: Any) -> list[float]:
    return [each for value in values for each in _flat(value)] if isinstance(values, list) else [values]


def _one_a_step(ledger: Ledger) -> Ledger:
    """One line for each step that names its samples; streams do not, and are compared by what was fed."""
    return list({line["step"]: line for line in ledger if line.get("committed")}.values())


def _not_once(ledger: Ledger) -> list[str]:
    """Samples that an epoch did not have exactly once, by the committed steps' own account."""
    seen: dict[int, Counter[int]] = {}
    for line in ledger:
        if "loss" in line:
            seen.setdefault(line["epoch"], Counter()).update(line["committed"])
    wrong = {epoch: [each for each, count in found.items() if count != 1] for epoch, found in seen.items()}
    return [f"epoch {epoch}: not exactly once: {numbers[:5]}" for epoch, numbers in wrong.items() if numbers]
