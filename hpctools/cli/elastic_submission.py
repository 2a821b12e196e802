"""The elastic half of hp-submit: facts in, one run out."""

from __future__ import annotations

import os
import secrets
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from hpctools.cli.connection import connect
from hpctools.cli.output import show
from hpctools.elastic.checkpoint import resume_source
from hpctools.elastic.folder import ACTIVE_STATES, RunFolder, RunStatus, runs_root, utc_now
from hpctools.elastic.spec import RunSpec
from hpctools.errors import CommandError, ElasticError, ReleaseError, SubmitError, UnreachableError
from hpctools.remote import own_name
from hpctools.slurm.client import SlurmClient
from hpctools.slurm.limits import Limits
from hpctools.slurm.limits_asked import read_limits
from hpctools.slurm.types import Partition
from hpctools.submit import suffix
from hpctools.submit.budget import ask_budget
from hpctools.submit.execute import execute_elastic
from hpctools.submit.intent import Intent
from hpctools.submit.plan import ElasticSubmission, Facts, cautions, plan_elastic
from hpctools.submit.render import elastic_json, elastic_text
from hpctools.submit.runs import find_run, has_said, still_there

if TYPE_CHECKING:
    from hpctools.submit.policy_file import PolicyFile

_ENDINGS = (signal.SIGTERM, signal.SIGHUP)


AskLimits = Callable[[str], "Limits | None"]
"""Asks what a user may have; None: that is not to be checked."""


def submit_elastic(
    intent: Intent,
    flags: frozenset[str],
    client: Callable[[], SlurmClient],
    ask_limits: AskLimits = read_limits,
    *,
    policy: PolicyFile | None,
) -> int:
    """Plan an elastic run, or one for each index of an array; submit it or print it; return the exit code.

    Args:
        flags: hp-submit's own: `dry-run`, `json`, `debug`.
        client: makes the connection to Slurm.
        policy: what the file of `--elastic-policy` says; None without one. It is read once: it may be a pipe.
    """
    if "dry-run" in flags:
        known = _partitions_if_known(client)
        submissions = _planned(intent, _facts(intent, policy, known, ask_limits, client))
        _show_plan(intent, flags, submissions)
        return 0
    slurm = client()
    submissions = _planned(
        intent, _facts(intent, policy, tuple(slurm.partitions()), ask_limits, lambda: slurm)
    )
    with _ending_interrupts():
        job_ids = execute_elastic(submissions, slurm, lambda words: _pass_on(words, intent))
    _tell(intent, flags, submissions, job_ids)
    return 0


def _planned(intent: Intent, facts: Facts) -> tuple[ElasticSubmission, ...]:
    submissions = plan_elastic(intent, facts)
    for each in cautions(intent, facts):
        print(f"hp-submit: {each}", file=sys.stderr)
    return submissions


def _show_plan(intent: Intent, flags: frozenset[str], submissions: Sequence[ElasticSubmission]) -> None:
    if "json" in flags:
        show(_as_json(intent, [elastic_json(each) for each in submissions]))
    else:
        show("\n".join(map(elastic_text, submissions)))


def _facts(
    intent: Intent,
    policy: PolicyFile | None,
    partitions: tuple[Partition, ...] | None,
    ask_limits: AskLimits,
    client: Callable[[], SlurmClient],
) -> Facts:
    user = own_name.by_uid()
    limits = None if partitions is None else _limits_if_known(user, ask_limits)
    account = intent.effective("account") or (limits and (found := limits.account(None)) and found.name)
    return Facts(
        user=user,
        python=_python(),
        runs_root=_runs_root(),
        suffix=suffix.STATED.get() or secrets.token_hex(3),
        created=utc_now(),
        partitions=partitions,
        limits=limits,
        policy=policy,
        resumed_from=_resumed_from(intent.settings.get("resume"), client),
        budget=ask_budget(account, os.environ) if account else None,
    )


def _runs_root() -> Path:
    root = runs_root().absolute()
    if os.path.lexists(root) and not root.is_dir():
        raise SubmitError(f"{root} is no folder", "set HPCTOOLS_RUNS to a folder that all nodes share")
    return root


