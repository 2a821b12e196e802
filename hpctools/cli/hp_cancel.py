"""hp-cancel: end an elastic run, whatever Slurm jobs it has at the moment."""

from __future__ import annotations

import argparse
import os
import pwd
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import hpctools
from hpctools.cli.connection import connect
from hpctools.cli.elsewhere import elsewhere, refuse_cut_short
from hpctools.cli.ending import arguments, message, run_command
from hpctools.cli.output import show
from hpctools.elastic.folder import RunFolder, runs_root
from hpctools.errors import HpctoolsError
from hpctools.slurm.client import SlurmClient
from hpctools.submit.cancel import Cancelled, cancel_replicas, cancel_runs
from hpctools.submit.runs import find_runs


def main(
    argv: Sequence[str] | None = None,
    *,
    client: Callable[[], SlurmClient] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Run the command; return its exit code.

    Args:
        argv: the arguments; those of the process when None.
        client: makes the connection to Slurm.
        sleep: waits that many seconds.
    """
    there = elsewhere("hp-cancel", argv)
    if there is not None:
        return there
    given = arguments(_parser(), argv)
    return run_command("hp-cancel", lambda: _cancel(given, client or connect, sleep), debug=given.debug)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hp-cancel",
        description="End elastic runs: the baseline job and every replica job.",
        epilog="Examples: hp-cancel train-3fa9c1, hp-cancel --cluster uni train-3fa9c1d2",
    )
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="id of a run, of its array, or of any of its jobs"
    )
    # For the batch script of a baseline job.
    parser.add_argument("--replicas", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--cluster", metavar="NAME", help="ask a cluster over SSH, from a laptop")
    parser.add_argument("--json", action="store_true", help="print one JSON object a run")
    parser.add_argument("--debug", action="store_true", help="show a traceback when something fails")
    parser.add_argument("-V", "--version", action="version", version=f"hp-cancel {hpctools.__version__}")
    return parser


def _cancel(
    given: argparse.Namespace, client: Callable[[], SlurmClient], sleep: Callable[[float], None]
) -> int:
    refuse_cut_short(given.cluster)
    folders, failures = _found(given.runs, client)
    for failure in failures:
        print(message("hp-cancel", failure), file=sys.stderr, flush=True)
    code = _end(given, folders, client, sleep) if folders else 0
    if failures and given.debug:
        raise failures[0]
    return failures[0].exit_code if failures else code


def _found(
    words: Sequence[str], client: Callable[[], SlurmClient]
) -> tuple[list[RunFolder], list[HpctoolsError]]:
    """The runs that are named, each once, and what is wrong with words that name none."""
    found: dict[Path, RunFolder] = {}
    failures: list[HpctoolsError] = []
    for word in dict.fromkeys(words):
        try:
            for folder in find_runs(word, runs_root(), client):
                folder.spec()
                found[folder.path] = folder
        except HpctoolsError as error:
            failures.append(error)
    return list(found.values()), failures


def _end(
    given: argparse.Namespace,
    folders: Sequence[RunFolder],
    client: Callable[[], SlurmClient],
    sleep: Callable[[float], None],
) -> int:
    if given.replicas:
        cancelled = [cancel_replicas(folder, client(), sleep, _own_job()) for folder in folders]
    else:
        cancelled = cancel_runs(folders, client(), sleep, by=_asker(), say=_tell)
    for done in cancelled:
        # The baseline's batch script asks at its end, and most often there is nothing to say.
        if done.replicas or not given.replicas:
            show(asdict(done) if given.json else _text(done))
        if done.failure:
            _tell(f"run {done.run}: that it is cancelled could not be recorded: {done.failure}")
    return 1 if any(done.remaining or done.failure for done in cancelled) else 0


def _tell(text: str) -> None:
    print(f"hp-cancel: {text}", file=sys.stderr, flush=True)


def _own_job() -> int | None:
    """The job whose batch script asks; None outside of one."""
    job = os.environ.get("SLURM_JOB_ID", "")
    return int(job) if job.isdecimal() else None


def _asker() -> str:
    # The uid's name, not $LOGNAME, which anybody may set.
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


def _text(done: Cancelled) -> str:
    jobs = [f"baseline job {job_id}" for job_id in done.baseline]
    jobs += [f"replica job {job_id}" for job_id in done.replicas]
    text = f"run {done.run}: {'cancelled ' + ', '.join(jobs) if jobs else 'nothing left to cancel'}\n"
    if done.remaining:
        ids = ",".join(str(job_id) for job_id in done.remaining)
        text += f"run {done.run}: still there: see `squeue -j {ids}`\n"
    return text


if __name__ == "__main__":
    sys.exit(main())
