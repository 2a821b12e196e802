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
    if record.job_id is None:
        return []
    return scripts.states(record.job_id) or _accounted(record.job_id)


def ends(record: Record, task: object) -> list[str]:
    """How a job that is over has ended; of an array, of which a task was named, all that have.

    Slurm forgets each task some minutes after its own end (MinJobAge).
    """
    found = states(record)
    if task is None or record.job_id is None:
        return found
    ended = [state for state in _accounted(record.job_id) if not scripts.is_living(state)]
    return list(dict.fromkeys([*found, *ended]))


def _accounted(job_id: int) -> list[str]:
    from hpctools.errors import HpctoolsError

    try:
        return list(dict.fromkeys(accounting.states(job_id)))
    except HpctoolsError:
        return []


def entry(submission: Submission, record: Record) -> dict[str, Any]:
    """All that there is to tell of one."""
    return {**as_json(submission, record), "job_states": states(record), "time": _time(record.marked)}


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


def table(every: Sequence[Mapping[str, Any]]) -> str:
    """Submissions, a line each."""
    rows = [("SUBMISSION", "JOB", "STATE", "SINCE")]
    rows += [(each["id"], str(each["job_id"] or "-"), _stated(each), each["time"]) for each in every]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = ("  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)) for row in rows)
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _stated(found: Mapping[str, Any]) -> str:
    if found["state"] == "receiving":
        return "not submitted"
    if found["state"] == "submitting":
        return "not known whether it was submitted"
    return ", ".join(found["job_states"]) or "forgotten by Slurm"
