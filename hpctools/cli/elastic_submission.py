"""The elastic half of hp-submit: facts in, one run out."""

from __future__ import annotations

import os
import pwd
import secrets
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from hpctools.cli.output import show
from hpctools.elastic.folder import runs_root, utc_now
from hpctools.errors import CommandError, SubmitError, UnreachableError
from hpctools.slurm.client import SlurmClient
from hpctools.slurm.types import Partition
from hpctools.submit.execute import execute_elastic
from hpctools.submit.intent import Intent
from hpctools.submit.plan import ElasticSubmission, Facts, plan_elastic
from hpctools.submit.render import elastic_json, elastic_text

_ENDINGS = (signal.SIGTERM, signal.SIGHUP)


def submit_elastic(intent: Intent, flags: frozenset[str], client: Callable[[], SlurmClient]) -> int:
    """Plan an elastic run and submit it, or print it; return the exit code.

    Args:
        flags: hp-submit's own: `dry-run`, `json`, `debug`.
        client: makes the connection to Slurm.
    """
    nodes = intent.nodes
    if nodes is None:
        raise SubmitError("no sizes", "give --nodes MIN:MAX")
    if "dry-run" in flags:
        submission = plan_elastic(intent, nodes, _facts(_partitions_if_known(client)))
        show(elastic_json(submission) if "json" in flags else elastic_text(submission))
        return 0
    slurm = client()
    submission = plan_elastic(intent, nodes, _facts(tuple(slurm.partitions())))
    with _ending_interrupts():
        job_id = execute_elastic(submission, slurm)
    _tell(intent, flags, submission, job_id)
    return 0


def _facts(partitions: tuple[Partition, ...] | None) -> Facts:
    return Facts(
        user=_user(),
        python=_python(),
        runs_root=runs_root().absolute(),
        suffix=secrets.token_hex(3),
        created=utc_now(),
        partitions=partitions,
    )


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        raise SubmitError(
            f"your uid {os.getuid()} has no name on this machine",
            "see `getent passwd`: is its directory there?",
        ) from None


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
    except (UnreachableError, CommandError) as error:
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


def _tell(intent: Intent, flags: frozenset[str], submission: ElasticSubmission, job_id: int) -> None:
    spec = submission.spec
    given = {option.name for option in intent.all_options}
    if "json" in flags:
        show({"elastic": True, "run": spec.id, "job_id": job_id, "folder": str(submission.folder)})
    elif "parsable" in given:
        print(job_id)
    elif "quiet" not in given:
        print(f"Submitted batch job {job_id}")
        print(f"Elastic run {spec.id}: {spec.min_nodes} to {spec.max_nodes} nodes; see: hp-status {spec.id}")
