"""What the step logs of a training say: pauses, rates, and whether each sample was seen once. Pure.

The lines are those that `elastic_programs/model.py` writes.
"""

from __future__ import annotations

import json
import math
import statistics
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

NORMAL_STEPS = 5
Line = Mapping[str, Any]


@dataclass(frozen=True)
class Pause:
    """One change of size.

    Attributes:
        seconds: that it held up the training beyond a normal step of the size after it.
        at: when the first step after it ended.
    """

    before: int
    after: int
    seconds: float
    at: float = 0.0

    @property
    def grows(self) -> bool:
        """Whether workers joined."""
        return self.after > self.before


class Written:
    """What was written to files of JSON lines since the last look at each; a torn last line comes later."""

    def __init__(self) -> None:
        self._places: dict[Path, int] = {}

    def since_last(self, path: Path) -> list[dict[str, Any]]:
        """The new whole lines of a file."""
        with path.open("rb") as file:
            file.seek(self._places.get(path, 0))
            whole = file.read()
        whole = whole[: whole.rfind(b"\n") + 1]
        self._places[path] = self._places.get(path, 0) + len(whole)
        return [json.loads(line) for line in whole.splitlines()]


class Tail:
    """The ends of steps as they come; each look reads only what is new.

    Args:
        logs: the folder of the step logs.
    """

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._written = Written()
        self._known: list[Line] = []

    def look(self) -> list[Line]:
        """All ends until now, by time."""
        new = [line for path in self._logs.glob("*.steps") for line in self._written.since_last(path)]
        if new:
            self._known = sorted([*self._known, *new], key=lambda line: float(line["at"]))
        return self._known


def read(logs: Path) -> list[Line]:
    """The ends of all steps, by time."""
    return Tail(logs).look()


def ledger(logs: Path) -> Iterator[Line]:
    """What all processes were fed and have committed, without lines that are torn because one was killed.

    The training may go on meanwhile. What was committed is read first, so that what was fed for it is there.
    """
    yield from (line for line in _lines(logs) if "step" in line)
    yield from (line for line in _lines(logs) if "fed" in line)


def _lines(logs: Path) -> Iterator[Line]:
    for path in sorted(logs.glob("*.ledger")):
        for line in path.read_text().splitlines():
            if line.endswith("}"):
                yield json.loads(line)


def since(steps: Sequence[Line], moment: float) -> Sequence[Line]:
    """The steps from the last one that had ended at a moment."""
    earlier = sum(step["at"] <= moment for step in steps)
    return steps[max(0, earlier - 1) :]


def pauses(steps: Sequence[Line]) -> Iterator[Pause]:
    """One for each change of size; there is more than one when workers came one after the other.

    A normal step is the median of the next ones of the same size.
    """
    for place, (before, after) in enumerate(pairwise(steps), 1):
        if before["world"] != after["world"]:
            normal = _normal(steps[place:])
            if normal is not None:
                seconds = max(0.0, after["at"] - before["at"] - normal)
                yield Pause(before["world"], after["world"], seconds, after["at"])


def unchanged(steps: Sequence[Line]) -> Iterator[float]:
    """The same seconds of steps at which nothing changes: what a pause is to be seen against.

    Those near a change of size, before or after it, are left out.
    """
    for place in range(NORMAL_STEPS, len(steps) - NORMAL_STEPS):
        around = steps[place - NORMAL_STEPS : place + NORMAL_STEPS + 1]
        normal = _normal(steps[place:])
        if normal is not None and len({step["world"] for step in around}) == 1:
            yield max(0.0, steps[place]["at"] - steps[place - 1]["at"] - normal)


def _normal(steps: Sequence[Line]) -> float | None:
    """The median length of the steps after the first, as long as the size stays."""
    same = []
    for before, after in pairwise(steps[: NORMAL_STEPS + 1]):
        if before["world"] != after["world"]:
            break
        same.append(after["at"] - before["at"])
    return statistics.median(same) if same else None


def longest_gap(steps: Sequence[Line], begin: float, end: float) -> float:
    """Seconds for which no step ended in a span, at most, from the last end before it.

    0 when the log ends before the span.
    """
    inside = [float(step["at"]) for step in since(steps, begin) if step["at"] <= end]
    after = [float(step["at"]) for step in steps if step["at"] > end]
    times = [*inside, *after[:1]]
    return max((late - early for early, late in pairwise(times)), default=0.0)


def normal_step(steps: Sequence[Line], begin: float, end: float) -> float:
    """The median length of a step in a span.

    Raises:
        ValueError: fewer than two steps ended in it.
    """
    times = [float(step["at"]) for step in steps if begin <= step["at"] <= end]
    if len(times) < 2:
        raise ValueError(f"{len(times)} steps ended between {begin:.1f} and {end:.1f}")
    return statistics.median(late - early for early, late in pairwise(times))


