"""The course of a run as series over time, for whoever draws it. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hpctools.elastic.folder import Event
from hpctools.elastic.history import Moment, throughput

KINDS = (
    "grew",
    "shrank",
    "preempted",
    "lost or crashed",
    "recovered",
    "coordinator taken over",
    "waiting",
    "notice",
    "finding",
    "action",
    "checkpoint",
    "warning",
)
"""What is marked, in the order in which a reader meets it from the top."""

_LOSSES = ("failed", "lost")
_AS_THEY_ARE = ("action", "finding", "notice", "waiting", "warning")
_CHECKPOINTS = ("saved", "checkpoint", "resumed")


@dataclass(frozen=True)
class Series:
    """Values over time.

    Attributes:
        seconds: since the run's begin, ascending.
        values: as many.
    """

    seconds: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Course:
    """How a run went.

    Attributes:
        begin: Unix seconds of the first thing that is known.
        seconds: from there to the last one.
        size: workers; each value holds until the next.
        throughput: in `unit`.
        loss: of the committed steps, where it was a number.
        marks: of each of KINDS that occurred, the seconds at which it did.
        unit: samples/s, or steps/s of a script without the library.
    """

    begin: float
    seconds: float
    size: Series
    throughput: Series
    loss: Series
    marks: dict[str, tuple[float, ...]]
    unit: str = "samples/s"


def course(history: Sequence[Moment], events: Sequence[Event]) -> Course | None:
    """The course of a run; None when nothing of it is known yet.

    The history is coarse on a long run; the sizes before and after each resize come from its event, with
    its exact time.
    """
    stamps = [_stamp(text) for text in (*(each.time for each in history), *(each.time for each in events))]
    known = [stamp for stamp in stamps if stamp is not None]
    if not known or not history:
        return None
    begin, (unit, rates) = min(known), throughput(history)
    # What was told last while somebody trained is no speed of nobody.
    rates = [rate if rate is None or each.size else 0.0 for each, rate in zip(history, rates, strict=True)]
    return Course(
        begin,
        max(known) - begin,
        _series(sorted(_sizes(history, events), key=lambda point: point[0]), begin),
        _series(_values(history, rates), begin),
        _series(_values(history, [moment.loss for moment in history]), begin),
        _marks(events, begin),
        unit,
    )


def _sizes(history: Sequence[Moment], events: Sequence[Event]) -> Iterator[tuple[float, float]]:
    for stamp, moment in zip(_stamps(history), history, strict=True):
        if stamp is not None:
            yield stamp, float(moment.size)
    for event in events:
        stamp = _stamp(event.time)
        if event.event == "resize" and stamp is not None and isinstance(event.detail.get("to"), int):
            yield stamp, float(event.detail["to"])


def _values(history: Sequence[Moment], values: Sequence[float | None]) -> Iterator[tuple[float, float]]:
    for stamp, value in zip(_stamps(history), values, strict=True):
        if stamp is not None and value is not None and math.isfinite(value):
            yield stamp, float(value)


def _stamps(history: Sequence[Moment]) -> Iterator[float | None]:
    """When each moment was: none before an earlier one, also where who took over has a slow clock."""
    last = -math.inf
    for moment in history:
        stamp = _stamp(moment.time)
        last = max(last, last if stamp is None else stamp)
        yield None if stamp is None else last


def _series(points: Sequence[tuple[float, float]] | Iterator[tuple[float, float]], begin: float) -> Series:
    pairs = list(points)
    return Series(tuple(at - begin for at, _ in pairs), tuple(value for _, value in pairs))


def _marks(events: Sequence[Event], begin: float) -> dict[str, tuple[float, ...]]:
    found: dict[str, list[float]] = {}
    others = not_preempted(events)
    for event in events:
        kind, stamp = kind_of(event), _stamp(event.time)
        if kind == "preempted" and event.detail.get("job_id") in others:
            continue
        if kind is not None and stamp is not None:
            found.setdefault(kind, []).append(stamp - begin)
    return {kind: tuple(found[kind]) for kind in KINDS if kind in found}


def kind_of(event: Event) -> str | None:
    """Which of KINDS an event is; None for one that is not marked."""
    detail = event.detail
    if event.event == "resize":
        if detail.get("recovered"):
            return "recovered"
        return "grew" if detail.get("to", 0) > detail.get("from", 0) else "shrank"
    if event.event == "left" and detail.get("reason") == "preempted":
        return "preempted"
    if event.event == "crashed" or (event.event == "left" and detail.get("reason") in _LOSSES):
        return "lost or crashed"
    if event.event in _CHECKPOINTS:
        return "checkpoint"
    if event.event == "takeover":
        return "coordinator taken over"
    return event.event if event.event in _AS_THEY_ARE else None


def not_preempted(events: Sequence[Event]) -> set[Any]:
    """Replica jobs that their agents took for preempted, and of which Slurm said later that they were not."""
    return {event.detail.get("job_id") for event in events if event.event == "not_preempted"}


def _stamp(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
