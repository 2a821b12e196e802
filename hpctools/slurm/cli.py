"""SlurmClient by Slurm's own commands."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpctools.errors import CommandError, CommandTimeout, UnreachableError
from hpctools.slurm import parse, run
from hpctools.slurm.types import Job, Partition

# A question may be given up soon (Slurm's commands themselves try for 29 s); a change may not, since it could
# still happen after we stopped waiting.
ASK_SECONDS = 15.0
CHANGE_SECONDS = 120.0
_HOW_TO_REACH_SLURM = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")
# Words by which Slurm's commands say that no controller answers (slurm_errno.c, 22.05 to 26.05).
SILENCE = re.compile(
    r"Unable to contact slurm controller|Connection refused|Socket timed out|Zero Bytes were"
)


class CommandClient:
    """The controller, asked through sbatch, scancel, squeue and scontrol."""

    def submit(self, options: Sequence[str], script: Path, arguments: Sequence[str] = ()) -> int:
        """Submit a batch script; see SlurmClient."""
        done = _run(["sbatch", "--parsable", *options, str(script), *arguments], CHANGE_SECONDS, _outside())
        answer = re.findall(r"^(\d+)(?:;.*)?$", done.stdout, re.MULTILINE)
        if not answer:
            raise CommandError(
                f"sbatch answered without a job id: {done.stdout.strip()!r}",
                argv=done.argv,
                code=0,
                stderr=done.stderr,
                remedy="see `squeue --me`",
            )
        return int(answer[-1])

    def cancel(self, job_ids: Sequence[int]) -> None:
        """Cancel jobs; see SlurmClient."""
        if job_ids:
            _run(["scancel", "--quiet", *map(str, job_ids)], CHANGE_SECONDS)

    def jobs(
        self, *, ids: Sequence[int] = (), user: str | None = None, nodes: Sequence[str] = ()
    ) -> list[Job]:
        """Jobs in the queue; see SlurmClient."""
        argv = ["squeue", "--noheader", "--states=all", f"--format={parse.JOB_FORMAT}"]
        argv += [f"--jobs={','.join(map(str, ids))}"] if ids else []
        argv += [f"--user={user}"] if user else []
        argv += [f"--nodelist={','.join(nodes)}"] if nodes else []
        try:
            return parse.jobs(_run(argv, ASK_SECONDS, {**os.environ, "SLURM_TIME_FORMAT": "%s"}).stdout)
        except CommandError as error:
            # squeue asked for one job that the controller has forgotten fails instead of printing nothing.
            if "Invalid job id" in error.stderr_tail:
                return []
            raise

    def partitions(self) -> list[Partition]:
        """All partitions; see SlurmClient."""
        return parse.partitions(_run(["scontrol", "--oneliner", "show", "partition"], ASK_SECONDS).stdout)


def _outside() -> dict[str, str]:
    """Our environment without the job that we may run in: a job that we submit must not inherit its shape."""
    return {k: v for k, v in os.environ.items() if not k.startswith("SLURM_") or k in _HOW_TO_REACH_SLURM}


def _run(argv: list[str], seconds: float, env: Mapping[str, str] | None = None) -> run.Completed:
    try:
        return run.run(argv, timeout=seconds, env=env)
    except CommandTimeout:
        raise _unreachable(argv[0], f"no answer within {seconds:g} s") from None
    except CommandError as error:
        if SILENCE.search(error.stderr_tail):
            raise _unreachable(argv[0], error.stderr_tail.splitlines()[-1]) from None
        raise


def _unreachable(program: str, words: str) -> UnreachableError:
    return UnreachableError(
        f"Slurm's controller does not answer ({program}: {words.removeprefix(f'{program}: ')})",
        "check it with `scontrol ping`, and try again when it is up",
    )
