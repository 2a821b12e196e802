"""What is left of a `--dependency` when runs have ended whose jobs it names.

Slurm goes by the job, and how that ends need not be how its run does: both who submits a job that waits for a
run and the run itself, for those that wait already, say it in the job's place.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

# Which kinds a run's good end satisfies, and which a bad one.
_GOOD = frozenset({"after", "afterany", "afterok", "afterburstbuffer", "aftercorr"})
_BAD = frozenset({"after", "afterany", "afternotok", "afterburstbuffer"})


def left_of(
    dependency: str, finished: Collection[int], failed: Collection[int], there: Collection[int] = ()
) -> str:
    """What is still to be waited for when some jobs' runs have ended; empty: nothing.

    Where any of several is enough (`?`), what can never be is left out as long as there is another. Minutes
    after a job's beginning are Slurm's to count, whatever has become of the run.

    Args:
        finished: whose runs ended well.
        failed: whose runs did not.
        there: jobs, of either, that have not ended yet though their run has: Slurm waits for them.

    Raises:
        NeverSatisfied: it asks for the other end of one of them.

    >>> left_of("afterok:7:8,afternotok:9,after:7+5", {7}, {9})
    'afterok:8,after:7+5'
    """
    any_is_enough, ends = "?" in dependency, _Ends(finished, failed, there)
    clauses = [_judged(clause, ends) for clause in re.split("[,?]", dependency)]
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


@dataclass(frozen=True)
class _Ends:
    """What is known of jobs and their runs; see `left_of`."""

    finished: Collection[int]
    failed: Collection[int]
    there: Collection[int]

    def of(self, kind: str, word: str) -> bool | None:
        """Whether a job's run has ended well; None: it has not, is none of ours, or is for Slurm to say."""
        job, plus, _ = word.partition("+")
        if kind == "after" and plus:
            return None
        if job in map(str, self.finished):
            return True
        return False if job in map(str, self.failed) else None

    def has_gone(self, word: str) -> bool:
        """Whether Slurm would wait for it in vain."""
        return word.partition("+")[0] not in map(str, self.there)


def _judged(clause: str, known: _Ends) -> _Judged:
    kind, *words = clause.split(":")
    if kind not in _GOOD and kind not in _BAD:
        return _Judged(clause)
    ends = {word: known.of(kind, word) for word in words}
    wanted = {True: kind in _GOOD, False: kind in _BAD}
    open_ = [
        word for word, good in ends.items() if good is None or (wanted[good] and not known.has_gone(word))
    ]
    never = tuple(f"{kind}:{word}" for word, good in ends.items() if good is not None and not wanted[good])
    left = ":".join([kind, *open_]) if open_ else ""
    return _Judged(left, len(open_) + len(never) < len(ends), never)
