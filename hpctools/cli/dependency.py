"""`--dependency` on elastic runs, for every kind of submission."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from hpctools.cli.connection import connect
from hpctools.elastic.folder import runs_root
from hpctools.errors import SubmitError
from hpctools.slurm.dependencies import NeverSatisfied, left_of
from hpctools.slurm.sbatch_options import Option
from hpctools.submit.arrays import array_of
from hpctools.submit.dependencies import corresponding, of_one_index, with_jobs
from hpctools.submit.intent import Intent
from hpctools.submit.runs import Baselines, find_baselines, indices_of

_FindBaselines = Callable[[str], Baselines]


def resolved(intent: Intent, asked: str) -> Intent:
    """The intent with its dependency on runs given as one on their baseline jobs, on the command line.

    What a run that has ended fulfils is left out; an empty dependency is none to Slurm. With `aftercorr`
    each run of an elastic array has one of its own: Slurm sees jobs there, and no array.

    Raises:
        SubmitError: there is no such run, it has no job, or it has ended otherwise than is waited for; or
            nothing corresponds to an index.
        UnreachableError: the controller does not answer.
    """
    root = runs_root().absolute()
    find = cache(lambda word: find_baselines(word, root, connect))
    if corresponding(asked) and intent.effective("array") is not None:
        if intent.is_elastic:
            return replace(intent, awaited=_by_index(intent, asked, root, find))
        _check_plain_array(asked, root)
    option = Option("dependency", _told(asked, find))
    # sbatch takes the last one, and the command line before the script.
    return replace(intent, words=(*intent.words, option.word), options=(*intent.options, option))


def _told(asked: str, find: _FindBaselines) -> str:
    found: dict[str, Baselines] = {}

    def jobs_of(word: str) -> Sequence[int]:
        found[word] = find(word)
        return found[word].jobs

    return _left_of(with_jobs(asked, jobs_of), found)


def _by_index(intent: Intent, asked: str, root: Path, find: _FindBaselines) -> dict[int, str]:
    array = array_of(intent)
    indices = {word: indices_of(word, root) for word in corresponding(asked)}

    def one_of(word: str, index: int) -> str:
        # Of a job, as Slurm takes it for one that is no task. Slurm 22.05 begins at once what waits for a
        # task that there is not, so tasks are for people to name.
        job = re.fullmatch(r"(\d+)(_\*)?", word)
        return job[1] if job else _run_of_index(word, index, indices[word])

    def of(index: int) -> str:
        return _told(of_one_index(asked, lambda word: one_of(word, index)), find)

    return {index: of(index) for index in (array.indices if array else ())}


def _run_of_index(word: str, index: int, indices: frozenset[int]) -> str:
    if indices and index not in indices:
        raise SubmitError(
            f"there is no run {word}_{index} that index {index} of --array could wait for (aftercorr:{word})",
            f"leave {index} out of --array (hp-status {word} shows which there are), or take afterok:{word} "
            "to wait for all of them",
        )
    return f"{word}_{index}" if indices else word


def _check_plain_array(asked: str, root: Path) -> None:
    """Slurm would have each of our tasks wait for all of the runs: their jobs are no array to it."""
    for word in corresponding(asked):
        if indices_of(word, root):
            raise SubmitError(
                f"{word} is an array of elastic runs, and a plain array's tasks cannot each wait for one "
                f"of them (aftercorr:{word})",
                f"take afterok:{word} to wait for all of its runs, or submit each index by itself, as with "
                f"--array=3 --dependency=afterok:{word}_3",
            )


def _left_of(told: str, found: Mapping[str, Baselines]) -> str:
    """Slurm itself would let such a job wait for ever, or, when it has forgotten the other one, begin it."""
    finished = frozenset().union(*(each.finished for each in found.values()))
    failed = frozenset().union(*(each.failed for each in found.values()))
    there = frozenset().union(*(each.there for each in found.values()))
    try:
        return left_of(told, finished, failed, there)
    except NeverSatisfied as never:
        raise _never(str(never), found) from None


def _never(clause: str, found: Mapping[str, Baselines]) -> SubmitError:
    kind, _, word = clause.partition(":")
    job = int(word.partition("+")[0])
    run, which = next((run, each) for run, each in found.items() if job in each.finished | each.failed)
    if job in which.finished:
        return SubmitError(
            f"run {run} has finished, so {kind}:{run} can never be satisfied",
            "leave it out: what the job is for has not come about",
        )
    said = f"run {run} has failed or was cancelled, so {kind}:{run} can never be satisfied"
    if job in which.restarted:
        return SubmitError(
            said,
            "submit it again (its script goes on from what it saved itself) and wait for that run, "
            f"or take afterany:{run}",
        )
    return SubmitError(
        said, f"go on with it (hp-submit --resume {run}) and wait for that run, or take afterany:{run}"
    )
