"""SlurmAdministration by Slurm's own commands."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from datetime import date
from functools import cached_property
from pathlib import Path

from hpctools.errors import CommandError, CommandTimeout, NotAllowedError, ReleaseError, UnreachableError
from hpctools.slurm import accounting, parse, parse_nodes, run
from hpctools.slurm.client import check_node_change
from hpctools.slurm.environment import asking
from hpctools.slurm.remedies import remedy_of
from hpctools.slurm.types import Job, Node, Partition, PastJob
from hpctools.slurm.versions import Release, parse_release, prints_nodes_as_json

# A question may be given up soon (Slurm's commands themselves try for 29 s); a change may not, since it could
# still happen after we stopped waiting.
ASK_SECONDS = 15.0
CHANGE_SECONDS = 120.0
_FOR_SBATCH = ("SLURM_HINT",)  # its input, as SBATCH_* are; SLURM_CLUSTERS, too, is not for what we submit
_HOW_TO_REACH_SLURM = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")
# Words by which Slurm's commands say that no controller answers (slurm_errno.c, 22.05 to 26.05).
SILENCE = re.compile(
    r"Unable to contact slurm controller|Connection refused|Socket timed out|Zero Bytes were"
)
# "Invalid user id" is what 22.05 says to a user who updates a node (measured).
_DENIED = re.compile(r"Access/permission denied|Invalid user id|Operation not permitted", re.IGNORECASE)
# What slurm_strerror says of ESLURM_ALREADY_DONE, ESLURM_JOB_FINISHED and ESLURM_INVALID_JOB_ID.
_JOB_HAS_ENDED = r"already (completing or completed|finished)|Invalid job id"
_OTHER_RELEASE = re.compile(r"Incompatible versions of client and server|Unsupported.*protocol version", re.I)


class CommandClient:
    """The cluster, asked through sbatch, scancel, squeue, scontrol and sacct."""

    def submit(self, options: Sequence[str], script: Path, arguments: Sequence[str] = ()) -> int:
        """Submit a batch script; see SlurmClient. What sbatch says besides goes to `run.HEARD`."""
        run.SUBMITTING.get()()
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
        run.HEARD.get()(done.stderr)
        return int(answer[-1])

    def cancel(self, job_ids: Sequence[int]) -> None:
        """Cancel jobs; see SlurmClient."""
        if job_ids:
            _run(["scancel", "--quiet", *map(str, job_ids)], CHANGE_SECONDS)

    def shorten(self, job_id: int, minutes: int) -> None:
        """Lower a job's time limit; see RunClient."""
        try:
            _run(["scontrol", "update", f"jobid={job_id}", f"timelimit={minutes}"], CHANGE_SECONDS)
        except CommandError as error:
            if not re.search(_JOB_HAS_ENDED, error.stderr_tail):
                raise

    def exclude(self, job_id: int, nodes: Sequence[str]) -> None:
        """Have a job that waits not get some nodes; see RunClient."""
        self._update_waiting(job_id, f"excnodelist={','.join(nodes)}")

    def dependencies(self, user: str) -> Mapping[int, str]:
        """What the user's waiting jobs wait for; see RunClient."""
        which = ["--all", f"--user={user}", "--states=PENDING", f"--format={parse.DEPENDENCY_FORMAT}"]
        return parse.dependencies(_run(["squeue", "--noheader", *which], ASK_SECONDS).stdout)

    def depend(self, job_id: int, dependency: str) -> None:
        """Have a job that waits wait for something else; see RunClient."""
        self._update_waiting(job_id, f"dependency={dependency}")

    def _update_waiting(self, job_id: int, setting: str) -> None:
        """Change a job that has not begun; one that has is left as it is."""
        try:
            _run(["scontrol", "update", f"jobid={job_id}", setting], CHANGE_SECONDS)
        except CommandError as error:
            if not re.search(rf"no longer pending execution|{_JOB_HAS_ENDED}", error.stderr_tail):
                raise

    def ended_as(self, job_id: int) -> str:
        """The state of a job as slurmdbd knows it; see RunClient."""
        return accounting.ended_as(job_id, timeout=ASK_SECONDS)

    def jobs(
        self, *, ids: Sequence[int] = (), user: str | None = None, nodes: Sequence[str] = ()
    ) -> list[Job]:
        """Jobs in the queue; see SlurmClient."""
        # --all: without it squeue leaves out a person's own jobs in partitions that are hidden.
        argv = ["squeue", "--noheader", "--all", "--states=all", f"--format={parse.JOB_FORMAT}"]
        argv += [f"--jobs={','.join(map(str, ids))}"] if ids else []
        argv += [f"--user={user}"] if user else []
        argv += [f"--nodelist={','.join(nodes)}"] if nodes else []
        try:
            said = _run(argv, ASK_SECONDS, asking("%s")).stdout
        except CommandError as error:
            # squeue asked for one job that the controller has forgotten fails instead of printing nothing.
            if "Invalid job id" in error.stderr_tail:
                return []
            raise
        found = parse.jobs(said, everybodys=not ids and user is None)
        return sorted(found, key=lambda job: job.id)

    def partitions(self) -> list[Partition]:
        """All partitions; see SlurmClient."""
        return parse.partitions(_show("--all", "--oneliner", "show", "partition"))

    def nodes(self, names: Sequence[str] = ()) -> list[Node]:
        """All nodes, or some; see SlurmAdministration.

        slurmctld sends all of them either way, and scontrol prints those that were named.
        """
        if not names:
            return self._nodes()
        try:
            found = self._nodes(",".join(names))
        except CommandError:  # as for one that slurmctld does not know any more; what else it is comes again
            found = self._nodes()
        wanted = frozenset(names)
        return [node for node in found if node.name in wanted]

    def _nodes(self, *names: str) -> list[Node]:
        if prints_nodes_as_json(self.release):
            return parse_nodes.nodes_from_json(_show("--all", "--json", "show", "node", *names))
        return parse_nodes.nodes_from_text(_show("--all", "--oneliner", "show", "node", *names))

    def update_nodes(self, nodes: Sequence[str], state: str, reason: str = "") -> None:
        """Change the state of nodes; see SlurmAdministration."""
        check_node_change(state, reason)
        if nodes:
            words = [f"nodename={','.join(nodes)}", f"state={state}"]
            _run(["scontrol", "update", *words, *([f"reason={reason}"] if reason else [])], CHANGE_SECONDS)

    def config(self) -> Mapping[str, str]:
        """What slurmctld runs with; see SlurmAdministration."""
        return parse.config(_show("show", "config"))

    def past_jobs(self, first: date, end: date, *, users: Sequence[str] = ()) -> list[PastJob]:
        """What slurmdbd remembers; see SlurmAdministration."""
        records = sorted(accounting.read_jobs(first, end))
        return [_past(record) for record in records if not users or record.user in users]

    @cached_property
    def release(self) -> Release:
        """The release of the commands.

        Raises:
            CommandError: there are none.
            ReleaseError: they do not say it.
        """
        said = _show("--version")
        try:
            return parse_release(said)
        except ValueError as error:
            raise ReleaseError(
                f"scontrol --version: {error}", "install a release from 22.05 to 26.05"
            ) from None