def rates(steps: Sequence[Line]) -> dict[int, float]:
    """Steps per second at each size, from the lengths of steps between two of that size (median)."""
    lengths: dict[int, list[float]] = defaultdict(list)
    for before, after in pairwise(steps):
        if before["world"] == after["world"] and after["step"] == before["step"] + 1:
            lengths[after["world"]].append(after["at"] - before["at"])
    known = {world: each for world, each in lengths.items() if len(each) >= NORMAL_STEPS}
    return {world: 1 / statistics.median(each) for world, each in known.items()}


def completed(steps: Sequence[Line], begin: float, end: float) -> int:
    """How many steps were newly completed in a span; one that comes again does not count again."""
    before = max((step["step"] for step in steps if step["at"] <= begin), default=0)
    until = max((step["step"] for step in steps if step["at"] <= end), default=0)
    return max(0, until - before)


@dataclass(frozen=True)
class Loss:
    """What a span lost of the time that its steps would have taken at the full size, as shares of the span.

    Attributes:
        standing: for which no step ended where one was due.
        smaller: that steps with fewer workers take longer.
    """

    standing: float
    smaller: float


def loss(steps: Sequence[Line], begin: float, end: float, most: int) -> Loss:
    """Where the time of a span went; a step that takes twice as long as those of its size stands since then.

    Args:
        most: workers of the full size; steps of a size of which too few are known count as that one's.

    Raises:
        KeyError: too few steps of the full size are known.
    """
    known = {world: 1 / rate for world, rate in rates(steps).items()}
    standing = smaller = 0.0
    for before, after in pairwise(step for step in since(steps, begin) if step["at"] <= end):
        seconds = float(after["at"]) - max(begin, float(before["at"]))
        normal = known.get(after["world"], known[most])
        standing += seconds - normal if seconds > 2 * normal else 0.0
        smaller += max(0.0, normal - known[most])
    return Loss(standing / (end - begin), smaller / (end - begin))


@dataclass(frozen=True)
class Audit:
    """Whether every sample was seen exactly once.

    Attributes:
        steps: committed.
        lost: samples of the planned order up to there that are in no committed step, or in one without having
            been fed to any worker for it.
        doubled: samples that are in committed steps more than once in an epoch, where two workers tell of
            different samples in the same step, or that were fed twice for a step by the same workers.
        repeated: steps of which samples were fed more than once, because they were begun again.
    """

    steps: int
    lost: int
    doubled: int
    repeated: tuple[int, ...]


def audit(lines: Iterable[Line], samples: int, batch: int) -> Audit:
    """Compare what was committed with what should have been.

    Args:
        samples: of an epoch, a multiple of `batch`.
        batch: samples of a step.
    """
    committed: dict[int, tuple[int, ...]] = {}
    fed: dict[int, Counter[int]] = defaultdict(Counter)
    at_once: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    differing = 0
    for line in lines:
        indices = tuple(line["indices"])
        if "fed" in line:
            fed[line["fed"]].update(indices)
            if line.get("in") is not None:
                at_once[line["fed"], line["in"]].update(indices)
        elif committed.setdefault(line["step"], indices) != indices:
            differing += len(indices)
    lost, doubled = _epochs(committed, samples // batch, batch)
    lost += sum(len(set(indices) - set(fed[step])) for step, indices in committed.items())
    doubled += differing + sum(count.total() - len(count) for count in at_once.values())
    repeated = tuple(sorted(step for step, count in fed.items() if max(count.values(), default=0) > 1))
    return Audit(len(committed), lost, doubled, repeated)


def repeats(lines: Iterable[Line], moments: Sequence[float]) -> list[set[int]]:
    """Which steps were begun again after each of some moments, and before the next one.

    Args:
        lines: of the ledger; a step is begun again when one of its samples is fed once more.
        moments: in order. What was begun again before the first of them is left out.
    """
    found: list[set[int]] = [set() for _ in moments]
    fed: set[tuple[int, int]] = set()
    for line in sorted((line for line in lines if "fed" in line), key=lambda line: float(line["at"])):
        pairs = {(line["fed"], index) for index in line["indices"]}
        place = bisect_right(moments, line["at"]) - 1
        if place >= 0 and pairs & fed:
            found[place].add(line["fed"])
        fed |= pairs
    return found


def _epochs(committed: Mapping[int, tuple[int, ...]], steps: int, batch: int) -> tuple[int, int]:
    """Samples that are missing, and that came more than once, in epochs of so many steps."""
    last, lost, doubled = max(committed, default=0), 0, 0
    for first in range(1, last + 1, steps):
        planned = range(first, min(first + steps, last + 1))
        seen = [index for step in planned for index in committed.get(step, ())]
        distinct = len(set(seen))
        lost += len(planned) * batch - distinct
        doubled += len(seen) - distinct
    return lost, doubled


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of them does not exceed.

    Raises:
        ValueError: there is none.
    """
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
