"""Runs as text for people: plain, aligned, and coloured only for a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from hpctools.cli.sparkline import sparkline
from hpctools.elastic.folder import RunStatus
from hpctools.elastic.history import Moment, throughput
from hpctools.remote.names import shown
from hpctools.submit.overview import Overview

_COLOURS = {"running": 32, "finished": 36, "pending": 33, "starting": 33, "failed": 31, "lost": 31}
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_LABEL = 14  # characters before the text of each matter
_LONGEST_LINE = 60
_MANY_DIGITS = 1e7
_COLUMNS = ("RUN", "STATE", "NODES", "STEP", "LOSS", "THROUGHPUT", "CREATED")


def table(runs: Sequence[Overview], *, colour: bool) -> str:
    """A line for each run.

    Args:
        colour: mark states with ANSI colours.
    """
    rows = [_COLUMNS, *(_row(run) for run in runs)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    lines = []
    for index, row in enumerate(rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        if index and colour:
            cells[1] = paint(row[1], cells[1])
        lines.append("  ".join(cells).rstrip() + "\n")
    return "".join(lines)


def details(
    run: Overview, folder: str, *, colour: bool, history: Sequence[Moment] = (), columns: int = 80
) -> str:
    """All about one run, a line for each matter.

    Args:
        history: how it went until now, oldest first.
        columns: how wide the reader's terminal is.
    """
    state = paint(run.state, run.state) if colour else run.state
    note = f": {plain(run.note)}" if run.note else ""
    lines = [f"run {run.id}  {state}{note}\n"]
    lines += [f"  {name:<12}{text}\n" for name, text in _matters(run, folder, history, columns)]
    return "".join(lines)


def paint(state: str, text: str) -> str:
    """The text in the colour of a state."""
    return f"\x1b[{_COLOURS[state]}m{text}\x1b[0m" if state in _COLOURS else text


def plain(text: str) -> str:
    """What a program has printed, without its colours; what else a terminal would obey is escaped."""
    return "\n".join(shown(_COLOUR.sub("", line)) for line in text.split("\n"))


def _row(run: Overview) -> tuple[str, ...]:
    status = run.status
    return (
        run.id,
        run.state,
        f"{len(status.nodes)} of {status.min_nodes}..{status.max_nodes}",
        _step(run),
        _loss(status),
        _speed(status) or "-",
        local_time(run.created),
    )


def _matters(
    run: Overview, folder: str, history: Sequence[Moment], columns: int
) -> Iterator[tuple[str, str]]:
    status = run.status
    nodes = f" ({' '.join(status.nodes)})" if status.nodes else ""
    yield "nodes", f"{len(status.nodes)} of {status.min_nodes}..{status.max_nodes}{nodes}"
    yield "workers", f"{status.world_size} in generation {status.generation}"
    yield "step", f"{_step(run)}, loss {_loss(status)}, {_speed(status) or '- samples/s'}"
    yield from _courses(history, columns)
    if status.last_resize:
        yield "last resize", _resize(status.last_resize)
    for clause in run.not_larger:
        yield "not larger", plain(clause)
    for preemption in run.preemptions[-3:]:
        what = f"job {preemption.job_id} on {preemption.node}"
        yield "preempted", f"{what} by {_preemptor(preemption.by)}, {local_time(preemption.time)}"
    for job in run.jobs:
        where = " ".join(job.nodes) or (f"({job.reason})" if job.reason != "None" else "")
        yield "job", f"{job.id} {job.role} {job.state} {where}".rstrip()
    if run.ended_jobs:
        yield "ended jobs", str(run.ended_jobs)
    yield "updated", local_time(status.updated)
    yield "folder", folder


def _courses(history: Sequence[Moment], columns: int) -> Iterator[tuple[str, str]]:
    """Size and throughput over the run's whole time."""
    if len(history) < 2:
        return
    sizes = [moment.size for moment in history]
    unit, told = throughput(history)
    rates = [rate if moment.size else 0.0 for moment, rate in zip(history, told, strict=True)]
    known = [rate for rate in rates if rate is not None]
    yield "size", _course(sizes, f"{min(sizes)} to {max(sizes)} workers", columns)
    if known:
        yield "throughput", _course(rates, f"{min(known):.1f} to {max(known):.1f} {unit}", columns)


def _speed(status: RunStatus) -> str:
    """Steps of a script without the library, which tells no samples; empty: it is not known yet."""
    if status.samples_per_second is None and status.steps_per_second is not None:
        return f"{status.steps_per_second:.2f} steps/s"
    return f"{status.samples_per_second:.1f} samples/s" if status.samples_per_second is not None else ""


def _loss(status: RunStatus) -> str:
    """One that has diverged may have three hundred digits."""
    return _number(status.loss, ".4f" if abs(status.loss or 0.0) < _MANY_DIGITS else ".4g")


def _course(values: Sequence[float | None], legend: str, columns: int) -> str:
    room = min(_LONGEST_LINE, columns - _LABEL - len(legend) - 2)
    return f"{sparkline(values, room)}  {legend}" if room >= 4 else legend


def _step(run: Overview) -> str:
    total = run.status.total_steps
    return f"{run.status.step}/{total}" if total is not None else str(run.status.step)


def _resize(resize: dict[str, Any]) -> str:
    text = f"{resize.get('from')} -> {resize.get('to')} workers at step {resize.get('step')}"
    if isinstance(resize.get("pause_s"), (int, float)):
        text += f", pause {resize['pause_s']:.2f} s"
    phases = resize.get("phases")
    if isinstance(phases, dict) and phases:
        parts = ", ".join(f"{name} {_number(value, '.2f')}" for name, value in phases.items())
        text += f" ({parts})"
    return f"{text}, {local_time(resize['time'])}" if isinstance(resize.get("time"), str) else text


def _preemptor(by: dict[str, Any]) -> str:
    if not by:
        return "an unknown job"
    return f"{by.get('user')} (account {by.get('account')}, QoS {by.get('qos')}, job {by.get('job_id')})"


def _number(value: Any, form: str) -> str:
    return format(value, form) if isinstance(value, (int, float)) else "-"


def local_time(text: str) -> str:
    """An ISO 8601 moment in the time zone of the reader; `-` when it is none."""
    try:
        return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return "-"
