"""How submissions stand, as the cluster tells it: plain jobs here, elastic runs by hp-status."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from hpctools.remote.submissions import Record, Submission, as_json
from hpctools.slurm import accounting, scripts


def states(record: Record) -> list[str]:
    """States of its job and of an array's tasks: of the queue, or else of the accounting."""
    return _states_of([record]).get(record.job_id or 0, [])


def _states_of(records: Sequence[Record]) -> dict[int, list[str]]:
    """As `states`, of many with one question, by the job's id; Slurm's programs are started for no more."""
    ids = [record.job_id for record in records if record.job_id is not None]
    found = scripts.states_of(ids) if ids else {}
    forgotten = [job_id for job_id in ids if job_id not in found]
    return {**found, **(_accounted(forgotten) if forgotten else {})}


def ends(record: Record, task: object) -> list[str]:
    """How a job that is over has ended; of an array, of which a task was named, how that one has.

    Slurm forgets each task some minutes after its own end (MinJobAge).
    """
    if not isinstance(task, int) or record.job_id is None:
        return states(record)
    name = f"{record.job_id}_{task}"
    return scripts.states(record.job_id, task) or _accounted([name]).get(record.job_id, [])


def _accounted(job_ids: Sequence[int | str]) -> dict[int, list[str]]:
    from hpctools.errors import HpctoolsError

    try:
        found = accounting.states_of(job_ids)
    except HpctoolsError:
        return {}
    return {job_id: list(dict.fromkeys(each)) for job_id, each in found.items()}


def entry(submission: Submission, record: Record) -> dict[str, Any]:
    """All that there is to tell of one."""
    return _entry(submission, record, states(record))


def entries(every: Sequence[tuple[Submission, Record]]) -> list[dict[str, Any]]:
    """As `entry`, of many."""
    known = _states_of([record for _, record in every])
    return [_entry(each, record, known.get(record.job_id or 0, [])) for each, record in every]


def _entry(submission: Submission, record: Record, job_states: list[str]) -> dict[str, Any]:
    return {**as_json(submission, record), "job_states": job_states, "time": _time(record.marked)}


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")


def one(found: Mapping[str, Any], *, as_text: bool) -> str:
    """One submission for people, or as a line of JSON."""
    if not as_text:
        return json.dumps(found) + "\n"
    rows = [
        ("submission", found["id"]),
        ("job", f"{found['job_id']} {_stated(found)}" if found["job_id"] else _stated(found)),
        ("folder", found["folder"]),
        ("since", found["time"]),
    ]
    return "".join(f"{name:<11} {value}\n" for name, value in rows)


def table(every: Sequence[Mapping[str, Any]], older: int = 0) -> str:
    """Submissions, a line each, and how many older ones are left out."""
    rows = [("SUBMISSION", "JOB", "STATE", "SINCE")]
    rows += [(each["id"], str(each["job_id"] or "-"), _stated(each), each["time"]) for each in every]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = ("  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)) for row in rows)
    rest = [f"and {older} older ones: hp-status --json shows all"] if older else []
    return "".join(f"{line.rstrip()}\n" for line in (*lines, *rest))


def _stated(found: Mapping[str, Any]) -> str:
    if found["state"] == "receiving":
        return "not submitted"
    if found["state"] == "submitting":
        return "not known whether it was submitted"
    return ", ".join(found["job_states"]) or "forgotten by Slurm"