def _past(record: accounting.JobRecord) -> PastJob:
    return PastJob(
        cluster=record.cluster,
        dbindex=record.dbindex,
        id=record.job_id,
        user=record.user,
        account=record.account,
        partition=record.partition,
        qos=record.qos,
        state=record.state,
        submitted=record.submitted,
        # Of a job that was cancelled while it waited sacct says the start too, and means the end (22.05.8).
        start=record.start if record.nodes else None,
        end=record.end,
        nodes=accounting.expand(record.nodes),
    )


def _show(*arguments: str) -> str:
    return _run(["scontrol", *arguments], ASK_SECONDS).stdout


def _outside() -> dict[str, str]:
    """Our environment without the job that we may run in: a job that we submit must not inherit its shape."""
    kept = (*_HOW_TO_REACH_SLURM, *_FOR_SBATCH)
    return {k: v for k, v in os.environ.items() if not k.startswith("SLURM_") or k in kept}


def _run(argv: list[str], seconds: float, env: Mapping[str, str] | None = None) -> run.Completed:
    try:
        return run.run(argv, timeout=seconds, env=asking() if env is None else env)
    except CommandTimeout:
        raise _unreachable(argv[0], f"no answer within {seconds:g} s") from None
    except CommandError as error:
        raise told(error) from None


def told(error: CommandError) -> CommandError | UnreachableError | ReleaseError:
    """The error that a failed Slurm command stands for: silence, a denial, another release, or itself."""
    words = error.stderr_tail
    if SILENCE.search(words):
        return _unreachable(error.argv[0], words.splitlines()[-1])
    if _OTHER_RELEASE.search(words):
        return ReleaseError(
            f"{error.argv[0]} and the daemon that it asked are of different Slurm releases: {words}",
            "install the commands of the controller's release here (scontrol --version on both)",
        )
    if _DENIED.search(words):
        return NotAllowedError(
            f"{error.message.partition(': ')[0]}: Slurm does not allow it to {_who()}",
            argv=error.argv,
            code=error.code,
            stderr=words,
            remedy="ask a Slurm operator (sacctmgr show user withassoc shows AdminLevel), or do it as root",
        )
    error.remedy = error.remedy or remedy_of(words)
    return error


def _who() -> str:
    return f"uid {os.geteuid()}"


def _unreachable(program: str, words: str) -> UnreachableError:
    return UnreachableError(
        f"Slurm's controller does not answer ({program}: {words.removeprefix(f'{program}: ')})",
        "check it with `scontrol ping`, and try again when it is up",
    )
