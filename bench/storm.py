"""A storm of faults, with calm times in it to compare with."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bench import rigs, steps, strikes
from bench.course import say

FAULTS, MINUTES = 62, 30.0
BETWEEN_CALMS = 10
"""Faults, about: five minutes in which a shared machine gets little faster or slower."""
CALM_SECONDS = 30.0
MEND_SECONDS = 8.0
Span = tuple[float, float]


@dataclass(frozen=True)
class Left:
    """What a storm left.

    Attributes:
        kinds: of its faults.
        minutes: that it had, without the calm times.
        kept: of the throughput of calm times.
        loss: what the rest of it went into.
        calm: steps a second of each calm time.
    """

    kinds: tuple[str, ...]
    minutes: float
    kept: float
    loss: steps.Loss
    calm: tuple[float, ...] = ()


@dataclass(frozen=True)
class Weathered:
    """What happened.

    Attributes:
        faults: kinds, and when each began.
        spans: of the storm, from when until when.
        calm: one before, one after each span.
    """

    faults: tuple[tuple[str, float], ...]
    spans: tuple[Span, ...]
    calm: tuple[Span, ...]


def weather(rig: rigs.Rig, shares: Mapping[str, int], minutes: float) -> Weathered:
    """Faults of all kinds, at the rate of 62 in 30 minutes; a calm time after every ten of them or so."""
    count, draw = max(1, round(FAULTS * minutes / MINUTES)), random.Random(1)  # noqa: S311
    kinds = strikes.deal(count, shares, draw)
    calm, spans, begun = [_calm(rig)], [], []
    for part in parts(kinds):
        begin = time.monotonic()
        seconds = 60 * minutes * len(part) / count
        for kind, moment in zip(part, moments(len(part), seconds, draw), strict=True):
            _sleep_until(begin + moment)
            begun.append((kind, time.monotonic()))
            say(f"{begun[-1][1] - begun[0][1]:6.1f} s: {kind}")
            mend = strikes.KINDS[kind](rig, draw)
            _sleep_until(begun[-1][1] + MEND_SECONDS)
            mend()
        _sleep_until(begin + seconds)
        rigs.await_whole(rig)  # who is not back yet counts as the storm's
        spans.append((begin, time.monotonic()))
        calm.append(_calm(rig))
    return Weathered(tuple(begun), tuple(spans), tuple(calm))


def left(ends: Sequence[steps.Line], had: Weathered, minutes: float, most: int) -> Left:
    """Compare each span with the calm times before and after it.

    Args:
        ends: of all steps.
        minutes: that were asked for.
        most: workers of the full size.
    """
    rates = [steps.completed(ends, *span) / (span[1] - span[0]) for span in had.calm]
    seconds = [till - since for since, till in had.spans]
    around = [(before + after) / 2 for before, after in pairwise(rates)]
    possible = [each * rate for each, rate in zip(seconds, around, strict=True)]
    losses = [steps.loss(ends, *span, most) for span in had.spans]
    shares = [each / sum(seconds) for each in seconds]
    loss = steps.Loss(
        sum(share * each.standing for share, each in zip(shares, losses, strict=True)),
        sum(share * each.smaller for share, each in zip(shares, losses, strict=True)),
    )
    kept = sum(steps.completed(ends, *span) for span in had.spans) / sum(possible)
    return Left(tuple(kind for kind, _ in had.faults), minutes, kept, loss, tuple(rates))


def parts(kinds: Sequence[str]) -> list[Sequence[str]]:
    """Runs of about ten, none longer than another by more than one."""
    count = max(1, round(len(kinds) / BETWEEN_CALMS))
    edges = [len(kinds) * place // count for place in range(count + 1)]
    return [kinds[first:last] for first, last in pairwise(edges)]


def moments(count: int, seconds: float, draw: random.Random) -> list[float]:
    """When faults happen: one in each of as many equal spans, at a random time of its first half."""
    span = seconds / count
    return [span * (place + draw.random() / 2) for place in range(count)]


def _calm(rig: rigs.Rig) -> Span:
    """From when until when the run trains at its full size, and nothing happens to it."""
    rigs.await_whole(rig)
    since = time.monotonic()
    time.sleep(CALM_SECONDS)
    return since, time.monotonic()


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))
