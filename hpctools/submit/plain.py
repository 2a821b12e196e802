"""A submission that is not elastic: sbatch itself, in our place."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from hpctools.slurm.run import SUBMITTING, Completed, relay
from hpctools.submit import batch
from hpctools.submit.intent import Intent
from hpctools.submit.script import python_target

_NO_CONTROLLER = "Unable to contact slurm controller"


@dataclass(frozen=True)
class PlainSubmission:
    """One sbatch command, carried out as it is.

    Attributes:
        argv: `sbatch` and its arguments.
        script: what it reads from standard input; None when it reads a file.
    """

    argv: tuple[str, ...]
    script: str | None = None


def plan_plain(intent: Intent) -> PlainSubmission:
    """The sbatch command of a submission that is not elastic."""
    if intent.command:
        named = intent.effective("job-name") is not None
        name = () if named else (f"--job-name={command_name(intent.command)}",)
        return PlainSubmission(("sbatch", *intent.words, *name), batch.wrapped(intent.command))
    if intent.script is not None and intent.script.path is None:
        return PlainSubmission(("sbatch", *intent.words), intent.script.text)
    if intent.script is not None and intent.script.is_pipe:
        return PlainSubmission(("sbatch", *intent.words, "/dev/stdin", *intent.arguments), intent.script.text)
    script = (intent.script_word,) if intent.script_word else ()
    return PlainSubmission(("sbatch", *intent.words, *script, *intent.arguments))


def command_name(command: Sequence[str]) -> str:
    """A job's name from its command: the program, or what Python is to run."""
    name = PurePath(command[0]).name or "job"
    if not re.fullmatch(r"python[\d.]*", name):
        return name
    kind, word = python_target(command)
    # Code is no name.
    return {"m": word, "file": PurePath(word).name}.get(kind) or name


def execute_plain(submission: PlainSubmission, *, parsable: bool = False) -> Completed:
    """Run sbatch in our place: its output, its errors and its exit code are ours.

    Args:
        parsable: have sbatch print the bare job id, and return that instead of showing it.

    Raises:
        CommandError: sbatch is not installed.
        RemoteError: as `SUBMITTING` says.
    """
    script = submission.script
    data = script.encode("utf-8", "surrogateescape") if script is not None else None
    argv = ("sbatch", "--parsable", *submission.argv[1:]) if parsable else submission.argv
    SUBMITTING.get()()
    done = relay(argv, stdin=data, keep_stdout=parsable)
    if done.code != 0:
        _say_what_to_do(done.stderr)
    return done


def _say_what_to_do(words: str) -> None:
    from hpctools.slurm.remedies import remedy_of  # what seldom happens, importing is slow

    remedy = remedy_of(words)
    if _NO_CONTROLLER in words:
        remedy = "slurmctld does not answer, nothing was submitted; `scontrol ping` shows when it is back"
    if remedy:
        print(f"hp-submit: {remedy}", file=sys.stderr)
