"""`--dependency` on elastic runs, for every kind of submission."""

from __future__ import annotations

from dataclasses import replace

from hpctools.cli.connection import connect
from hpctools.elastic.folder import runs_root
from hpctools.slurm.sbatch_options import Option
from hpctools.submit.dependencies import with_jobs
from hpctools.submit.intent import Intent
from hpctools.submit.runs import find_baselines


def resolved(intent: Intent, asked: str) -> Intent:
    """The intent with its dependency on runs given as one on their baseline jobs, on the command line.

    Raises:
        SubmitError: there is no such run, or it has no job.
        UnreachableError: the controller does not answer.
    """
    root = runs_root().absolute()
    option = Option("dependency", with_jobs(asked, lambda word: find_baselines(word, root, connect)))
    # sbatch takes the last one, and the command line before the script.
    return replace(intent, words=(*intent.words, option.word), options=(*intent.options, option))
