"""hp-submit: sbatch as researchers know it, and elastic runs with `--nodes MIN:MAX` or a policy.

What a plain submission does not need is imported late: it must not take noticeably longer than sbatch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import hpctools
from hpctools.cli.connection import connect
from hpctools.cli.ending import run_command
from hpctools.cli.output import show
from hpctools.errors import SubmitError, UsageError
from hpctools.slurm.run import replace
from hpctools.submit.intent import Intent, read_intent, read_invocation
from hpctools.submit.nodes import misplaced_range
from hpctools.submit.plain import execute_plain, plan_plain

if TYPE_CHECKING:
    from hpctools.slurm.client import SlurmClient
    from hpctools.slurm.limits import Limits
    from hpctools.submit.policy_file import PolicyFile

HELP = """\
Usage: hp-submit [options] script [args...]
       hp-submit [options] -- command [args...]
       hp-submit [options] < script

Submits a batch job. All of sbatch's options and #SBATCH lines work as they do with sbatch
(see `man sbatch`); these are added:

  -N, --nodes=MIN:MAX   an elastic run: MIN nodes from the start to the end, and up to MAX when nodes are
                        free; also in an #SBATCH line. The program is started once per worker on each node.
      --nodes=MIN:MAX:STEP  ... in steps of so many nodes; --nodes=1,2,4,8: with exactly these totals
      --ntasks-per-node=N   in an elastic run: how many workers each node runs (1)
      --elastic-policy=FILE   how it grows, shrinks and recovers, YAML with HyperPod's names (elasticPolicy,
                        runPolicy, ...); says how many nodes, too, when --nodes does not
      --elastic-mode=MODE   live: the training loop resizes in place (the usual); restart: a script that saves
                        its own checkpoints is started anew at each size; also: -- torchrun SCRIPT
      --resume=RUN      begin from the newest checkpoint of a run that has ended
      --array=0-9%4     an elastic run for each index (HPCTOOLS_ARRAY_INDEX, SLURM_ARRAY_TASK_ID)
      --dependency=afterok:RUN   a run's name may stand wherever sbatch wants a job id
      --cluster=NAME    submit from here to a cluster over SSH (a name of clusters.yaml, or a login node)
      --upload=FILE     with --cluster: a file or folder that goes along; may be repeated
      --follow          with --cluster: show the output until the job has ended
      --submission=ID   with --cluster: ask again for what may have been submitted; it is submitted once
      --dry-run         print the exact batch scripts and commands, and submit nothing
      --json            print what was submitted (or would be, with --dry-run) as one JSON object
      --yes             do not ask whether to submit at this cost, where the site's budget service is named
      --debug           show a traceback when something fails
  -h, --help            show this text
  -V, --version         show the version

Examples:
  hp-submit job.sh
  hp-submit --gpus 4 -- python train.py --epochs 3
  hp-submit --nodes 2:6 --gpus-per-node 1 -- python train.py
  hp-submit --nodes 2:8:2 --exclusive -t 1-0 -- python train.py
  hp-submit --elastic-policy policy.yaml --gpus-per-node 4 --ntasks-per-node 4 -- python train.py
  hp-submit --nodes 1:4 --array 0-3%2 -- python train.py
  hp-submit --dependency afterok:train-3fa9c1 evaluate.sh
  hp-submit trust uni                     # compare and remember the host keys of a cluster, once
  hp-submit --cluster uni train.py --nodes 2:8

