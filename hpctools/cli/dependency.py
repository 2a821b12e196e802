"""`--dependency` on elastic runs, for every kind of submission."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hpctools.cli.connection import connect
from hpctools.elastic.dependents import fulfilled
from hpctools.elastic.folder import runs_root
from hpctools.slurm.sbatch_options import Option
from hpctools.submit.dependencies import with_jobs
from hpctools.submit.intent import Intent
from hpctools.submit.runs import Baselines, find_baselines


def resolved(intent: Intent, asked: str) -> Intent:
    """The intent with its dependency on runs given as one on their baseline jobs, on the command line.

    What a run that has finished fulfils is left out; an empty dependency is none to Slurm.

    Raises:
        SubmitError: there is no such run, or it has no job.
        UnreachableError: the controller does not answer.
    """
    root = runs_root().absolute()
    found: dict[str, Baselines] = {}

    def jobs_of(word: str) -> Sequence[int]:
        found[word] = find_baselines(word, root, connect)
        return found[word].jobs

    told = with_jobs(asked, jobs_of)
    finished = frozenset().union(*(each.finished for each in found.values()))
    option = Option("dependency", fulfilled(told, finished))
    # sbatch takes the last one, and the command line before the script.
    return replace(intent, words=(*intent.words, option.word), options=(*intent.options, option))
