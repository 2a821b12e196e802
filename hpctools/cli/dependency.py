"""`--dependency` on elastic runs, for every kind of submission."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hpctools.cli.connection import connect
from hpctools.elastic.folder import runs_root
from hpctools.errors import SubmitError
from hpctools.slurm.dependencies import NeverSatisfied, left_of
from hpctools.slurm.sbatch_options import Option
from hpctools.submit.dependencies import with_jobs
from hpctools.submit.intent import Intent
from hpctools.submit.runs import Baselines, find_baselines


def resolved(intent: Intent, asked: str) -> Intent:
    """The intent with its dependency on runs given as one on their baseline jobs, on the command line.

    What a run that has ended fulfils is left out; an empty dependency is none to Slurm.

    Raises:
        SubmitError: there is no such run, it has no job, or it has ended otherwise than is waited for.
        UnreachableError: the controller does not answer.
    """
    root = runs_root().absolute()
    found: dict[str, Baselines] = {}

    def jobs_of(word: str) -> Sequence[int]:
        found[word] = find_baselines(word, root, connect)
        return found[word].jobs

    told = with_jobs(asked, jobs_of)
    option = Option("dependency", _left_of(told, found))
    # sbatch takes the last one, and the command line before the script.
    return replace(intent, words=(*intent.words, option.word), options=(*intent.options, option))


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