def _resumed_from(word: str | None, client: Callable[[], SlurmClient]) -> str:
    """The folder of the run that shall go on, in which there has to be a checkpoint."""
    if word is None:
        return ""
    folder = find_run(word, runs_root().absolute(), connect)
    status = folder.status()
    if status is not None and status.state in ACTIVE_STATES:
        raise SubmitError(
            f"run {folder.path.name} is {status.state}", f"end it first: hp-cancel {folder.path.name}"
        )
    _check_that_it_ended(folder, status, client)
    try:
        resume_source(str(folder.path), folder.path.parent)
    except ElasticError as error:  # said now, not on the nodes
        raise SubmitError(
            error.message, "leave out --resume, or name a run that has saved one (hp-status --all)"
        ) from None
    return str(folder.path)


def _check_that_it_ended(
    folder: RunFolder, status: RunStatus | None, client: Callable[[], SlurmClient]
) -> None:
    """Of a run that has not said how it ended the baseline jobs have to be gone: they may save yet.

    Raises:
        SubmitError: one is not, be it that the run has not begun.
    """
    if status is not None and has_said(folder, status.state):
        return
    name = folder.path.name
    there = still_there([(name, job) for job in folder.jobs() if job.role == "baseline"], client)
    if status is None and any(state != "COMPLETING" for state in there.values()):
        raise SubmitError(f"run {name} has not begun", f"end it first: hp-cancel {name}")
    if there:
        job = max(there)
        raise SubmitError(
            f"run {name} may still be saving: its job {job} has not ended",
            f"wait until `squeue -j {job}` shows it no more, and submit again",
        )


def _limits_if_known(user: str, ask: AskLimits) -> Limits | None:
    try:
        return ask(user)
    except (UnreachableError, CommandError, ReleaseError) as error:
        print(f"hp-submit: limits are not checked: {error}", file=sys.stderr)
        return None


def _python() -> str:
    chosen = os.environ.get("HPCTOOLS_PYTHON") or sys.executable
    if not (Path(chosen).is_absolute() and os.access(chosen, os.X_OK)):
        raise SubmitError(
            f"{chosen or 'an empty name'} is no Python interpreter",
            "set HPCTOOLS_PYTHON to the absolute path of one that has hpctools, on all nodes",
        )
    return chosen


def _partitions_if_known(client: Callable[[], SlurmClient]) -> tuple[Partition, ...] | None:
    try:
        return tuple(client().partitions())
    except (UnreachableError, CommandError, ReleaseError) as error:
        print(f"hp-submit: the number of nodes is not checked: {error}", file=sys.stderr)
        return None


@contextmanager
def _ending_interrupts() -> Iterator[None]:
    """Let what ends us interrupt us, so that nothing half-submitted stays."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    # What is ignored stays so: `nohup hp-submit` shall outlive its terminal.
    wanted = [each for each in _ENDINGS if signal.getsignal(each) is not signal.SIG_IGN]
    before = {each: signal.signal(each, interrupt) for each in wanted}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _pass_on(words: str, intent: Intent) -> None:
    """Show what sbatch said besides the job id; with --quiet, which it is not given, its errors only."""
    lines = words.splitlines(keepends=True)
    if intent.effective("quiet") is not None:
        lines = [line for line in lines if "error:" in line]
    sys.stderr.write("".join(lines))


def _tell(
    intent: Intent, flags: frozenset[str], submissions: Sequence[ElasticSubmission], job_ids: Sequence[int]
) -> None:
    given = {option.name for option in intent.all_options}
    pairs = list(zip(submissions, job_ids, strict=True))
    if "json" in flags:
        runs: list[dict[str, Any]] = [
            {"elastic": True, "run": each.spec.id, "job_id": job, "folder": str(each.folder)}
            for each, job in pairs
        ]
        show(_as_json(intent, runs))
        return
    for each, job in pairs:
        spec = each.spec
        if "parsable" in given:
            print(job)
        elif "quiet" not in given:
            print(f"Submitted batch job {job}")
            print(f"Elastic run {spec.id}: {_sizes(spec)} nodes; see: hp-status {spec.id}")


def _as_json(intent: Intent, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A run as it is; of an array a list, also of one with a single index: programs are to find it there."""
    if any(option.name == "array" for option in intent.all_options):
        return {"elastic": True, "runs": list(runs)}
    return runs[0]


def _sizes(spec: RunSpec) -> str:
    if not spec.sizes:
        return f"{spec.min_nodes} to {spec.max_nodes}"
    return f"{', '.join(map(str, spec.sizes[:-1]))} or {spec.sizes[-1]}"
