"""`--dependency` on elastic runs: `afterok:RUN` is the run's baseline job, whose exit code is the run's."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

# after:id, afterok:id:id, after:id+minutes; several with , (all) or ? (any); singleton is another.
_CLAUSE = re.compile(r"(after\w*):(.+)", re.I)  # AFTEROK is the same to Slurm
_JOB = re.compile(r"\d+(_(\d+|\*))?(\+\d+)?")
_CORRESPONDING = "aftercorr"
_OPTION = "--dependency="


def names_runs(value: str) -> bool:
    """Whether a dependency names something that is no job id."""
    return any(not _JOB.fullmatch(word) for words in map(_words, re.split("[,?]", value)) for word in words)


def with_jobs(value: str, jobs_of: Callable[[str], Sequence[int]]) -> str:
    """A dependency with the job ids of the runs in it.

    Args:
        jobs_of: the baseline jobs of a run, or of all runs of an array; raises when there is none.
    """
    return "".join(
        part if part in (",", "?") else _clause(part, jobs_of) for part in re.split("([,?])", value)
    )


def corresponding(value: str) -> list[str]:
    """Of whom only the task with our own index is waited for: the words of `aftercorr`, without minutes."""
    clauses = [clause for clause in re.split("[,?]", value) if _is_corresponding(clause)]
    return [word.partition("+")[0] for clause in clauses for word in _words(clause)]


def of_one_index(value: str, one_of: Callable[[str], str]) -> str:
    """A dependency as one run of an array has it: `aftercorr` becomes `afterok` of what corresponds to it.

    Args:
        one_of: what corresponds to a word of `aftercorr`; raises when nothing does.

    >>> of_one_index("aftercorr:7,afterany:8", lambda word: f"{word}_3")
    'afterok:7_3,afterany:8'
    """
    clauses = re.split("([,?])", value)
    return "".join(_of_one(each, one_of) if _is_corresponding(each) else each for each in clauses)


def waiting_for(options: Sequence[str], job: str) -> tuple[str, ...]:
    """sbatch's options, with which the job waits also until another one has ended."""
    own = next((word.partition("=")[2] for word in reversed(options) if word.startswith(_OPTION)), "")
    return (*options, f"{_OPTION}{own + ',' if own else ''}afterany:{job}")


def _is_corresponding(clause: str) -> bool:
    return clause.partition(":")[0].lower() == _CORRESPONDING


def _of_one(clause: str, one_of: Callable[[str], str]) -> str:
    parted = [word.partition("+") for word in _words(clause)]
    return ":".join(["afterok", *(f"{one_of(word)}{plus}{minutes}" for word, plus, minutes in parted)])


def _words(clause: str) -> list[str]:
    found = _CLAUSE.fullmatch(clause)
    return found[2].split(":") if found else []


def _clause(clause: str, jobs_of: Callable[[str], Sequence[int]]) -> str:
    found = _CLAUSE.fullmatch(clause)
    if not found:
        return clause
    words = []
    for word in found[2].split(":"):
        run, plus, minutes = word.partition("+")
        known = [run] if _JOB.fullmatch(word) else [str(job) for job in jobs_of(run)]
        words += [f"{job}{plus}{minutes}" for job in known]
    return f"{found[1].lower()}:{':'.join(words)}"