hp-status shows a run, hp-cancel ends it; hp-logs and hp-fetch bring output and results of --cluster.
Environment: HPCTOOLS_RUNS (run folders, ~/.hpctools/runs), HPCTOOLS_PYTHON (interpreter on the nodes),
HPCTOOLS_API and HPCTOOLS_API_TOKEN_FILE (the site's API, to know what it costs and what is left of a budget),
HPCTOOLS_BUDGET (ask, tell, off or refuse).
"""


def main(
    argv: Sequence[str] | None = None,
    *,
    client: Callable[[], SlurmClient] | None = None,
    limits: Callable[[str], Limits | None] | None = None,
    from_afar: bool = False,
) -> int:
    """Run the command; return its exit code.

    Args:
        argv: the arguments; those of the process when None.
        client: makes the connection to Slurm that an elastic run is submitted with.
        limits: asks what a user may have there; with a client of the caller's own, nobody when None.
        from_afar: for a laptop, which knows a way to a job whose id sbatch does not tell.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    slurm = _Slurm(client or connect, limits or (_no_limits if client else None), from_afar)
    return run_command("hp-submit", lambda: _submit(words, slurm), debug=_debugs(words))


class _Slurm(NamedTuple):
    connect: Callable[[], SlurmClient]
    limits: Callable[[str], Limits | None] | None
    from_afar: bool = False


def _no_limits(user: str) -> None:
    return None


def _debugs(words: list[str]) -> bool:
    try:
        return "debug" in read_invocation(words).flags
    except UsageError:
        # A line that cannot be read is one whose last option has no value: nothing in it is the script's.
        return "--debug" in words


def _submit(words: list[str], slurm: _Slurm) -> int:
    remote = _remotely(words)
    if remote is not None:
        return remote
    invocation = read_invocation(words)
    if "help" in invocation.flags:
        print(HELP, end="")
        return 0
    if "version" in invocation.flags:
        print(f"hp-submit {hpctools.__version__}")
        return 0
    if any(option.name in ("usage", "autocomplete") for option in invocation.line.options):
        replace(["sbatch", *words])
    intent = read_intent(invocation, environment=os.environ, cwd=_here(), standard_input=_standard_input)
    intent = _without_runs(intent)
    policy = _policy(intent)
    if "dry-run" not in invocation.flags and not _may_submit(intent, invocation.flags, policy):
        return 1
    if not intent.is_elastic:
        _warn_of_misplaced_range(intent)
        return _submit_plain(intent, invocation.flags, from_afar=slurm.from_afar)
    from hpctools.cli.elastic_submission import submit_elastic
    from hpctools.slurm.limits_asked import read_limits

    limits = slurm.limits or read_limits
    return submit_elastic(intent, invocation.flags, slurm.connect, limits, policy=policy)


def _policy(intent: Intent) -> PolicyFile | None:
    """The run's policy, read once: a pipe, as `<(make-policy)` is, is empty the second time."""
    path = intent.settings.get("elastic-policy")
    if path is None:
        return None
    from hpctools.submit.policy_file import read_policy  # slow to import: YAML with line numbers

    return read_policy(Path(path))


def _remotely(words: list[str]) -> int | None:
    """What has to do with other machines; None when it is a submission here."""
    if words == ["--stdin-request"]:
        return _serve()
    if words[:1] == ["trust"]:
        from hpctools.cli.remote_submission import trust

        return trust(words[1:])
    if not any(word == "--cluster" or word.startswith("--cluster=") for word in words):
        return None
    from hpctools.remote.shipping import read_wish

    wish = read_wish(words)
    if wish is None or {"help", "version"} & read_invocation(wish.words).flags:
        return None
    from hpctools.cli.remote_submission import submit_remotely

    return submit_remotely(wish, _here(), _standard_input)


def _serve() -> int:
    """Answer a laptop, whose names come byte for byte: in a locale of Latin-1 they would be other names here.

    The interpreter's option, unlike its variable, is not inherited by jobs.
    """
    if sys.getfilesystemencoding() != "utf-8" and not sys.flags.utf8_mode:
        replace([sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    from hpctools.remote.serving import Programs, serve

    def submit(words: Sequence[str]) -> int:
        return main(words, from_afar=True)

    def status(words: Sequence[str]) -> int:
        from hpctools.cli.hp_status import main as show_status

        return show_status(words)

    def cancel(words: Sequence[str]) -> int:
        from hpctools.cli.hp_cancel import main as end_runs

        return end_runs(words)

    return serve(Programs(submit, status, cancel))


def _may_submit(intent: Intent, flags: frozenset[str], policy: PolicyFile | None) -> bool:
    """Whether the person and the site agree to what it costs; without a budget service there is none."""
    if not os.environ.get("HPCTOOLS_API") and not os.environ.get("HPCTOOLS_BUDGET"):
        return True
    from hpctools.cli.estimate import may_submit

    return may_submit(intent, flags, policy)


def _here() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        where = os.environ.get("PWD") or "the folder that you are in"
        raise SubmitError(
            f"{where} is gone, and a job starts in the folder of its submission",
            "go to one that is there (cd), and submit again",
        ) from None


def _warn_of_misplaced_range(intent: Intent) -> None:
    found = misplaced_range(intent.arguments)
    if found:
        print(
            f"hp-submit: {found} stands after the script, so it is the script's own argument; for an elastic "
            f"run: hp-submit {found} {intent.script_word}",
            file=sys.stderr,
        )


def _submit_plain(intent: Intent, flags: frozenset[str], *, from_afar: bool) -> int:
    submission = plan_plain(intent)
    if "dry-run" in flags:
        from hpctools.submit.render_plain import plain_json, plain_text

        show(plain_json(submission) if "json" in flags else plain_text(submission))
        return 0
    if "json" in flags and not from_afar and intent.effective("quiet") is not None:
        raise UsageError(
            "--quiet keeps sbatch from telling the job id, which --json prints", "give one of them"
        )
    done = execute_plain(submission, parsable="json" in flags)
    if done.code == 0 and "json" in flags:
        job, _, cluster = done.stdout.strip().partition(";")
        # With --test-only there is no job, and with --quiet none is told.
        show({"elastic": False, "job_id": int(job) if job.isdecimal() else None, "cluster": cluster})
    # A shell's way to say that a signal ended it.
    return done.code if done.code >= 0 else 128 - done.code


def _without_runs(intent: Intent) -> Intent:
    """The intent with a dependency on jobs where it had one on runs."""
    asked = intent.effective("dependency")
    if asked is None:
        return intent
    from hpctools.submit.dependencies import names_runs

    if not names_runs(asked):
        return intent
    from hpctools.cli.dependency import resolved

    return resolved(intent, asked)


def _standard_input() -> bytes | None:
    return None if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer.read()


if __name__ == "__main__":
    sys.exit(main())
