"""`--dependency` on elastic runs: `afterok:RUN` is the run's baseline job, whose exit code is the run's."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

# after:id, afterok:id:id, after:id+minutes; several with , (all) or ? (any); singleton is another.
_CLAUSE = re.compile(r"(after\w*):(.+)")
_JOB = re.compile(r"\d+(_(\d+|\*))?(\+\d+)?")
_OPTION = "--dependency="
# Which of them a run's good end satisfies, and which a bad one.
_GOOD = frozenset({"after", "afterany", "afterok", "afterburstbuffer", "aftercorr"})
_BAD = frozenset({"after", "afterany", "afternotok", "afterburstbuffer"})


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


def left_of(dependency: str, finished: Collection[int], failed: Collection[int]) -> str:
    """What is still to be waited for when some jobs' runs have ended; empty: nothing.

    Where any of several is enough (`?`), what can never be is left out as long as there is another.

    Args:
        finished: whose runs ended well.
        failed: whose runs did not.

    Raises:
        NeverSatisfied: it asks for the other end of one of them.

    >>> left_of("afterok:7:8,afternotok:9,after:7+5", {7}, {9})
    'afterok:8'
    """
    any_is_enough = "?" in dependency
    clauses = [_judged(clause, finished, failed) for clause in re.split("[,?]", dependency)]
    if any_is_enough and any(each.fulfilled for each in clauses):
        return ""
    left = [each.left for each in clauses if each.left]
    never = [word for each in clauses for word in each.never]
    if never and not (any_is_enough and left):
        raise NeverSatisfied(never[0])
    return ("?" if any_is_enough else ",").join(left)


class NeverSatisfied(Exception):
    """A kind of dependency and a job, as `afterok:7`, that can never be."""


@dataclass(frozen=True)
class _Judged:
    """A clause, for example `afterok:7:8`.

    Attributes:
        left: what of it is to be waited for; may be empty.
        fulfilled: whether something of it is.
        never: what of it can never be.
    """

    left: str
    fulfilled: bool = False
    never: tuple[str, ...] = ()


def _judged(clause: str, finished: Collection[int], failed: Collection[int]) -> _Judged:
    kind, *words = clause.split(":")
    if kind not in _GOOD and kind not in _BAD:
        return _Judged(clause)
    ends = {word: _end_of(word, finished, failed) for word in words}
    wanted = {True: kind in _GOOD, False: kind in _BAD}
    open_ = [word for word, good in ends.items() if good is None]
    never = tuple(f"{kind}:{word}" for word, good in ends.items() if good is not None and not wanted[good])
    left = ":".join([kind, *open_]) if open_ else ""
    return _Judged(left, len(open_) + len(never) < len(ends), never)


def _end_of(word: str, finished: Collection[int], failed: Collection[int]) -> bool | None:
    """Whether a job's run has ended well; None: it has not, or is none of ours."""
    job = word.partition("+")[0]
    if job in map(str, finished):
        return True
    return False if job in map(str, failed) else None


def waiting_for(options: Sequence[str], job: str) -> tuple[str, ...]:
    """sbatch's options, with which the job waits also until another one has ended."""
    own = next((word.partition("=")[2] for word in reversed(options) if word.startswith(_OPTION)), "")
    return (*options, f"{_OPTION}{own + ',' if own else ''}afterany:{job}")


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
    return f"{found[1]}:{':'.join(words)}"
