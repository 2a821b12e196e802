"""Where jobs that slurmctld has forgotten wrote their output, as the accounting tells."""

from __future__ import annotations

import contextlib
import re

from hpctools.errors import HpctoolsError
from hpctools.slurm import accounting

_SECONDS = 15.0


def outputs(job_id: int, key: str) -> list[tuple[str, str, str]]:
    """A task's index or empty, the batch host and the file's path, of a job or of each task of an array.

    None where slurmdbd does not answer, or is of a release before 24.11 (sacct(1): --expand-patterns). A path
    may be relative to the folder of the job, and patterns that only a node can fill in are left in it.

    Args:
        key: `StdOut` or `StdErr`.
    """
    words = ["--noheader", "--parsable2", "--allocations", "--expand-patterns", f"--jobs={job_id}"]
    try:
        said = accounting.answer(["sacct", *words, f"--format=JobID,NodeList,{key}"], _SECONDS)
    except HpctoolsError:
        return []
    # A path may hold line breaks and bars: it comes last.
    lines = re.split(r"^\d+(?:_([^\s|]+)|\+\d+)?\|([^|\n]*)\|", said, flags=re.MULTILINE)[1:]
    rows = zip(lines[::3], lines[1::3], lines[2::3], strict=True)
    begun = [(task or "", nodes, path.removesuffix("\n")) for task, nodes, path in rows]
    return [(task, _first(nodes), path) for task, nodes, path in begun if not task or task.isdecimal()]


def _first(nodes: str) -> str:
    with contextlib.suppress(HpctoolsError):
        return next(iter(accounting.expand(nodes)), "")
    return ""
