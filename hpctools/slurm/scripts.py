"""Batch jobs by the file that they were submitted from: what finds a job whose id nobody could note down."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from hpctools.errors import CommandError, CommandTimeout, UnreachableError
from hpctools.slurm import run
from hpctools.slurm.cli import told
from hpctools.slurm.environment import asking
from hpctools.slurm.states import AT_WORK, ENDING, WAITING

_SECONDS = 15.0
_AT_ONCE = 500
"""Jobs in a question: their ids fit into a command's line."""
_LIVING = WAITING | AT_WORK | ENDING


def jobs_from(folder: Path, user: str, age: float, script: str = "") -> list[int]:
    """Ids of a user's jobs whose batch script lies in a folder: of the queue, or else of the accounting.

    An array, and a heterogeneous job, is one.

    Args:
        age: seconds since such a job was submitted, if it was.
        script: its path; any in the folder when empty.

    Raises:
        UnreachableError: the controller does not answer, or may have forgotten them and no accounting tells.
        CommandError: squeue failed otherwise.
    """
    inside = re.escape(f"{folder}/")
    found = _queued(user, inside)
    return sorted(found or _accounted(folder, user, age, rf"{re.escape(script)}(?!\S)" if script else inside))


def runs_from(root: Path, name: str, user: str, age: float, count: int = 1) -> dict[int, str]:
    """As `jobs_from`, jobs whose script lies in the folder of an elastic run, with the folder's name.

    Args:
        root: where runs' folders are.
        name: the run's id before an array's index, a regular expression.
        count: how many there are; the controller may have forgotten some of them.

    Raises:
        UnreachableError, CommandError: as `jobs_from`.
    """
    inside = rf"{re.escape(str(root))}/({name}(?:_\d+)?)/"
    found = _queued(user, inside)
    if len(set(found.values())) < max(1, count):
        return _accounted(root, user, age, inside) | found
    return found


def _queued(user: str, wanted: str) -> dict[int, str]:
    """Jobs whose script's path begins with what is wanted, and what its group says."""
    # --all: without it squeue leaves out a person's own jobs in partitions that are hidden.
    words = ["--noheader", "--all", "--states=all", f"--user={user}", "--format=%F %o"]
    # A script's name may have line breaks: what follows one does not begin with an id and the folder.
    found = re.finditer(rf"^(\d+) {wanted}", _ask(["squeue", *words]), re.MULTILINE)
    return {int(each[1]): each[each.lastindex or 0] for each in found}


def _accounted(folder: Path, user: str, age: float, wanted: str) -> dict[int, str]:
    """Jobs that the controller has forgotten; none where it cannot have forgotten any.

    Args:
        wanted: how a word of the line begins.
    """
    since = f"--starttime=now-{int(age // 3600) + 25}hours"
    words = ["--noheader", "--parsable2", "--allocations", f"--user={user}", since]
    try:
        said = _ask(["sacct", *words, "--format=JobIDRaw,SubmitLine"])
    except (UnreachableError, CommandError) as error:
        if age < _remembered_for():
            return {}
        raise UnreachableError(
            f"slurmctld may have forgotten the job, and the accounting does not tell: {error.message}",
            f"see in {folder} whether it ran; to submit it anew, leave out --submission",
        ) from None
    # A line may hold line breaks; a word of it is the script.
    lines = re.split(r"^(\d+)\|", said, flags=re.MULTILINE)[1:]
    named = (
        (job, re.search(rf"(?<!\S){wanted}", line)) for job, line in zip(lines[::2], lines[1::2], strict=True)
    )
    return {int(job): match[match.lastindex or 0] for job, match in named if match}


def _remembered_for() -> float:
    """Seconds for which the controller knows a job that has ended."""
    said = _ask(["scontrol", "show", "config"])
    stated = re.search(r"^MinJobAge\s*=\s*(\d+)", said, re.MULTILINE)
    return (int(stated[1]) or float("inf")) if stated else 0


def states(job_id: int, task: int | None = None) -> list[str]:
    """States of a job and of an array's tasks, without repetition; none when the controller has forgotten it.

    Args:
        task: of an array, only this one's.

    Raises:
        UnreachableError, CommandError: as `jobs_from`.
    """
    if task is None:
        return states_of([job_id]).get(job_id, [])
    found = re.findall(r"^\d+\S* (\S+)", _listed(f"{job_id}_{task}"), re.MULTILINE)
    return list(dict.fromkeys(found))


def states_of(job_ids: Sequence[int]) -> dict[int, list[str]]:
    """As `states`, of many jobs at once; without those that the controller has forgotten.

    Raises:
        UnreachableError, CommandError: as `jobs_from`.
    """
    found: dict[int, list[str]] = {}
    for place in range(0, len(job_ids), _AT_ONCE):
        chosen = ",".join(map(str, job_ids[place : place + _AT_ONCE]))
        for job_id, state in re.findall(r"^(\d+)\S* (\S+)", _listed(chosen), re.MULTILINE):
            found.setdefault(int(job_id), []).append(state)
    return {job_id: list(dict.fromkeys(each)) for job_id, each in found.items()}


def _listed(chosen: str) -> str:
    """A line for each job, task (7_1, 7_[2-5]) and component (7+1): its id and state."""
    words = ["--noheader", "--all", "--states=all", "--format=%i %T", f"--jobs={chosen}"]
    try:
        return _ask(["squeue", *words])
    except CommandError as error:
        if "Invalid job id" in error.stderr_tail:
            return ""
        raise


def is_living(state: str) -> bool:
    """Whether a job in that state waits or runs."""
    return state in _LIVING


def details(job_id: int) -> list[dict[str, str]]:
    """What `scontrol show job` says, a task or component each; none when it is forgotten.

    Raises:
        UnreachableError, CommandError: as `jobs_from`.
    """
    try:
        said = _ask(["scontrol", "--details", "show", "job", str(job_id)])
    except CommandError as error:
        if "Invalid job id" in error.stderr_tail:
            return []
        raise
    return [_fields(block) for block in said.split("\n\n") if block.strip()]


def _fields(block: str) -> dict[str, str]:
    """Fields that have a line of their own may hold spaces; of the others the first word counts."""
    found: dict[str, str] = {}
    for line in block.splitlines():
        key, _, value = line.strip().partition("=")
        if key in ("StdOut", "StdErr", "StdIn", "WorkDir", "Command", "Comment"):
            found[key] = value
        else:
            found.update(re.findall(r"([\w/:]+)=(\S*)", line))
    return found


def _ask(argv: list[str]) -> str:
    try:
        return run.run(argv, timeout=_SECONDS, env=asking()).stdout
    except CommandTimeout:
        raise UnreachableError(
            f"Slurm does not answer ({argv[0]}: nothing within {_SECONDS:g} s)",
            "check it with `scontrol ping`, and try again when it is up",
        ) from None
    except CommandError as error:
        raise told(error) from None
